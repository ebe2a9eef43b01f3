package outbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// awayDB is a database that is away once it is told so, and knows when it was asked to write.
type awayDB struct {
	sqlstore.Database
	mu    sync.Mutex
	away  bool
	asked []time.Time
}

func (d *awayDB) Write(ctx context.Context, f func(sqlstore.Querier) error) (bool, error) {
	d.mu.Lock()
	away := d.away
	if away {
		d.asked = append(d.asked, time.Now())
	}
	d.mu.Unlock()
	if away {
		return false, fault.Unavailable.With("it is away")
	}
	return d.Database.Write(ctx, f)
}

func (d *awayDB) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = true
}

// writes are how often it was asked, and the shortest time between two of them.
func (d *awayDB) writes() (n int, least time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	least = time.Hour
	for i := 1; i < len(d.asked); i++ {
		least = min(least, d.asked[i].Sub(d.asked[i-1]))
	}
	return len(d.asked), least
}

// TestOutcomesWaitForTheDatabase: what cannot be stored is tried again now and then, and not all the time, however much
// it is and also while the outbox is being closed.
func TestOutcomesWaitForTheDatabase(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		if b.w.RetryDelay != 200*time.Millisecond || b.w.Grace != 5*time.Second {
			t.Errorf("it rests for %v, and has %v to be closed", b.w.RetryDelay, b.w.Grace)
		}
		b.w.RetryDelay, b.w.Grace = 20*time.Millisecond, 200*time.Millisecond
		db := &awayDB{Database: b.db}
		useDB(b, db)
		db.leave()
		var ended sync.WaitGroup
		for range writer.MaxLazyJobs + 1 {
			ended.Add(1)
			b.w.Submit(&writer.Job{Lazy: true, Run: func(context.Context, sqlstore.Querier) error { return nil }, Done: func(err error, _ bool) {
				if err == nil {
					t.Error("it was stored where there is no database")
				}
				ended.Done()
			}})
		}
		eventually(t, "it is tried a few times", func() bool { n, _ := db.writes(); return n >= 3 })
		closed := make(chan error, 1)
		go func() { closed <- b.Close() }()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		ended.Wait()
		if n, least := db.writes(); least < b.w.RetryDelay*9/10 {
			t.Errorf("%d tries, two of them %v apart", n, least)
		}
	})
}

// TestAJobThatFailsHoldsUpItsStreamAlone: what can never be written is tried a few times and given up; meanwhile all else
// is written, but for what comes after it in its stream.
func TestAJobThatFailsHoldsUpItsStreamAlone(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		b.w.RetryDelay = 5 * time.Millisecond
		done := make(chan string, 8)
		tries := 0
		submit := func(name, stream string, err error) {
			b.w.Submit(&writer.Job{Lazy: true, Stream: stream, Run: func(context.Context, sqlstore.Querier) error {
				if err != nil {
					tries++
				}
				return err
			}, Done: func(got error, ambiguous bool) {
				if !errors.Is(got, err) || ambiguous {
					t.Errorf("%s ended with %v, %t", name, got, ambiguous)
				}
				done <- name
			}})
		}
		submit("A1", "A", errors.New("for good"))
		submit("A2", "A", nil)
		submit("B1", "B", nil)
		submit("none", "", nil)
		var order []string
		for range 4 {
			select {
			case name := <-done:
				order = append(order, name)
			case <-limited(t).Done():
				t.Fatalf("nothing is written after %v", order)
			}
		}
		slices.Sort(order[:2])
		if !slices.Equal(order, []string{"B1", "none", "A1", "A2"}) || tries < writer.MaxLazyTries {
			t.Errorf("written were %v, after %d tries", order, tries)
		}
	})
}
