// Turns: the syncs of one share are committed in the order in which they began, so
// that a small one that was sent later does not get ahead of a large one.

package share

import "sync"

// writeQueue is safe for concurrent use.
type writeQueue struct {
	mu    sync.Mutex
	tails map[string]chan struct{} // by share: closed when the last in line is done
}

// ticket is a place in a line.
type ticket struct {
	ready <-chan struct{} // closed when it is its turn; nil is never waited for
	leave func()          // gives it up; to be called once
}

// join takes the last place in a share's line.
func (t *writeQueue) join(id string) ticket {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tails == nil {
		t.tails = map[string]chan struct{}{}
	}
	before, done := t.tails[id], make(chan struct{})
	t.tails[id] = done
	leave := func() {
		// Who leaves early does not let the next one past those before.
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
