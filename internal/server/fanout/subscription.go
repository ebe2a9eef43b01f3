// A subscription: what one subscriber has received, may still be sent, and is allowed to see.
// Its fields are guarded by its fan-out's lock; the fan-out's runner (session_fanout.go) and
// the acks of the sink change them.

package fanout

import (
	"cmp"
	"context"
	"errors"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Sink receives the events of a subscription. Its methods do not block and are called without
// locks: events and state by one goroutine at a time, ended by any goroutine, also concurrently.
// Calls after ended are dropped.
type Sink interface {
	// Events sends consecutive events. done is called once, possibly before Events
	// returns: with nil when the subscriber has acked them, or with the error.
	Events(shown *session.Shown, done func(error))
	// Ended releases the sink, and sends why to the subscriber unless why is nil (it
	// unsubscribed). It returns false if sending would block; it is then called again.
	Ended(why *fault.Error) bool
}

// StateSink is a sink that receives the folded state as well. state does not block; done is
// called once, possibly before state returns.
type StateSink interface {
	Sink
	State(piece *session.StateChunk, last bool, done func(error))
}

// ErrWouldBlock is the error of a sink that could not send without blocking on its peer.
var ErrWouldBlock = errors.New("the peer does not read")

// Authority is the authority under which a subscriber reads a session.
type Authority interface {
	// Refs returns the ids of the grants that check needs.
	Refs() []string
	// Check returns the grant that allows need on the session now, or why not. It returns the
	// grant of a dead ref too.
	Check(at *session.Access, need capability.Rights) (*capability.Grant, *fault.Error)
}

// SubscriptionConfig configures a subscription.
type SubscriptionConfig struct {
	Authority   Authority
	Conn        *Flow
	Sink        Sink
	Window      int // bytes in flight, at most
	MaxDelivery int // bytes of a delivery, at most; 0: maxDeliveryBytes
	After       Position
	Keys        *session.Selection // sent instead of all that the ref shows

	// OnStart, if not nil, is called once, before anything is sent: with the actor of the ref and
	// nil, or with the refusal that ended the subscription before it began (the sink then gets no
	// reason).
	OnStart func(actor string, refused *fault.Error)
}

// Subscription is one subscriber of one session.
type Subscription struct {
	fanout *sessionFanout
	auth   Authority
	sink   Sink
	actor  string // of the ref; "" until the first check
	conn   *Flow  // the connection's share of the bytes in flight
	waiter waiter // for bytes of conn
	window int    // bytes that may be in flight

	keys        *session.Selection
	windowMax   int // window doubles with each ack until it is this
	maxDelivery int // bytes of a delivery, at most; 0: maxDeliveryBytes

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
	sight      session.Sight     // of grant and keys
	hashKey    session.HashKey   // read then; masks the hashes that are shown

	generation     int                // raised to void deliveries that are not sent yet
	queued         bool               // in its fan-out's ready list
	skipped        bool               // the last page read for it had none of its events
	paused         bool               // its connection would block; not woken until unpause
	inSnapshot     bool               // its snapshot is being sent; events wait
	cancelSnapshot context.CancelFunc // ends the snapshot; nil if none was asked for
	finished       bool               // out of the fan-out; nothing more is sent
}

// MinWindow is the minimum window, in bytes: with less, every event would wait for the ack of
// the one before.
const MinWindow = 4 << 10

// maxDeliveryBytes is the size of a delivery at most, unless it is one large event: with what it takes on the wire a
// connection then writes it in one piece, from memory that it shares with others.
const maxDeliveryBytes = 40 << 10

// initialWindow is the window, in bytes, of a subscription that has acked nothing yet or was slow.
const initialWindow = 64 << 10

// NewSubscription returns a subscription; hub.subscribe starts it.
func NewSubscription(cfg SubscriptionConfig) *Subscription {
	s := &Subscription{auth: cfg.Authority, conn: cfg.Conn, sink: cfg.Sink, window: min(initialWindow, cfg.Window), windowMax: cfg.Window,
		maxDelivery: cfg.MaxDelivery, keys: cfg.Keys, cursor: cfg.After.Cursor, resumeHash: cfg.After.Hash}
	if cfg.OnStart != nil {
		s.onStart = func(refused *fault.Error) { cfg.OnStart(s.actor, refused) }
	}
	return s
}

// hasRoom reports whether a delivery of that many bytes may be put in flight. One delivery may
// always be, however large it is.
func (s *Subscription) hasRoom(bytes int) bool {
	return s.inFlight == 0 || s.inFlight+bytes <= s.window
}

// deliveryBytes returns the target size of one delivery: at most a quarter of the window, so that
// the next is in flight while the last is being processed.
func (s *Subscription) deliveryBytes() int {
	return min(max(s.window/4, 1), cmp.Or(s.maxDelivery, maxDeliveryBytes))
}

// delivery is one call of a sink.
type delivery struct {
	sub        *Subscription
	generation int          // the subscription's, when it was cut
	after      uint64       // the cursor it continues from
	head       session.Hash // the subscription's hash at that cursor
	shown      *session.Shown
	bytes      int
}

// nextDelivery cuts the next delivery for s from events, which are consecutive, as far as its
// window has room. ok is false if the next event of s is not among them or there is no room.
// The fan-out's lock is held.
func (s *Subscription) nextDelivery(events session.UnscopedEvents) (d delivery, ok bool) {
	next := s.cursor + 1
	if !events.Covers(next) {
		return d, false
	}
	rest := events.From(next)
	n, bytes := 0, 0
	for n < rest.Len() {
		size := rest.Bytes(n, s.grant, s.keys)
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
	d = delivery{sub: s, generation: s.generation, after: s.cursor, head: s.head, bytes: bytes}
	d.shown = s.fanout.shown.Shown(rest, n, s.sight, s.grant, s.keys, &s.hashKey)
	s.cursor, s.head = d.shown.Cursor, d.shown.Head
	s.inFlight += bytes
	return d, true
}

// requeue puts s on its fan-out's ready list.
func (s *Subscription) requeue() {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	s.fanout.wake(s)
}

// unpause resumes s after its connection would block.
func (s *Subscription) unpause() {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	s.paused = false
	s.fanout.wake(s)
}

// takeOnStart returns onStart and clears it.
func (s *Subscription) takeOnStart() func(*fault.Error) {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	started := s.onStart
	s.onStart = nil
	return started
}

// beginEvents starts the events after the state that row belongs to, once that has been sent.
func (s *Subscription) beginEvents(row *session.Row) {
	s.fanout.mu.Lock()
	defer s.fanout.mu.Unlock()
	s.inSnapshot, s.cursor, s.head = false, row.Cursor, row.Head
	s.fanout.wake(s)
}

// End ends s with why (nil: the subscriber unsubscribed). Further calls do nothing.
func (s *Subscription) End(why *fault.Error) { s.endAfter(0, why) }

// endAfter is end, unless s has not been sent the log up to cursor yet.
func (s *Subscription) endAfter(cursor uint64, why *fault.Error) {
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
func (s *Subscription) nextDeliveries(out []delivery, events session.UnscopedEvents) []delivery {
	for {
		d, ok := s.nextDelivery(events)
		if !ok {
			return out
		}
		out = append(out, d)
	}
}
