// Package writequeue commits the syncs of one share in the order in which they began, so that
// a small one sent later does not overtake a large one.
package writequeue

import (
	"context"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// Queue queues the syncs of each share. The zero Queue is ready, and safe for concurrent use.
type Queue struct {
	mu    sync.Mutex
	tails map[string]chan struct{} // by share: closed when the last in the queue is done
}

// Ticket is a position in a queue.
type Ticket struct {
	Ready <-chan struct{} // closed when it is its turn; nil is never waited for
	Leave func()          // leaves the queue; must be called once
}

// Wait waits at most limit until it is the ticket's turn: for the syncs that began earlier, one of which may still be sending its body. The
// error is Overloaded, or the context's.
func (t Ticket) Wait(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-t.Ready:
		return nil
	case <-ctx.Done():
		return fault.ContextError(context.Cause(ctx), nil)
	case <-timer.C:
		return fault.Overloaded.With("earlier syncs of this share are not done yet: try again later")
	}
}

// Join appends to a share's queue.
func (t *Queue) Join(id string) Ticket {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tails == nil {
		t.tails = map[string]chan struct{}{}
	}
	before, done := t.tails[id], make(chan struct{})
	t.tails[id] = done
	leave := func() {
		// Leaving early does not let the next one overtake earlier ones.
		if before == nil {
			t.finish(id, done)
			return
		}
		select {
		case <-before:
			t.finish(id, done)
		default:
			go func() {
				<-before
				t.finish(id, done)
			}()
		}
	}
	if before == nil {
		open := make(chan struct{})
		close(open)
		return Ticket{open, leave}
	}
	return Ticket{before, leave}
}

func (t *Queue) finish(id string, done chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tails[id] == done {
		delete(t.tails, id)
	}
	close(done)
}
