// Slots for snapshots. Few snapshots are sent at once, since each keeps a read of the database
// open for as long as its subscriber takes. One connection has at most half of the slots, and
// one address, or one ref, leaves at least one to all others. Further snapshots wait, for a
// bounded time, and a free slot goes to the waiter whose address and ref have fewest. While
// others wait, a snapshot below a minimum rate is evicted.

package fanout

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/connlimit"
	"github.com/mooring-rpc/mooring/internal/server/admission"
)

const (
	// minSnapshotRate is the average rate, in bytes a second, that a snapshot's subscriber has
	// to ack after evictGrace, while others wait for its slot.
	minSnapshotRate = 16 << 10
	evictGrace      = 2 * time.Second
	// partialAckBytes is how much of a piece in flight counts as acked: an ack comes only for
	// a whole piece.
	partialAckBytes = 64 << 10
	// evictInterval is the interval at which waiters check for a slow snapshot.
	evictInterval = time.Second
)

// snapshotSlots grants the slots. It is safe for concurrent use.
type snapshotSlots struct {
	byAddress, byRef *connlimit.Limiter
	maxWait          time.Duration // longest wait for a slot
	limitHits        *admission.LimitHits

	mu      sync.Mutex
	granted []*snapshotSlot
	waiting []*snapshotSlot // of one connection at most as many as it may have slots
}

// snapshotSlot is the slot of one snapshot, or its request for one.
type snapshotSlot struct {
	conn    *Flow
	ref     string
	granted chan struct{} // closed when the slot is granted
	evict   func()        // ends the snapshot

	// snapshotSlots.mu guards these.
	since      time.Time
	ackedBytes int
	inFlight   []int // sizes of the pieces not acked, in order
	evicted    bool
}

func newSnapshotSlots(n int, wait time.Duration, hit *admission.LimitHits) *snapshotSlots {
	limit := max(n-1, 1)
	return &snapshotSlots{byAddress: connlimit.New(n, limit), byRef: connlimit.New(n, limit), maxWait: wait, limitHits: hit}
}

// acquire waits for a slot for a snapshot under ref over l; release returns it. It gives up when
// ctx or the connection ends, and with Overloaded after maxWait. slow is called, at most once,
// when the snapshot is evicted for its rate.
func (p *snapshotSlots) acquire(ctx context.Context, l *Flow, ref string, slow func()) (*snapshotSlot, *fault.Error) {
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
			case <-l.done():
				return fault.ContextError(context.Canceled, nil)
			case <-timer.C:
				p.limitHits.Add(admission.LimitSnapshots)
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
	return w, nil // also if it was granted just now: the next step finds out what has ended
}

// enqueue takes a slot, or queues for one.
func (p *snapshotSlots) enqueue(l *Flow, ref string, slow func()) *snapshotSlot {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &snapshotSlot{conn: l, ref: ref, evict: slow, granted: make(chan struct{})}
	if !p.tryGrant(w) {
		p.waiting = append(p.waiting, w)
	}
	return w
}

// tryGrant grants w a slot if the limits allow it. mu is held.
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

// abandon removes w from waiting; it returns false if w has a slot.
func (p *snapshotSlots) abandon(w *snapshotSlot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	return i >= 0
}

// release returns a slot and grants it to the waiter whose address and ref have fewest slots,
// the first of those in order of arrival.
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

// slotsOf returns the number of slots of w's address plus those of its ref. mu is held.
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

// evictSlowest ends the slowest of the snapshots below the minimum rate, for one that waits.
func (p *snapshotSlots) evictSlowest() {
	p.mu.Lock()
	var slowest *snapshotSlot
	most := time.Duration(0)
	for _, h := range p.granted {
		if over := h.overdue(); !h.evicted && over > most {
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

// overdue is the time by which h has exceeded the minimum rate. mu is held.
func (h *snapshotSlot) overdue() time.Duration {
	taken := h.ackedBytes
	if len(h.inFlight) > 0 {
		taken += min(h.inFlight[0], partialAckBytes)
	}
	return time.Since(h.since) - evictGrace - time.Duration(float64(taken)/float64(minSnapshotRate)*float64(time.Second))
}

// sent records that a piece of that many bytes was sent; acked, that the first one sent was acked.
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
