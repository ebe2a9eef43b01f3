// The write queue: the syncs of one share are committed in the order in which they began, so that
// a small one sent later does not overtake a large one.

package share

import "sync"

// writeQueue queues the syncs of each share. It is safe for concurrent use.
type writeQueue struct {
	mu    sync.Mutex
	tails map[string]chan struct{} // by share: closed when the last in the queue is done
}

// ticket is a position in a queue.
type ticket struct {
	ready <-chan struct{} // closed when it is its turn; nil is never waited for
	leave func()          // leaves the queue; must be called once
}

// join appends to a share's queue.
func (t *writeQueue) join(id string) ticket {
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
		return ticket{open, leave}
	}
	return ticket{before, leave}
}

func (t *writeQueue) finish(id string, done chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tails[id] == done {
		delete(t.tails, id)
	}
	close(done)
}
