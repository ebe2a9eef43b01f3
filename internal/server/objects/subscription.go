// A subscription: what one subscriber has received, may still be sent, and is allowed to see.
// Its fields are guarded by its fan-out's lock; the fan-out's runner (session_fanout.go) and
// the acks of the sink change them.

package objects

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/session"
)

// sink receives the events of a subscription. Its methods do not block and are called without
// locks: events and state by one goroutine at a time, ended by any goroutine, also concurrently.
// Calls after ended are dropped.
type sink interface {
	// events sends consecutive events. done is called once, possibly before events
	// returns: with nil when the subscriber has acked them, or with the error.
	events(events []*session.Event, done func(error))
	// ended releases the sink, and sends why to the subscriber unless why is nil (it
	// unsubscribed). It returns false if sending would block; it is then called again.
	ended(why *fault.Error) bool
}

// subscription is one subscriber of one session.
type subscription struct {
	fanout *sessionFanout
	auth   *authority
	sink   sink
	actor  string     // of the ref; "" until the first check
	conn   *connState // the connection's share of the bytes in flight
	waiter waiter     // for bytes of conn
	window int        // bytes that may be in flight

	windowMax   int // window doubles with each ack until it is this
	maxDelivery int // bytes of a delivery, at most; 0: bounded by the window alone

	// onStart is called once, before anything is sent: with nil, or with the refusal
	// that ended the subscription before it began (the sink then gets no reason).
	onStart func(*fault.Error)

	cursor     uint64            // the last event passed to the sink
	head       session.Hash      // that event's hash in the chain; zero while it is not known
	resumeHash session.Hash      // the hash that the subscriber named for it, until compared; zero if none
	inFlight   int               // bytes passed to the sink and not acked; 0 once finished
	authorized bool              // auth was found alive at authGen, and nothing has put that in doubt
	authGen    uint64            // the session's AuthGen at that check
	expires    int64             // of the ref, Unix ms; 0 never
	grant      *capability.Grant // found at that check; says what is hidden
	hashKey    session.HashKey   // read then; masks the hashes that are shown

	generation     int                // raised to void deliveries that are not sent yet
	queued         bool               // in its fan-out's ready list
	skipped        bool               // the last page read for it had none of its events
	paused         bool               // its connection would block; not woken until unpause
	inSnapshot     bool               // its snapshot is being sent; events wait
	cancelSnapshot context.CancelFunc // ends the snapshot; nil if none was asked for
	finished       bool               // out of the fan-out; nothing more is sent
}

// initialWindow is the window, in bytes, of a subscription that has acked nothing yet or was slow.
const initialWindow = 64 << 10

// hasRoom reports whether a delivery of that many bytes may be put in flight. One delivery may
// always be, however large it is.
func (s *subscription) hasRoom(bytes int) bool {
	return s.inFlight == 0 || s.inFlight+bytes <= s.window
}

// deliveryBytes returns the target size of one delivery: a quarter of the window, so that the
// next is in flight while the last is being processed.
func (s *subscription) deliveryBytes() int {
	if chunk := max(s.window/4, 1); s.maxDelivery == 0 || chunk < s.maxDelivery {
		return chunk
	}
	return s.maxDelivery
}

// eventBytes is the approximate cost of an event on its way to a subscriber.
func eventBytes(e *session.Event) int { return len(e.Payload) + len(e.Key) + len(e.Actor) + 256 }

// delivery is one call of a sink.
type delivery struct {
	sub        *subscription
	generation int          // the subscription's, when it was cut
	after      uint64       // the cursor it continues from
	head       session.Hash // the subscription's hash at that cursor
	events     []*session.Event
	bytes      int
}

// hiddenEventBytes is the cost of an event that is not shown: a run of them is replaced by few
// cursor marks.
const hiddenEventBytes = 16

// nextDelivery cuts the next delivery for s from events, which are consecutive, as far as its
// window has room. ok is false if the next event of s is not among them or there is no room.
// The fan-out's lock is held.
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

