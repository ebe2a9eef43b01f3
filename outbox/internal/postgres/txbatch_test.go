package postgres

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestExpectedCompany: twice as many as there were, of those that wrote lately; and nobody for who wrote alone.
func TestExpectedCompany(t *testing.T) {
	t.Parallel()
	g := &TxBatcher{LastWrite: make(map[*DB]int)}
	parts := make([]*TxPart, 10)
	for i := range parts {
		parts[i] = &TxPart{DB: new(DB)}
	}
	for i, c := range []struct{ parts, want, lately int }{
		{1, 1, 1}, {3, 3, 3}, {2, 3, 3}, {8, 8, 8}, {2, 4, 8}, {3, 6, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {2, 3, 3},
		{2, 3, 3}, {2, 2, 2},
	} {
		g.lastParts = 0 // so that it does not wait
		g.awaitPeers(parts[:c.parts])
		if got := g.expectedParts(); got != c.want || len(g.LastWrite) != c.lately {
			t.Errorf("%d: after %d, %d of %d are expected, want %d of %d", i, c.parts, got, len(g.LastWrite), c.want, c.lately)
		}
	}
	many := make([]*TxPart, MaxTxParts)
	for i := range many {
		many[i] = &TxPart{DB: new(DB)}
	}
	g.lastParts = 0
	if g.awaitPeers(many); g.expectedParts() != MaxTxParts {
		t.Errorf("%d are expected, which are more than a transaction takes", g.expectedParts())
	}
}

// TestCompanyThatIsTooLarge: what comes and cannot go along does not wait for who waited for it.
func TestCompanyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	a, b := &TxPart{DB: new(DB)}, &TxPart{DB: new(DB), Bytes: 2 * MaxTxBytes}
	g := &TxBatcher{Running: 1, lastParts: 2, GroupDelay: time.Minute, LastWrite: map[*DB]int{a.DB: 0, b.DB: 0}}
	end := make(chan []*TxPart)
	go func() { end <- g.awaitPeers([]*TxPart{a}) }()
	for waits := false; !waits; runtime.Gosched() {
		g.Mu.Lock()
		waits = g.arrived != nil
		g.Mu.Unlock()
	}
	if g.Enter(b) {
		t.Fatal("it has a place where it is waited for")
	}
	if w := <-b.signal; !slices.Equal(w.lead, []*TxPart{b}) {
		t.Errorf("it is told %+v", w)
	}
	if parts := <-end; !slices.Equal(parts, []*TxPart{a}) || g.Running != 2 || g.arrived != nil {
		t.Errorf("%d go together, %d run", len(parts), g.Running)
	}
}

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
			if g.Enter(newTxPart(t.Context(), nil, b)) {
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
