// A subscription: what one subscriber has, may still be sent, and is allowed
// to see. Its fields are guarded by its fan-out's lock; who changes them is the
// fan-out's runner (session_fanout.go) and the returns of the sink.

package server

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/session"
)

// sink is where a subscription's events go. Its methods do not block and are called
// without locks held: events and state by one goroutine at a time, ended by any,
// perhaps while that one is about to call: what comes after the end is dropped.
type sink interface {
	// events sends consecutive events. done is called once, perhaps before
	// events returns: nil when the subscriber has taken them, or why it did not.
	events(events []*session.Event, done func(error))
	// ended lets the sink go. The subscriber is told why, unless why is nil: then
	// it knows. False says that it could not be told without waiting, and that
	// ended is to be called again.
	ended(why *fault.Error) bool
}

// subscription is one subscriber of one session.
type subscription struct {
	fanout *sessionFanout
	auth   *authority
	sink   sink
	actor  string     // of the ref, once it was read
	conn   *connState // the connection's share of what is under way
	waiter waiter     // for room in it
	window int        // bytes that may be under way

	windowMax   int // until window is this it doubles with each delivery that is taken
	maxDelivery int // bytes of a delivery, at most; 0: what the window says

	// onStart is called once, before anything is sent: nil, or the refusal
	// that ended the subscription before it began (ended is not called then).
	onStart func(*fault.Error)

	cursor     uint64            // the last event given to the sink
	head       session.Hash      // that event's hash in the chain; zero while it is not known
	resumeHash session.Hash      // what the subscriber says that it is, until that was compared; zero if it says nothing
	inFlight   int               // bytes given to the sink and not taken yet; 0 once finished
	authorized bool              // auth was found alive, at gen, and nothing has put that in doubt
	authGen    uint64            // the session's AuthGen at that look
	expires    int64             // of the ref; 0 never
	grant      *capability.Grant // found at that look: says what is hidden
	hashKey    session.HashKey   // read then: of the hashes that are shown

	generation     int                // raised when deliveries that are on their way are void
	queued         bool               // in its fan-out's ready list
	skipped        bool               // the last page that was read for it had nothing for it
	paused         bool               // its connection takes no more: left alone until rested
	inSnapshot     bool               // its snapshot is being sent: events wait
	cancelSnapshot context.CancelFunc // ends that; nil if none was asked for
	finished       bool               // out of the fan-out; nothing more is sent
}

// initialWindow is the window of a subscriber who has taken nothing yet, or was slow.
const initialWindow = 64 << 10

// hasRoom says whether a delivery of so many bytes may be under way as well. One
// delivery may always be, however large it is.
func (s *subscription) hasRoom(bytes int) bool {
	return s.inFlight == 0 || s.inFlight+bytes <= s.window
}

// deliveryBytes is the size of one delivery: a part of the window, so that the next is
// on its way while the last is being taken.
func (s *subscription) deliveryBytes() int {
	if chunk := max(s.window/4, 1); s.maxDelivery == 0 || chunk < s.maxDelivery {
		return chunk
	}
	return s.maxDelivery
}

// eventBytes is what an event costs on its way to a subscriber, about.
func eventBytes(e *session.Event) int { return len(e.Payload) + len(e.Key) + len(e.Actor) + 256 }

// delivery is one call of a sink.
type delivery struct {
	sub        *subscription
	generation int          // the subscription's, when it was taken
	after      uint64       // the cursor it goes on from
	head       session.Hash // the subscription's, there
	events     []*session.Event
	bytes      int
}

// hiddenEventBytes is what an event that is not shown counts for: the marks in place
// of many are few.
const hiddenEventBytes = 16

// nextDelivery cuts the next delivery for s from events, which are consecutive, as far
// as its window has room; ok is false if the event s needs is not among them or
// there is no room. The fan-out's lock is held.
func (s *subscription) nextDelivery(events []*session.Event) (d delivery, ok bool) {
	next := s.cursor + 1
	if len(events) == 0 || events[0].Cursor > next || events[len(events)-1].Cursor < next {
		return d, false
	}
	rest := events[next-events[0].Cursor:]
	n, bytes := 0, 0
	for _, e := range rest {
		size := eventBytes(e)
		if !session.InScope(s.grant, e.Key) {
			size = hiddenEventBytes
		}
		if n > 0 && (bytes+size > s.deliveryBytes() || !s.hasRoom(bytes+size)) {
			break
		}
		if n == 0 && !s.hasRoom(size) {
			return d, false
		}
		n, bytes = n+1, bytes+size
	}
	if !s.conn.reserve(bytes, &s.waiter, s.requeue) {
		return d, false
	}
	d = delivery{sub: s, generation: s.generation, after: s.cursor, head: s.head, events: session.VisibleEvents(s.grant, rest[:n:n], &s.hashKey), bytes: bytes}
	s.cursor, s.head = rest[n-1].Cursor, rest[n-1].Hash
	s.inFlight += bytes
	return d, true
}

