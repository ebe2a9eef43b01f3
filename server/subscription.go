// A subscription: what one subscriber has, may still be sent, and is allowed
// to see. Its fields are guarded by its topic's lock; who changes them is the
// topic's runner (topic.go) and the returns of the sink.

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
	topic  *topic
	auth   *authority
	sink   sink
	actor  string // of the ref, once it was read
	link   *link  // the connection's share of what is under way
	waiter waiter // for room in it
	window int    // bytes that may be under way

	windowMost int // until window is this it doubles with each delivery that is taken
	piece      int // bytes of a delivery, at most; 0: what the window says

	// started is called once, before anything is sent: nil, or the refusal
	// that ended the subscription before it began (ended is not called then).
	started func(*fault.Error)

	cursor   uint64            // the last event given to the sink
	head     session.Hash      // that event's hash in the chain; zero while it is not known
	resume   session.Hash      // what the subscriber says that it is, until that was compared; zero if it says nothing
	underway int               // bytes given to the sink and not taken yet; 0 once finished
	checked  bool              // auth was found alive, at gen, and nothing has put that in doubt
	gen      uint64            // the session's AuthGen at that look
	expires  int64             // of the ref; 0 never
	grant    *capability.Grant // found at that look: says what is hidden
	key      session.HashKey   // read then: of the hashes that are shown

	takes    int                // raised when deliveries that are on their way are void
	queued   bool               // in its topic's ready list
	passed   bool               // the last page that was read for it had nothing for it
	resting  bool               // its connection takes no more: left alone until rested
	holding  bool               // its snapshot is being sent: events wait
	cancel   context.CancelFunc // ends that; nil if none was asked for
	finished bool               // out of the topic; nothing more is sent
}

// firstWindow is the window of a subscriber who has taken nothing yet, or was slow.
const firstWindow = 64 << 10

// room says whether a delivery of so many bytes may be under way as well. One
// delivery may always be, however large it is.
func (s *subscription) room(bytes int) bool {
	return s.underway == 0 || s.underway+bytes <= s.window
}

// chunk is the size of one delivery: a part of the window, so that the next is
// on its way while the last is being taken.
func (s *subscription) chunk() int {
	if chunk := max(s.window/4, 1); s.piece == 0 || chunk < s.piece {
		return chunk
	}
	return s.piece
}

// eventBytes is what an event costs on its way to a subscriber, about.
func eventBytes(e *session.Event) int { return len(e.Payload) + len(e.Key) + len(e.Actor) + 256 }

// delivery is one call of a sink.
type delivery struct {
	sub    *subscription
	takes  int          // the subscription's, when it was taken
	after  uint64       // the cursor it goes on from
	head   session.Hash // the subscription's, there
	events []*session.Event
	bytes  int
}

// hiddenBytes is what an event that is not shown counts for: the marks in place
// of many are few.
const hiddenBytes = 16

// take cuts the next delivery for s from events, which are consecutive, as far
// as its window has room; ok is false if the event s needs is not among them or
// there is no room. The topic's lock is held.
func (s *subscription) take(events []*session.Event) (d delivery, ok bool) {
	next := s.cursor + 1
	if len(events) == 0 || events[0].Cursor > next || events[len(events)-1].Cursor < next {
		return d, false
	}
	rest := events[next-events[0].Cursor:]
	n, bytes := 0, 0
	for _, e := range rest {
		size := eventBytes(e)
		if !session.InScope(s.grant, e.Key) {
			size = hiddenBytes
		}
		if n > 0 && (bytes+size > s.chunk() || !s.room(bytes+size)) {
			break
		}
		if n == 0 && !s.room(size) {
			return d, false
		}
		n, bytes = n+1, bytes+size
	}
	if !s.link.reserve(bytes, &s.waiter, s.again) {
		return d, false
	}
	d = delivery{sub: s, takes: s.takes, after: s.cursor, head: s.head, events: session.View(s.grant, rest[:n:n], &s.key), bytes: bytes}
	s.cursor, s.head = rest[n-1].Cursor, rest[n-1].Hash
	s.underway += bytes
	return d, true
}

// again puts s on its topic's ready list.
func (s *subscription) again() {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	s.topic.wake(s)
}

// rested is again for one whose connection may take more now.
func (s *subscription) rested() {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	s.resting = false
	s.topic.wake(s)
}

// starts gives what is to be told when s begins, once.
func (s *subscription) starts() func(*fault.Error) {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	started := s.started
	s.started = nil
	return started
}

