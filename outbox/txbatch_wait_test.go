package outbox

// Whom a gathered transaction waits for.

import (
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
)

// TestCompanyIsWaitedFor: where all wrote together, the next transaction waits for all of them.
func TestCompanyIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := newBoxGroup(t, 4, 8, postgres.StallTimeout)
	if f.batcher.GroupDelay != postgres.GroupDelay {
		t.Errorf("company is waited for %v", f.batcher.GroupDelay)
	}
	f.batcher.GroupDelay = time.Minute
	for _, end := range f.together(t, f.batches()) {
		if err := result(t, end); err != nil {
			t.Fatal(err)
		}
	}
	next, ends := f.batches(), []chan error(nil)
	for i := range f.boxes {
		if i > 0 { // the first is in its place, and those after it wait
			eventually(t, "it waits", func() bool { return f.running() == 1 && f.waiting() == i-1 })
		}
		ends = append(ends, f.commit(t, i, next[i]))
	}
	tx := ""
	for i, end := range ends {
		if err := result(t, end); err != nil {
			t.Fatal(err)
		}
		rows := f.stored(t, i)
		if last := rows[len(rows)-1]; last.batch != next[i].ID || i > 0 && last.tx != tx {
			t.Errorf("box %d: %+v, want batch %s in transaction %s", i, last, next[i].ID, tx)
		} else {
			tx = last.tx
		}
	}
}

// TestExpectedCompany: twice as many as there were, of those that wrote lately; and nobody for who wrote alone.
func TestExpectedCompany(t *testing.T) {
	t.Parallel()
	g := &postgres.TxBatcher{LastWrite: make(map[*postgres.DB]int)}
	parts := make([]*postgres.TxPart, 10)
	for i := range parts {
		parts[i] = &postgres.TxPart{DB: new(postgres.DB)}
	}
	for i, c := range []struct{ parts, want, lately int }{
		{1, 1, 1}, {3, 3, 3}, {2, 3, 3}, {8, 8, 8}, {2, 4, 8}, {3, 6, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {2, 3, 3},
		{2, 3, 3}, {2, 2, 2},
	} {
		g.LastParts = 0 // so that it does not wait
		g.AwaitPeers(parts[:c.parts])
		if got := g.ExpectedParts(); got != c.want || len(g.LastWrite) != c.lately {
			t.Errorf("%d: after %d, %d of %d are expected, want %d of %d", i, c.parts, got, len(g.LastWrite), c.want, c.lately)
		}
	}
	many := make([]*postgres.TxPart, postgres.MaxTxParts)
	for i := range many {
		many[i] = &postgres.TxPart{DB: new(postgres.DB)}
	}
	g.LastParts = 0
	if g.AwaitPeers(many); g.ExpectedParts() != postgres.MaxTxParts {
		t.Errorf("%d are expected, which are more than a transaction takes", g.ExpectedParts())
	}
}

// TestCompanyThatIsTooLarge: what comes and cannot go along does not wait for who waited for it.
func TestCompanyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	a, b := &postgres.TxPart{DB: new(postgres.DB)}, &postgres.TxPart{DB: new(postgres.DB), Bytes: 2 * postgres.MaxTxBytes}
	g := &postgres.TxBatcher{Running: 1, LastParts: 2, GroupDelay: time.Minute, LastWrite: map[*postgres.DB]int{a.DB: 0, b.DB: 0}}
	end := make(chan []*postgres.TxPart)
	go func() { end <- g.AwaitPeers([]*postgres.TxPart{a}) }()
	eventually(t, "it waits for company", func() bool {
		g.Mu.Lock()
		defer g.Mu.Unlock()
		return g.Arrived != nil
	})
	if g.Enter(b) {
		t.Fatal("it has a place where it is waited for")
	}
	if w := <-b.Signal; !slices.Equal(w.Lead, []*postgres.TxPart{b}) {
		t.Errorf("it is told %+v", w)
	}
	if parts := <-end; !slices.Equal(parts, []*postgres.TxPart{a}) || g.Running != 2 || g.Arrived != nil {
		t.Errorf("%d go together, %d run", len(parts), g.Running)
	}
}