// requeue puts s on its fan-out's ready list.
func (s *subscription) requeue() {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	s.fanout.wake(s)
}

// unpause is again for one whose connection may take more now.
func (s *subscription) unpause() {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	s.paused = false
	s.fanout.wake(s)
}

// takeOnStart gives what is to be told when s begins, once.
func (s *subscription) takeOnStart() func(*fault.Error) {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	started := s.onStart
	s.onStart = nil
	return started
}

// beginEvents lets the events go after the state that row is of, now that it has been sent.
func (s *subscription) beginEvents(row *session.Row) {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	s.inSnapshot, s.cursor, s.head = false, row.Cursor, row.Head
	s.fanout.wake(s)
}

// end ends s, telling why (nil: the subscriber knows). Further calls do nothing.
func (s *subscription) end(why *fault.Error) { s.endAfter(0, why) }

// endAfter is over, but for who has not been given the log up to cursor: it was busy.
func (s *subscription) endAfter(cursor uint64, why *fault.Error) {
	if s.fanout == nil {
		return // it was never in one
	}
	s.fanout.mu.Lock()
	var tell func()
	if !s.finished && s.cursor >= cursor {
		tell = s.fanout.finish(s, why)
	}
	s.fanout.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// nextDeliveries takes as many deliveries as there is room for.
func (s *subscription) nextDeliveries(out []delivery, events []*session.Event) []delivery {
	for {
		d, ok := s.nextDelivery(events)
		if !ok {
			return out
		}
		out = append(out, d)
	}
}

// connState counts what is under way to the subscriptions of one connection, so
// that many windows together stay within what the connection may queue.
type connState struct {
	log         *slog.Logger
	peer        string        // the other end's address, for the audit
	address     string        // and for limits
	peerConn    peerConn      // the connection
	intake      *intake.Peer  // what it may send; nil: of a face within the process
	snapshotSem chan struct{} // holds one for each snapshot that has a place, or waits in line for one
	maxInFlight int           // bytes
	maxSubs     int           // subscriptions
	maxBatches  int           // unanswered on one stream
	limitHits   *limitHits
	saved       *savedRefs

	mu       sync.Mutex
	inFlight int
	subs     int
	noSubs   chan struct{} // not nil: closed when there are no subs
	waiters  []*waiter     // found no room; the first may have been woken, and then it is its turn
}

// waiter is one who sends over a link. It is guarded by the link's lock.
type waiter struct {
	bytes int    // that it found no room for
	wake  func() // not nil: it waits for its turn
}

// hasRoom says whether there is room for so many bytes. One delivery may always be under
// way, however large it is. mu is held.
func (l *connState) hasRoom(bytes int) bool {
	return l.inFlight == 0 || l.inFlight+bytes <= l.maxInFlight
}

// reserve puts bytes under way, if there is room and nobody waits for some. Else w
// waits in line, since what is large would find none for ever beside what is small:
// wake is called, once, when it is its turn. It reserves again then, as often as it
// likes, and calls pass.
func (l *connState) reserve(bytes int, w *waiter, wake func()) bool {
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

// isWaiting says that w found no room, and will be woken.
func (l *connState) isWaiting(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.wake != nil
}

// isTurn says that it is w's turn, for which it was woken.
func (l *connState) isTurn(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.wake == nil && len(l.waiters) > 0 && l.waiters[0] == w
}

// endTurn ends w's turn, whether or not it has made use of it. It returns what wakes the
// next, to be called without locks; so do taken and gone.
func (l *connState) endTurn(w *waiter) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.wake == nil {
		l.waiters = withoutWaiter(l.waiters, w)
	}
	return l.wakeNext()
}

// release gives bytes back.
func (l *connState) release(bytes int) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight -= bytes
	return l.wakeNext()
}

// releaseAll gives back bytes of w, which sends nothing more.
func (l *connState) releaseAll(w *waiter, bytes int) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight -= bytes
	w.wake, l.waiters = nil, withoutWaiter(l.waiters, w)
	return l.wakeNext()
}

// wakeNext has the first in line take its turn, if there is room for what it waits with.
// mu is held.
func (l *connState) wakeNext() (wake func()) {
	if len(l.waiters) == 0 || l.waiters[0].wake == nil || !l.hasRoom(l.waiters[0].bytes) {
		return func() {}
	}
	wake, l.waiters[0].wake = l.waiters[0].wake, nil
	return wake
}

// withoutWaiter is a line that w has left.
func withoutWaiter(line []*waiter, w *waiter) []*waiter {
	return slices.DeleteFunc(line, func(other *waiter) bool { return other == w })
}

// addSub counts a subscription in; false at the limit.
func (l *connState) addSub() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs >= l.maxSubs {
		return false
	}
	l.subs++
	return true
}

func (l *connState) removeSub() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs--; l.subs == 0 && l.noSubs != nil {
		close(l.noSubs)
		l.noSubs = nil
	}
}

// waitNoSubs waits until every subscription has been told of its end, or ctx ends.
func (l *connState) waitNoSubs(ctx context.Context) {
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
