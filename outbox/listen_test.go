package outbox

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// TestListenWhileNewsCome begins to listen again and again under a hail of
// notifications: whoever begins is never kept from hearing, or from ending.
func TestListenWhileNewsCome(t *testing.T) {
	t.Parallel()
	pool := new(pgxpool.Pool) // only a key
	l := &listener{pool: pool, stop: func() {}, ended: make(chan struct{}), waits: map[*attention]struct{}{{outbox: "another"}: {}}}
	close(l.ended)
	listeners.Lock()
	if listeners.byPool == nil {
		listeners.byPool = make(map[*pgxpool.Pool]*listener)
	}
	listeners.byPool[pool] = l
	listeners.Unlock()
	t.Cleanup(func() {
		listeners.Lock()
		delete(listeners.byPool, pool)
		listeners.Unlock()
	})
	hail, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for hail.Err() == nil {
			l.tell("box")
		}
	}()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 5_000 {
			ctx, cancel := context.WithCancel(context.Background())
			listen(ctx, pool, "box", time.Hour, cancel, func(int64) {})
		}
	}()
	select {
	case <-over:
	case <-limited(t).Done():
		t.Error("it listens to nothing and does not end")
	}
	stop()
	<-stopped
}
