package outbox

// Whom a gathered transaction waits for.

import (
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
