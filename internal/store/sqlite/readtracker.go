// The store's own reads, and periods without any.

package sqlite

import (
	"context"
	"sync"
	"time"
)

// readTracker counts the running reads. It is safe for concurrent use.
type readTracker struct {
	mu      sync.Mutex
	current *generation
	stalled *generation   // the reads that a drain has waited for in vain
	blocked chan struct{} // nil, or closed when waiting reads may begin
}

// generation counts the reads that began between two drains. readTracker.mu guards it.
type generation struct {
	n     int
	ended chan struct{} // nil, or closed when all have ended
}

func newReadTracker() *readTracker {
	return &readTracker{current: &generation{}, stalled: &generation{}}
}

// begin registers a read, after waiting for a drain to end. The caller calls end with the result.
// The error is that of ctx.
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

// drain holds back new reads and waits for the running ones. If it returns true there are no reads
// until resume. It gives up after wait, or when stop is closed, and is then not tried again before
// the reads it has waited for have ended: a long read delays others only once.
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
