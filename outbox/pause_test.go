package outbox

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// awayDB is a database that is away once it is told so, and knows when it was asked to write.
type awayDB struct {
	database
	mu    sync.Mutex
	away  bool
	asked []time.Time
}

func (d *awayDB) write(ctx context.Context, f func(querier) error) (bool, error) {
	d.mu.Lock()
	away := d.away
	if away {
		d.asked = append(d.asked, time.Now())
	}
	d.mu.Unlock()
	if away {
		return false, fault.Unavailable.With("it is away")
	}
	return d.database.write(ctx, f)
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
		db := &awayDB{database: b.db}
		b.db = db
		db.leave()
		var ended sync.WaitGroup
		for range lazyJobs + 1 {
			ended.Add(1)
			b.w.submit(&job{lazy: true, run: func(context.Context, querier) error { return nil }, done: func(err error, _ bool) {
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
		if n, least := db.writes(); least < lazyPause*9/10 {
			t.Errorf("%d tries, two of them %v apart", n, least)
		}
	})
}
