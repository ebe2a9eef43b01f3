// Turns: the syncs of one share are committed in the order in which they began, so
// that a small one that was sent later does not get ahead of a large one.

package share

import "sync"

// turns is safe for concurrent use.
type turns struct {
	mu   sync.Mutex
	last map[string]chan struct{} // by share: closed when the last in line is done
}

// turn is a place in a line.
type turn struct {
	before <-chan struct{} // closed when it is its turn; nil is never waited for
	leave  func()          // gives it up; to be called once
}

// enter takes the last place in a share's line.
func (t *turns) enter(id string) turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = map[string]chan struct{}{}
	}
	before, done := t.last[id], make(chan struct{})
	t.last[id] = done
	leave := func() {
		// Who leaves early does not let the next one past those before.
		if before == nil {
			t.done(id, done)
			return
		}
		select {
		case <-before:
			t.done(id, done)
		default:
			go func() {
				<-before
				t.done(id, done)
			}()
		}
	}
	if before == nil {
		open := make(chan struct{})
		close(open)
		return turn{open, leave}
	}
	return turn{before, leave}
}

func (t *turns) done(id string, done chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[id] == done {
		delete(t.last, id)
	}
	close(done)
}
