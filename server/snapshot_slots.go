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
	"github.com/mooring-rpc/mooring/internal/connlimit"
)

const (
	// minSnapshotRate is how many bytes a second a snapshot's subscriber has to take while
	// others wait for its place, all in all and after evictGrace.
	minSnapshotRate = 16 << 10
	evictGrace      = 2 * time.Second
	// partialAckBytes is how much of a piece that is under way counts as taken: it is told
	// only when it has been taken as a whole.
	partialAckBytes = 64 << 10
	// evictInterval is how often those who wait look for one that is slow.
	evictInterval = time.Second
)

// snapshotSlots is safe for concurrent use.
type snapshotSlots struct {
	byAddress, byRef *connlimit.Limiter
	maxWait          time.Duration // the longest
	minRate          int           // minSnapshotRate, for tests to change before any is taken
	limitHits        *limitHits

	mu      sync.Mutex
	granted []*snapshotSlot
	waiting []*snapshotSlot // of a connection no more than may have places
}

// snapshotSlot is one snapshot's, or its in line.
type snapshotSlot struct {
	conn    *connState
	ref     string
	granted chan struct{} // closed when it is one
	evict   func()        // ends the snapshot

	// places.mu guards these.
	since      time.Time
	ackedBytes int   // bytes
	inFlight   []int // that are not taken, in order
	evicted    bool
}

func newSnapshotSlots(n int, wait time.Duration, met *limitHits) *snapshotSlots {
	most := max(n-1, 1)
	return &snapshotSlots{byAddress: connlimit.New(n, most), byRef: connlimit.New(n, most), maxWait: wait, minRate: minSnapshotRate, limitHits: met}
}

// acquire waits for a place for a snapshot under a ref over l; leave gives it back. It
// gives up when ctx or the connection ends, and after too long (Overloaded). slow is
// called, if it is, when the place is to be left since the snapshot is taken too
// slowly.
func (p *snapshotSlots) acquire(ctx context.Context, l *connState, ref string, slow func()) (*snapshotSlot, *fault.Error) {
	timer := time.NewTimer(p.maxWait)
	defer timer.Stop()
	press := time.NewTicker(evictInterval)
	defer press.Stop()
	given := func(got <-chan struct{}, own chan<- struct{}) *fault.Error {
		for {
			select {
			case <-got:
				return nil
			case own <- struct{}{}:
				return nil
			case <-ctx.Done():
				return fault.ContextError(context.Cause(ctx), nil)
			case <-l.peerConn.Done():
				return fault.ContextError(context.Canceled, nil)
			case <-timer.C:
				p.limitHits.add(limitSnapshots)
				return fault.Overloaded.With("too many snapshots are being sent now: try again later")
			case <-press.C:
				if got != nil {
					p.evictSlowest()
				}
			}
		}
	}
	if refused := given(nil, l.snapshotSem); refused != nil {
		return nil, refused
	}
	w := p.enqueue(l, ref, slow)
	refused := given(w.granted, nil)
	if refused != nil && p.abandon(w) {
		<-l.snapshotSem
		return nil, refused
	}
	return w, nil // also where it was given one just now: what follows finds out what has ended
}

// enqueue takes a place, or one in line.
func (p *snapshotSlots) enqueue(l *connState, ref string, slow func()) *snapshotSlot {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &snapshotSlot{conn: l, ref: ref, evict: slow, granted: make(chan struct{})}
	if !p.tryGrant(w) {
		p.waiting = append(p.waiting, w)
	}
	return w
}

// tryGrant gives w a place if it may have one. mu is held.
func (p *snapshotSlots) tryGrant(w *snapshotSlot) bool {
	if p.byAddress.Acquire(w.conn.address) != connlimit.None {
		return false
	}
	if p.byRef.Acquire(w.ref) != connlimit.None {
		p.byAddress.Release(w.conn.address)
		return false
	}
	w.since = time.Now()
	p.granted = append(p.granted, w)
	close(w.granted)
	return true
}

// abandon takes w out of the line; false if it is not there, since it has a place.
func (p *snapshotSlots) abandon(w *snapshotSlot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	return i >= 0
}

// release gives a place back, to who may have it: whose address and ref have fewest,
// and of those the first in line.
func (p *snapshotSlots) release(w *snapshotSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byAddress.Release(w.conn.address)
	p.byRef.Release(w.ref)
	p.granted = slices.DeleteFunc(p.granted, func(h *snapshotSlot) bool { return h == w })
	next := slices.Clone(p.waiting)
	slices.SortStableFunc(next, func(a, b *snapshotSlot) int { return p.slotsOf(a) - p.slotsOf(b) })
	if i := slices.IndexFunc(next, p.tryGrant); i >= 0 {
		p.waiting = slices.DeleteFunc(p.waiting, func(l *snapshotSlot) bool { return l == next[i] })
	}
	<-w.conn.snapshotSem
}

// slotsOf is how many places w's address has, and its ref. mu is held.
func (p *snapshotSlots) slotsOf(w *snapshotSlot) (n int) {
	for _, h := range p.granted {
		if h.conn.address == w.conn.address {
			n++
		}
		if h.ref == w.ref {
			n++
		}
	}
	return n
}

// evictSlowest ends the slowest of those that take less than they have to, for one who
// waits.
func (p *snapshotSlots) evictSlowest() {
	p.mu.Lock()
	var slowest *snapshotSlot
	most := time.Duration(0)
	for _, h := range p.granted {
		if over := h.overdue(p.minRate); !h.evicted && over > most {
			slowest, most = h, over
		}
	}
	if slowest != nil {
		slowest.evicted = true
	}
	p.mu.Unlock()
	if slowest != nil {
		slowest.evict()
	}
}

// overdue is by how much it has taken longer than it may at a least rate. mu is held.
func (h *snapshotSlot) overdue(rate int) time.Duration {
	taken := h.ackedBytes
	if len(h.inFlight) > 0 {
		taken += min(h.inFlight[0], partialAckBytes)
	}
	return time.Since(h.since) - evictGrace - time.Duration(float64(taken)/float64(rate)*float64(time.Second))
}

// sent notes that so many bytes are sent; took that those sent first were taken.
func (p *snapshotSlots) sent(h *snapshotSlot, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.inFlight = append(h.inFlight, bytes)
}

func (p *snapshotSlots) acked(h *snapshotSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(h.inFlight) > 0 {
		h.ackedBytes += h.inFlight[0]
		h.inFlight = h.inFlight[1:]
	}
}