// unpause resumes s after its connection would block.
func (s *subscription) unpause() {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	s.paused = false
	s.fanout.wake(s)
}

// takeOnStart returns onStart and clears it.
func (s *subscription) takeOnStart() func(*fault.Error) {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	started := s.onStart
	s.onStart = nil
	return started
}

// beginEvents starts the events after the state that row belongs to, once that has been sent.
func (s *subscription) beginEvents(row *session.Row) {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	s.inSnapshot, s.cursor, s.head = false, row.Cursor, row.Head
	s.fanout.wake(s)
}

// end ends s with why (nil: the subscriber unsubscribed). Further calls do nothing.
func (s *subscription) end(why *fault.Error) { s.endAfter(0, why) }

// endAfter is end, unless s has not been sent the log up to cursor yet.
func (s *subscription) endAfter(cursor uint64, why *fault.Error) {
	if s.fanout == nil {
		return // it was never subscribed
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

// nextDeliveries appends as many deliveries to out as there is room for.
func (s *subscription) nextDeliveries(out []delivery, events []*session.Event) []delivery {
	for {
		d, ok := s.nextDelivery(events)
		if !ok {
			return out
		}
		out = append(out, d)
	}
}

// connState is the state that the objects of one connection share. It counts the bytes in
// flight to the connection's subscriptions, so that their windows together stay within its
// send queue. It is safe for concurrent use.
type connState struct {
	log         *slog.Logger
	peer        string        // the remote address, for the audit
	address     string        // the remote address, for limits
	peerConn    peerConn      // the connection
	intake      *intake.Peer  // memory for its messages; nil for a face in this process
	snapshotSem chan struct{} // one token for each snapshot that has a slot or waits for one
	maxInFlight int           // bytes
	maxSubs     int           // subscriptions
	maxBatches  int           // unanswered on one stream
	limitHits   *limitHits
	saved       *savedRefs

	mu       sync.Mutex
	inFlight int
	subs     int
	noSubs   chan struct{} // if not nil, closed when subs is 0
	waiters  []*waiter     // found no room; the first may have been woken, and then has its turn
}

// waiter is a sender on a connection. It is guarded by the connection's lock.
type waiter struct {
	bytes int    // that found no room
	wake  func() // if not nil, it waits for its turn
}

// hasRoom reports whether that many bytes may be put in flight. One delivery may always be,
// however large it is. mu is held.
func (l *connState) hasRoom(bytes int) bool {
	return l.inFlight == 0 || l.inFlight+bytes <= l.maxInFlight
}

// reserve puts bytes in flight if there is room and no other waiter is before w. Otherwise w is
// queued, since a large delivery would starve among small ones, and wake is called once, when
// its turn has come. w may then reserve any number of times, until it calls endTurn.
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

// isWaiting reports whether w found no room, and will be woken.
func (l *connState) isWaiting(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.wake != nil
}

// isTurn reports whether w has been woken and has its turn.
func (l *connState) isTurn(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.wake == nil && len(l.waiters) > 0 && l.waiters[0] == w
}

// endTurn ends the turn of w, used or not. It returns the function that wakes the next waiter,
// to be called without locks; so do release and releaseAll.
func (l *connState) endTurn(w *waiter) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.wake == nil {
		l.waiters = withoutWaiter(l.waiters, w)
	}
	return l.wakeNext()
}

// release returns bytes that are no longer in flight.
func (l *connState) release(bytes int) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight -= bytes
	return l.wakeNext()
}

// releaseAll returns the bytes of w, which sends nothing more, and dequeues it.
func (l *connState) releaseAll(w *waiter, bytes int) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight -= bytes
	w.wake, l.waiters = nil, withoutWaiter(l.waiters, w)
	return l.wakeNext()
}

// wakeNext gives the first waiter its turn if there is room for its bytes. mu is held.
func (l *connState) wakeNext() (wake func()) {
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

// waitNoSubs waits until every subscription has been ended, or ctx ends.
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
