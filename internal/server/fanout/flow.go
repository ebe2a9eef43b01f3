// The flow to one connection: what is in flight to its subscriptions and snapshots together, and
// whose turn it is when there is no room.

package fanout

import (
	"context"
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/internal/server/admission"
)

// Flow counts the bytes in flight to the subscriptions of one connection, so that their
// windows together stay within its send queue. It is safe for concurrent use.
type Flow struct {
	address     string                 // the remote address, for limits
	done        func() <-chan struct{} // what it returns is closed when the connection has ended
	snapshotSem chan struct{}          // one token for each snapshot that has a slot or waits for one
	maxInFlight int                    // bytes
	maxSubs     int                    // subscriptions
	limitHits   *admission.LimitHits

	mu       sync.Mutex
	inFlight int
	subs     int
	noSubs   chan struct{} // if not nil, closed when subs is 0
	waiters  []*waiter     // found no room; the first may have been woken, and then has its turn
}

// FlowConfig configures the flow to one connection.
type FlowConfig struct {
	Address       string                 // that the connection's limits count by
	Done          func() <-chan struct{} // what it returns is closed when the connection has ended
	InFlight      int                    // bytes
	Subscriptions int                    // at once; beyond: overloaded
	Snapshots     int                    // with a slot, or waiting for one
	LimitHits     *admission.LimitHits
}

// NewFlow returns the flow of a connection that begins.
func NewFlow(cfg FlowConfig) *Flow {
	return &Flow{address: cfg.Address, done: cfg.Done, snapshotSem: make(chan struct{}, max(cfg.Snapshots, 1)),
		maxInFlight: cfg.InFlight, maxSubs: cfg.Subscriptions, limitHits: cfg.LimitHits}
}

// waiter is a sender on a connection. It is guarded by the connection's lock.
type waiter struct {
	bytes int    // that found no room
	wake  func() // if not nil, it waits for its turn
}

// Load returns the bytes in flight, and how many senders wait for room.
func (l *Flow) Load() (inFlight, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight, len(l.waiters)
}

// hasRoom reports whether that many bytes may be put in flight. One delivery may always be,
// however large it is. mu is held.
func (l *Flow) hasRoom(bytes int) bool {
	return l.inFlight == 0 || l.inFlight+bytes <= l.maxInFlight
}

// reserve puts bytes in flight if there is room and no other waiter is before w. Otherwise w is
// queued, since a large delivery would starve among small ones, and wake is called once, when
// its turn has come. w may then reserve any number of times, until it calls endTurn.
func (l *Flow) reserve(bytes int, w *waiter, wake func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (len(l.waiters) == 0 || l.waiters[0] == w) && l.hasRoom(bytes) {
		l.inFlight += bytes
		return true
	}
	if w.bytes = bytes; w.wake == nil {
		w.wake = wake
		l.waiters = append(withoutWaiter(l.waiters, w), w)
	}
	return false
}

// isWaiting reports whether w found no room, and will be woken.
func (l *Flow) isWaiting(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.wake != nil
}

// isTurn reports whether w has been woken and has its turn.
func (l *Flow) isTurn(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.wake == nil && len(l.waiters) > 0 && l.waiters[0] == w
}

// endTurn ends the turn of w, used or not. It returns the function that wakes the next waiter,
// to be called without locks; so do release and releaseAll.
func (l *Flow) endTurn(w *waiter) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.wake == nil {
		l.waiters = withoutWaiter(l.waiters, w)
	}
	return l.wakeNext()
}

// release returns bytes that are no longer in flight.
func (l *Flow) release(bytes int) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight -= bytes
	return l.wakeNext()
}

// releaseAll returns the bytes of w, which sends nothing more, and dequeues it.
func (l *Flow) releaseAll(w *waiter, bytes int) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight -= bytes
	w.wake, l.waiters = nil, withoutWaiter(l.waiters, w)
	return l.wakeNext()
}

// wakeNext gives the first waiter its turn if there is room for its bytes. mu is held.
func (l *Flow) wakeNext() (wake func()) {
	if len(l.waiters) == 0 || l.waiters[0].wake == nil || !l.hasRoom(l.waiters[0].bytes) {
		return func() {}
	}
	wake, l.waiters[0].wake = l.waiters[0].wake, nil
	return wake
}

// withoutWaiter returns line without w.
func withoutWaiter(line []*waiter, w *waiter) []*waiter {
	return slices.DeleteFunc(line, func(other *waiter) bool { return other == w })
}

// addSub counts a subscription; it returns false at the limit.
func (l *Flow) addSub() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs >= l.maxSubs {
		return false
	}
	l.subs++
	return true
}

func (l *Flow) removeSub() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs--; l.subs == 0 && l.noSubs != nil {
		close(l.noSubs)
		l.noSubs = nil
	}
}

// WaitNoSubs waits until every subscription has been ended, or ctx ends.
func (l *Flow) WaitNoSubs(ctx context.Context) {
	l.mu.Lock()
	if l.subs == 0 {
		l.mu.Unlock()
		return
	}
	if l.noSubs == nil {
		l.noSubs = make(chan struct{})
	}
	alone := l.noSubs
	l.mu.Unlock()
	select {
	case <-alone:
	case <-ctx.Done():
	}
}
