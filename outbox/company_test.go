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
	f := newFlock(t, 4, 8, gatherPause)
	if f.gather.moment != gatherMoment {
		t.Errorf("company is waited for %v", f.gather.moment)
	}
	f.gather.moment = time.Minute
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
	g := &gatherer{wrote: make(map[*postgresDB]int)}
	parts := make([]*part, 10)
	for i := range parts {
		parts[i] = &part{of: new(postgresDB)}
	}
	for i, c := range []struct{ parts, want, lately int }{
		{1, 1, 1}, {3, 3, 3}, {2, 3, 3}, {8, 8, 8}, {2, 4, 8}, {3, 6, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {1, 1, 8}, {2, 3, 3},
		{2, 3, 3}, {2, 2, 2},
	} {
		g.last = 0 // so that it does not wait
		g.company(parts[:c.parts])
		if got := g.expected(); got != c.want || len(g.wrote) != c.lately {
			t.Errorf("%d: after %d, %d of %d are expected, want %d of %d", i, c.parts, got, len(g.wrote), c.want, c.lately)
		}
	}
	many := make([]*part, gatherParts)
	for i := range many {
		many[i] = &part{of: new(postgresDB)}
	}
	g.last = 0
	if g.company(many); g.expected() != gatherParts {
		t.Errorf("%d are expected, which are more than a transaction takes", g.expected())
	}
}

// TestCompanyThatIsTooLarge: what comes and cannot go along does not wait for who waited for it.
func TestCompanyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	a, b := &part{of: new(postgresDB)}, &part{of: new(postgresDB), bytes: 2 * gatherBytes}
	g := &gatherer{running: 1, last: 2, moment: time.Minute, wrote: map[*postgresDB]int{a.of: 0, b.of: 0}}
	end := make(chan []*part)
	go func() { end <- g.company([]*part{a}) }()
	eventually(t, "it waits for company", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.come != nil
	})
	if g.enter(b) {
		t.Fatal("it has a place where it is waited for")
	}
	if w := <-b.word; !slices.Equal(w.lead, []*part{b}) {
		t.Errorf("it is told %+v", w)
	}
	if parts := <-end; !slices.Equal(parts, []*part{a}) || g.running != 2 || g.come != nil {
		t.Errorf("%d go together, %d run", len(parts), g.running)
	}
}
