package postgres

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestBoundsOfATransaction has parts of several sizes wait.
func TestBoundsOfATransaction(t *testing.T) {
	t.Parallel()
	some := func(n, bytes int) []int { return slices.Repeat([]int{bytes}, n) }
	for name, c := range map[string]struct{ sizes, want []int }{
		"small":     {some(2*MaxTxParts+3, 1), []int{MaxTxParts, MaxTxParts, 3}},
		"large":     {some(5, MaxTxBytes/2), []int{2, 2, 1}},
		"too large": {[]int{1, 2 * MaxTxBytes, 1, 1}, []int{1, 1, 2}},
	} {
		g := &TxBatcher{Running: MaxConcurrentTx}
		for _, size := range c.sizes {
			b := new(pgx.Batch)
			b.Queue("", int64(1), make([]byte, size))
			if g.Enter(newTxPart(t.Context(), b)) {
				t.Fatal("there is a place too many")
			}
		}
		all, got := g.Waiting, []int(nil)
		for at := 0; at < len(all); {
			g.Leave()
			lead := (<-all[at].signal).lead
			if !slices.Equal(lead, all[at:at+len(lead)]) {
				t.Fatalf("%s: another order", name)
			}
			at += len(lead)
			got = append(got, len(lead))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: transactions of %v, want %v", name, got, c.want)
		}
		g.Leave()
		if g.Running != MaxConcurrentTx-1 {
			t.Errorf("%s: %d run", name, g.Running)
		}
	}
}