// begin lets the events go after the state that row is of, now that it has been sent.
func (s *subscription) begin(row *session.Row) {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	s.holding, s.cursor, s.head = false, row.Cursor, row.Head
	s.topic.wake(s)
}

// over ends s, telling why (nil: the subscriber knows). Further calls do nothing.
func (s *subscription) over(why *fault.Error) { s.overAt(0, why) }

// overAt is over, but for who has not been given the log up to cursor: it was busy.
func (s *subscription) overAt(cursor uint64, why *fault.Error) {
	if s.topic == nil {
		return // it was never in one
	}
	s.topic.mu.Lock()
	var tell func()
	if !s.finished && s.cursor >= cursor {
		tell = s.topic.finish(s, why)
	}
	s.topic.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// takeAll takes as many deliveries as there is room for.
func (s *subscription) takeAll(out []delivery, events []*session.Event) []delivery {
	for {
		d, ok := s.take(events)
		if !ok {
			return out
		}
		out = append(out, d)
	}
}

// link counts what is under way to the subscriptions of one connection, so
// that many windows together stay within what the connection may queue.
type link struct {
	log     *slog.Logger
	peer    string        // the other end's address, for the audit
	address string        // and for limits
	from    origin        // the connection
	in      *intake.Peer  // what it may send; nil: of a face within the process
	shot    chan struct{} // holds one for each snapshot that has a place, or waits in line for one
	limit   int           // bytes
	max     int           // subscriptions
	batches int           // unanswered on one stream
	met     *boundHits
	saved   *savedRefs

	mu       sync.Mutex
	underway int
	subs     int
	alone    chan struct{} // not nil: closed when there are no subs
	line     []*waiter     // found no room; the first may have been woken, and then it is its turn
}

// waiter is one who sends over a link. It is guarded by the link's lock.
type waiter struct {
	bytes int    // that it found no room for
	wake  func() // not nil: it waits for its turn
}

// fits says whether there is room for so many bytes. One delivery may always be under
// way, however large it is. mu is held.
func (l *link) fits(bytes int) bool { return l.underway == 0 || l.underway+bytes <= l.limit }

// reserve puts bytes under way, if there is room and nobody waits for some. Else w
// waits in line, since what is large would find none for ever beside what is small:
// wake is called, once, when it is its turn. It reserves again then, as often as it
// likes, and calls pass.
func (l *link) reserve(bytes int, w *waiter, wake func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (len(l.line) == 0 || l.line[0] == w) && l.fits(bytes) {
		l.underway += bytes
		return true
	}
	if w.bytes = bytes; w.wake == nil {
		w.wake = wake
		l.line = append(without(l.line, w), w)
	}
	return false
}

// waits says that w found no room, and will be woken.
func (l *link) waits(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.wake != nil
}

// called says that it is w's turn, for which it was woken.
func (l *link) called(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.wake == nil && len(l.line) > 0 && l.line[0] == w
}

// pass ends w's turn, whether or not it has made use of it. It returns what wakes the
// next, to be called without locks; so do taken and gone.
func (l *link) pass(w *waiter) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.wake == nil {
		l.line = without(l.line, w)
	}
	return l.next()
}

// taken gives bytes back.
func (l *link) taken(bytes int) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underway -= bytes
	return l.next()
}

// gone gives back bytes of w, which sends nothing more.
func (l *link) gone(w *waiter, bytes int) (wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underway -= bytes
	w.wake, l.line = nil, without(l.line, w)
	return l.next()
}

// next has the first in line take its turn, if there is room for what it waits with.
// mu is held.
func (l *link) next() (wake func()) {
	if len(l.line) == 0 || l.line[0].wake == nil || !l.fits(l.line[0].bytes) {
		return func() {}
	}
	wake, l.line[0].wake = l.line[0].wake, nil
	return wake
}

// without is a line that w has left.
func without(line []*waiter, w *waiter) []*waiter {
	return slices.DeleteFunc(line, func(other *waiter) bool { return other == w })
}

// join counts a subscription in; false at the limit.
func (l *link) join() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs >= l.max {
		return false
	}
	l.subs++
	return true
}

func (l *link) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs--; l.subs == 0 && l.alone != nil {
		close(l.alone)
		l.alone = nil
	}
}

// quiet waits until every subscription has been told of its end, or ctx ends.
func (l *link) quiet(ctx context.Context) {
	l.mu.Lock()
	if l.subs == 0 {
		l.mu.Unlock()
		return
	}
	if l.alone == nil {
		l.alone = make(chan struct{})
	}
	alone := l.alone
	l.mu.Unlock()
	select {
	case <-alone:
	case <-ctx.Done():
	}
}
