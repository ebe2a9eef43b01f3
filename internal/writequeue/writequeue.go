// Package writequeue commits the syncs of one share in the order in which they began, so that
// a small one sent later does not overtake a large one.
package writequeue

import "sync"

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

// Len returns how many shares have a queue.
func (t *Queue) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.tails)
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
