package outbox

// Whom a gathered transaction waits for.

import (
	"slices"
	"testing"
	"time"
)

// TestCompanyIsWaitedFor: where all wrote together, the next transaction waits for all of them.
func TestCompanyIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := newBoxGroup(t, 4, 8, stallTimeout)
	if f.batcher.groupDelay != groupDelay {
		t.Errorf("company is waited for %v", f.batcher.groupDelay)
	}
	f.batcher.groupDelay = time.Minute
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
	g := &txBatcher{lastWrite: make(map[*postgresDB]int)}
	parts := make([]*txPart, 10)
	for i := range parts {
		parts[i] = &txPart{db: new(postgresDB)}
	}
	for i, c := range []struct{ parts, want, lately int }{
		{1, 1, 1}, {3, 3, 3}, {2, 3, 3}, {8, 8, 8}, {2, 4, 8}, {3, 6, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {2, 3, 3},
		{2, 3, 3}, {2, 2, 2},
	} {
		g.lastParts = 0 // so that it does not wait
		g.awaitPeers(parts[:c.parts])
		if got := g.expectedParts(); got != c.want || len(g.lastWrite) != c.lately {
			t.Errorf("%d: after %d, %d of %d are expected, want %d of %d", i, c.parts, got, len(g.lastWrite), c.want, c.lately)
		}
	}
	many := make([]*txPart, maxTxParts)
	for i := range many {
		many[i] = &txPart{db: new(postgresDB)}
	}
	g.lastParts = 0
	if g.awaitPeers(many); g.expectedParts() != maxTxParts {
		t.Errorf("%d are expected, which are more than a transaction takes", g.expectedParts())
	}
}

// TestCompanyThatIsTooLarge: what comes and cannot go along does not wait for who waited for it.
func TestCompanyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	a, b := &txPart{db: new(postgresDB)}, &txPart{db: new(postgresDB), bytes: 2 * maxTxBytes}
	g := &txBatcher{running: 1, lastParts: 2, groupDelay: time.Minute, lastWrite: map[*postgresDB]int{a.db: 0, b.db: 0}}
	end := make(chan []*txPart)
	go func() { end <- g.awaitPeers([]*txPart{a}) }()
	eventually(t, "it waits for company", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.arrived != nil
	})
	if g.enter(b) {
		t.Fatal("it has a place where it is waited for")
	}
	if w := <-b.signal; !slices.Equal(w.lead, []*txPart{b}) {
		t.Errorf("it is told %+v", w)
	}
	if parts := <-end; !slices.Equal(parts, []*txPart{a}) || g.running != 2 || g.arrived != nil {
		t.Errorf("%d go together, %d run", len(parts), g.running)
	}
}
