// Places for snapshots. Few are sent at once, since each keeps a read of the database
// open for as long as its subscriber takes. So a connection has at most half of them,
// and an address, and a ref, leave one to all others. Who finds none waits in line,
// for a while, and who has fewest comes first. A place is for sending: while others
// wait, who takes less than a least rate has to go.

package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/gate"
)

const (
	// leastRate is how many bytes a second a snapshot's subscriber has to take while
	// others wait for its place, all in all and after slowGrace.
	leastRate = 16 << 10
	slowGrace = 2 * time.Second
	// slowPiece is how much of a piece that is under way counts as taken: it is told
	// only when it has been taken as a whole.
	slowPiece = 64 << 10
	// pressEvery is how often those who wait look for one that is slow.
	pressEvery = time.Second
)

// places is safe for concurrent use.
type places struct {
	byAddress, byRef *gate.Gate
	wait             time.Duration // the longest
	rate             int           // leastRate, for tests to change before any is taken
	met              *boundHits

	mu   sync.Mutex
	held []*shotPlace
	line []*shotPlace // of a connection no more than may have places
}

// shotPlace is one snapshot's, or its in line.
type shotPlace struct {
	link *link
	ref  string
	got  chan struct{} // closed when it is one
	slow func()        // ends the snapshot

	// places.mu guards these.
	since time.Time
	taken int   // bytes
	sent  []int // that are not taken, in order
	ended bool
}

func newPlaces(n int, wait time.Duration, met *boundHits) *places {
	most := max(n-1, 1)
	return &places{byAddress: gate.New(n, most), byRef: gate.New(n, most), wait: wait, rate: leastRate, met: met}
}

// take waits for a place for a snapshot under a ref over l; leave gives it back. It
// gives up when ctx or the connection ends, and after too long (Overloaded). slow is
// called, if it is, when the place is to be left since the snapshot is taken too
// slowly.
func (p *places) take(ctx context.Context, l *link, ref string, slow func()) (*shotPlace, *fault.Error) {
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	press := time.NewTicker(pressEvery)
	defer press.Stop()
	given := func(got <-chan struct{}, own chan<- struct{}) *fault.Error {
		for {
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
			case <-press.C:
				if got != nil {
					p.press()
				}
			}
		}
	}
	if refused := given(nil, l.shot); refused != nil {
		return nil, refused
	}
	w := p.enter(l, ref, slow)
	refused := given(w.got, nil)
	if refused != nil && p.forget(w) {
		<-l.shot
		return nil, refused
	}
	return w, nil // also where it was given one just now: what follows finds out what has ended
}

// enter takes a place, or one in line.
func (p *places) enter(l *link, ref string, slow func()) *shotPlace {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &shotPlace{link: l, ref: ref, slow: slow, got: make(chan struct{})}
	if !p.give(w) {
		p.line = append(p.line, w)
	}
	return w
}

// give gives w a place if it may have one. mu is held.
func (p *places) give(w *shotPlace) bool {
	if p.byAddress.Enter(w.link.address) != gate.None {
		return false
	}
	if p.byRef.Enter(w.ref) != gate.None {
		p.byAddress.Leave(w.link.address)
		return false
	}
	w.since = time.Now()
	p.held = append(p.held, w)
	close(w.got)
	return true
}

// forget takes w out of the line; false if it is not there, since it has a place.
func (p *places) forget(w *shotPlace) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.line, w)
	if i >= 0 {
		p.line = slices.Delete(p.line, i, i+1)
	}
	return i >= 0
}

// leave gives a place back, to who may have it: whose address and ref have fewest,
// and of those the first in line.
func (p *places) leave(w *shotPlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byAddress.Leave(w.link.address)
	p.byRef.Leave(w.ref)
	p.held = slices.DeleteFunc(p.held, func(h *shotPlace) bool { return h == w })
	next := slices.Clone(p.line)
	slices.SortStableFunc(next, func(a, b *shotPlace) int { return p.has(a) - p.has(b) })
	if i := slices.IndexFunc(next, p.give); i >= 0 {
		p.line = slices.DeleteFunc(p.line, func(l *shotPlace) bool { return l == next[i] })
	}
	<-w.link.shot
}

// has is how many places w's address has, and its ref. mu is held.
func (p *places) has(w *shotPlace) (n int) {
	for _, h := range p.held {
		if h.link.address == w.link.address {
			n++
		}
		if h.ref == w.ref {
			n++
		}
	}
	return n
}

// press ends the slowest of those that take less than they have to, for one who
// waits.
func (p *places) press() {
	p.mu.Lock()
	var slowest *shotPlace
	most := time.Duration(0)
	for _, h := range p.held {
		if over := h.over(p.rate); !h.ended && over > most {
			slowest, most = h, over
		}
	}
	if slowest != nil {
		slowest.ended = true
	}
	p.mu.Unlock()
	if slowest != nil {
		slowest.slow()
	}
}

// over is by how much it has taken longer than it may at a least rate. mu is held.
func (h *shotPlace) over(rate int) time.Duration {
	taken := h.taken
	if len(h.sent) > 0 {
		taken += min(h.sent[0], slowPiece)
	}
	return time.Since(h.since) - slowGrace - time.Duration(float64(taken)/float64(rate)*float64(time.Second))
}

// sends notes that so many bytes are sent; took that those sent first were taken.
func (p *places) sends(h *shotPlace, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.sent = append(h.sent, bytes)
}

func (p *places) took(h *shotPlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(h.sent) > 0 {
		h.taken += h.sent[0]
		h.sent = h.sent[1:]
	}
}
