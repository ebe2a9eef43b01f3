// Places for snapshots. Few are sent at once, since each keeps a read of the database
// open for as long as its subscriber takes. So a connection has at most half of them,
// and an address leaves one to all others. Who finds none waits in line, for a while.

package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/gate"
)

// places is safe for concurrent use.
type places struct {
	gate *gate.Gate
	wait time.Duration // the longest
	met  *boundHits

	mu   sync.Mutex
	line []*waiting // of a connection no more than may have places
}

// waiting is one who waits for a place.
type waiting struct {
	address string
	got     chan struct{} // closed when it has one
}

func newPlaces(n int, wait time.Duration, met *boundHits) *places {
	return &places{gate: gate.New(n, max(n-1, 1)), wait: wait, met: met}
}

// take waits for a place for a snapshot over l; leave gives it back. It gives up when
// ctx or the connection ends, and after too long (Overloaded).
func (p *places) take(ctx context.Context, l *link) *fault.Error {
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	given := func(got <-chan struct{}, own chan<- struct{}) *fault.Error {
		select {
		case <-got:
			return nil
		case own <- struct{}{}:
			return nil
		case <-ctx.Done():
			return fault.GivenUp(context.Cause(ctx), nil)
		case <-l.from.Done():
			return fault.GivenUp(context.Canceled, nil)
		case <-timer.C:
			p.met.add(boundSnapshots)
			return fault.Overloaded.With("too many snapshots are being sent now: try again later")
		}
	}
	if refused := given(nil, l.shot); refused != nil {
		return refused
	}
	w := p.enter(l.address)
	refused := given(w.got, nil)
	if refused != nil && p.forget(w) {
		<-l.shot
		return refused
	}
	return nil // also where it was given one just now: what follows finds out what has ended
}

// enter takes a place, or one in line.
func (p *places) enter(address string) *waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &waiting{address: address, got: make(chan struct{})}
	if !p.give(w) {
		p.line = append(p.line, w)
	}
	return w
}

// give gives w a place if it may have one. mu is held.
func (p *places) give(w *waiting) bool {
	if p.gate.Enter(w.address) != gate.None {
		return false
	}
	close(w.got)
	return true
}

// forget takes w out of the line; false if it is not there, since it has a place.
func (p *places) forget(w *waiting) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.line, w)
	if i >= 0 {
		p.line = slices.Delete(p.line, i, i+1)
	}
	return i >= 0
}

// leave gives a place back, to the first in line who may have it.
func (p *places) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate.Leave(l.address)
	if i := slices.IndexFunc(p.line, p.give); i >= 0 {
		p.line = slices.Delete(p.line, i, i+1)
	}
	<-l.shot
}
