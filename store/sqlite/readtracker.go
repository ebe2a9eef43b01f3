// The store's own reads, and a moment without them.

package sqlite

import (
	"context"
	"sync"
	"time"
)

// readTracker counts those that run. It is safe for concurrent use.
type readTracker struct {
	mu      sync.Mutex
	current *generation
	stalled *generation   // those that drain has waited for in vain
	blocked chan struct{} // nil, or closed when those that wait may begin
}

// generation is the reads that began between two drains. reads.mu guards it.
type generation struct {
	n     int
	ended chan struct{} // nil, or closed when none is left
}

func newReadTracker() *readTracker {
	return &readTracker{current: &generation{}, stalled: &generation{}}
}

// begin waits for a drain to be over. The read ends with end.
func (r *readTracker) begin(ctx context.Context) (*generation, error) {
	for {
		r.mu.Lock()
		held, g := r.blocked, r.current
		if held == nil {
			g.n++
		}
		r.mu.Unlock()
		if held == nil {
			return g, nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return nil, translate(ctx, ctx.Err())
		}
	}
}

func (r *readTracker) end(g *generation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.n--; g.n == 0 && g.ended != nil {
		close(g.ended)
		g.ended = nil
	}
}

// drain has reads that come wait, and waits for those that run. With true there are none
// until resume. It is given up after a time, or with stop, and then not tried again before
// all that it has waited for have ended: a read that takes long costs others little.
func (r *readTracker) drain(wait time.Duration, stop <-chan struct{}) bool {
	r.mu.Lock()
	g, ended := r.current, make(chan struct{})
	if r.stalled.n > 0 {
		r.mu.Unlock()
		return false
	}
	if g.n > 0 {
		g.ended = ended
	} else {
		close(ended)
	}
	r.blocked = make(chan struct{})
	r.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
	case <-stop:
	}
	r.mu.Lock()
	g.ended = nil
	r.stalled, r.current = g, &generation{}
	r.mu.Unlock()
	r.resume()
	return false
}

// resume ends a drain.
func (r *readTracker) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.blocked)
	r.blocked = nil
}
