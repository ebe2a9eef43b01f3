// A session's fan-out: the subscriptions of one session, and the one runner at a time that
// feeds them.
//
// Whatever happens (a commit here, a notification, a poll, a subscriber that
// took what it was sent) puts subscriptions on the ready list and, if
// there is none, starts the runner. So deliveries to one subscriber never
// overtake each other, what is published meanwhile goes out together, and no
// committer waits for a fan-out.
//
// The runner sends from the tail (events just published here) what it may send
// without asking, and for everything else reads the log together with the
// authority to see it, in one snapshot:
//
//   - the tail's events were committed under one AuthGen; a subscriber gets
//     them only if that is the AuthGen its authority was found alive at, and it
//     has not expired by the database clock of the event;
//   - a subscriber gets only the event after the last one it has. A hole, for
//     whatever reason, means reading the log.
//
// That an event comes after the last one is not its cursor's word alone: a
// database may have been put back and gone on otherwise, under a subscriber or
// while it was away. So a subscriber that names the hash at its cursor gets nothing
// before that was compared, and each delivery goes on from the hash of the one
// before (fits).

package server

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// sessionFanout is one session's subscriptions. mu is never held over a call of a sink
// or of the store.
type sessionFanout struct {
	hub     *hub
	session string

	mu          sync.Mutex
	subs        map[*subscription]struct{}
	ready       []*subscription // have something to do, in the order in which they came
	running     bool            // a runner is at work
	failedReads int             // reads in a row that failed
	endReason   *fault.Error    // everyone is to be told this, and to go

	cursor uint64 // the highest heard of, since the log was read
	gen    uint64 // the highest AuthGen heard of, since then
	// heardDuringRead is the same while the log is being read: what the read finds may be
	// older than it. All that was heard before is in it, or was wrong.
	heardDuringRead struct{ cursor, gen uint64 }

	// tail is what was published here while the runner was at work: consecutive
	// events, all committed at AuthGen tailGen.
	tail      []*session.Event
	tailGen   uint64
	tailBytes int

	// lastChained is the last event that was found to go on from a hash, so that it is
	// found once for all who follow.
	lastChained struct {
		head session.Hash
		next *session.Event
	}
}

// wake puts s on the ready list and starts a runner if there is none. mu is held.
func (t *sessionFanout) wake(s *subscription) {
	if s.queued || s.finished || s.inSnapshot || s.paused {
		return
	}
	s.queued = true
	t.ready = append(t.ready, s)
	t.start()
}

func (t *sessionFanout) wakeAll() {
	for s := range t.subs {
		t.wake(s)
	}
}

func (t *sessionFanout) start() {
	if !t.running && len(t.ready) > 0 && t.hub.beginTask() {
		t.running = true
		go t.run()
	}
}

// notify notes that the session is at cursor and gen, and wakes whom it concerns.
func (t *sessionFanout) notify(cursor, gen uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.advance(cursor, gen) {
		t.wakeAll()
	}
}

// advance notes a cursor and an AuthGen; news is whether either is higher than what was
// known. mu is held.
func (t *sessionFanout) advance(cursor, gen uint64) (news bool) {
	t.heardDuringRead.cursor, t.heardDuringRead.gen = max(t.heardDuringRead.cursor, cursor), max(t.heardDuringRead.gen, gen)
	news = cursor > t.cursor || gen > t.gen
	t.cursor, t.gen = max(t.cursor, cursor), max(t.gen, gen)
	return news
}

// expire has those checked again whose refs may have expired by now.
func (t *sessionFanout) expire(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.subs {
		if s.expires != 0 && s.expires <= now {
			s.authorized = false
			t.wake(s)
		}
	}
}

// endAll tells every subscriber why, in its turn, and lets it go. Who is being sent a
// snapshot has no turn before that is through, so it is let go here.
func (t *sessionFanout) endAll(why *fault.Error) {
	t.mu.Lock()
	t.endReason = why
	over := t.finishAll(why, func(s *subscription) bool { return s.inSnapshot })
	t.wakeAll()
	t.mu.Unlock()
	for _, f := range over {
		f()
	}
}

// fail ends every subscription when a defect has ended the runner: which of them it
// was at is not known.
func (t *sessionFanout) fail(why *fault.Error) {
	t.mu.Lock()
	t.running = false
	over := t.finishAll(why, func(*subscription) bool { return true })
	t.mu.Unlock()
	for _, f := range over {
		_ = catchPanic(t.hub.log, "tell a subscriber of its end", f) // it is in the log
	}
}

// finishAll is finish for all that are meant.
func (t *sessionFanout) finishAll(why *fault.Error, meant func(*subscription) bool) (over []func()) {
	for s := range t.subs {
		if meant(s) {
			over = append(over, t.finish(s, why))
		}
	}
	return over
}

// publish takes the events of a commit of this replica.
func (t *sessionFanout) publish(p *session.PublishedSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, bytes := p.Row.Cursor+1-uint64(len(p.Events)), 0
	for _, e := range p.Events {
		bytes += eventBytes(e)
	}
	switch {
	case len(p.Events) == 0 || len(t.tail) > 0 && p.Row.Cursor <= t.tail[len(t.tail)-1].Cursor:
		// nothing new, or overtaken by what was published after it
	case p.AuthChanged || bytes > t.hub.tailBytes:
		t.clearTail() // authority changed in it: everyone reads, and is checked
	case len(t.tail) > 0 && t.tailGen == p.Row.AuthGen && t.tail[len(t.tail)-1].Cursor+1 == first && t.tailBytes+bytes <= t.hub.tailBytes:
		t.tail, t.tailBytes = append(t.tail, p.Events...), t.tailBytes+bytes
	default:
		t.tail, t.tailGen, t.tailBytes = append([]*session.Event(nil), p.Events...), p.Row.AuthGen, bytes
	}
	t.advance(p.Row.Cursor, p.Row.AuthGen)
	t.wakeAll()
}

func (t *sessionFanout) clearTail() { t.tail, t.tailGen, t.tailBytes = nil, 0, 0 }

// run is the runner.
func (t *sessionFanout) run() {
	defer t.hub.endTask()
	if why := catchPanic(t.hub.log, "send events", t.dispatch); why != nil {
		t.fail(why)
	}
}

// dispatch feeds subscriptions until none is ready.
func (t *sessionFanout) dispatch() {
	for {
		r, more := t.nextRound()
		for _, d := range r.out {
			t.deliver(d)
		}
		for _, f := range r.ended {
			f()
		}
		read := len(r.readers) == 0 || t.read(r.readers)
		for _, s := range r.turns {
			if !read || !s.skipped { // else it has had no chance to use it
				s.conn.endTurn(&s.waiter)()
			}
		}
		if !read || !more {
			return
		}
	}
}

// round is what the runner does for those who were ready.
type round struct {
	out     []delivery      // from the tail
	readers []*subscription // need the log
	ended   []func()        // tell those who are over
	turns   []*subscription // have their turn on their connections, which ends with the round
}

// nextRound empties the ready list. more is false, and the runner at its end, if there
// was nothing.
func (t *sessionFanout) nextRound() (r round, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ready) == 0 {
		t.running = false
		t.clearTail() // who comes later reads the log
		return r, false
	}
	ready := t.ready
	t.ready = nil
	for _, s := range ready {
		s.queued = false
		if s.conn.isTurn(&s.waiter) {
			r.turns = append(r.turns, s)
		}
		read := false
		switch {
		case s.finished || s.inSnapshot || s.paused:
		case t.endReason != nil:
			r.ended = append(r.ended, t.finish(s, t.endReason))
		case !s.authorized || s.authGen != t.gen:
			read = true
		case s.cursor >= t.cursor:
		case s.conn.isWaiting(&s.waiter): // it is woken when there is room
		case t.covers(s.cursor+1) && t.tailGen == s.authGen && !t.tailExpired(s):
			if !t.continues(s, t.tail) {
				r.ended = append(r.ended, t.finish(s, logDiverged(s.cursor)))
				continue
			}
			r.out = s.nextDeliveries(r.out, t.tail)
			if s.cursor < t.cursor && !t.covers(s.cursor+1) {
				t.wake(s)
			}
		case s.hasRoom(s.window / 2): // else the sink's next return wakes it
			read = true
		}
		if read {
			r.readers = append(r.readers, s)
		} else {
			s.skipped = false // its turn, if it has one, is not kept for a page
		}
	}
	return r, true
}

func (t *sessionFanout) covers(cursor uint64) bool {
	return len(t.tail) > 0 && t.tail[0].Cursor <= cursor && cursor <= t.tail[len(t.tail)-1].Cursor
}

// tailExpired says that s's ref may have expired by the tail's last event.
func (t *sessionFanout) tailExpired(s *subscription) bool {
	return s.expires != 0 && len(t.tail) > 0 && t.tail[len(t.tail)-1].At >= s.expires
}

// read serves readers from one page of the log, from where the first of them is, or
// the first of those that the page before passed over. It is false if the runner has
// to stop, since the log cannot be read now; it will be started again.
func (t *sessionFanout) read(readers []*subscription) bool {
	var refs []string
	for _, s := range readers {
		refs = append(refs, s.auth.refs()...)
	}
	slices.Sort(refs)
	refs = slices.Compact(refs) // many may follow under one
	t.mu.Lock()
	first := readers[max(slices.IndexFunc(readers, func(s *subscription) bool { return s.skipped }), 0)]
	from, window := first.cursor, first.window
	var resumed []uint64
	for _, s := range readers {
		if s.resumeHash != (session.Hash{}) {
			resumed = append(resumed, s.cursor)
		}
	}
	t.heardDuringRead.cursor, t.heardDuringRead.gen = 0, 0
	t.mu.Unlock()
	page, err := t.hub.readLog(t.session, from, window, refs, resumed...)
	if err != nil {
		t.deferReaders(readers, err)
		return false
	}
	begun, out, over := t.distribute(page, readers, from)
	for _, f := range begun {
		f()
	}
	for _, d := range out {
		t.deliver(d)
	}
	for _, f := range over {
		f()
	}
	return true
}

// distribute gives readers what a page has for each. It was read from a cursor on.
func (t *sessionFanout) distribute(page *session.LogPage, readers []*subscription, from uint64) (begun []func(), out []delivery, over []func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failedReads = 0
	if page.Row != nil {
		found := t.advance(page.Row.Cursor, page.Row.AuthGen) // and nobody will tell the others of it: it is known now
		t.cursor, t.gen = page.Row.Cursor, page.Row.AuthGen
		if t.advance(t.heardDuringRead.cursor, t.heardDuringRead.gen) || found {
			t.wakeAll() // also who may have been thought to know of something still higher, which was wrong
		}
	}
	for _, s := range readers {
		if s.finished {
			continue
		}
		why := t.admit(s, page)
		if why == nil && !t.continues(s, page.Events) {
			why = logDiverged(s.cursor)
		}
		if why != nil {
			over = append(over, t.finish(s, why))
			continue
		}
		if s.onStart != nil {
			started := s.onStart
			s.onStart = nil
			begun = append(begun, func() { started(nil) })
		}
		before := s.cursor
		out = s.nextDeliveries(out, page.Events)
		s.skipped = s.cursor == before && before != from && s.cursor < page.Row.Cursor
		switch {
		case s.cursor < page.Row.Cursor:
			// Where the page had its next event and there was no room, the
			// sink's next return wakes it.
			if s.cursor != before || before != from || s.authGen != t.gen {
				t.wake(s)
			}
		case page.Row.Life == session.Deleted:
			over = append(over, func() { s.endAfter(page.Row.Cursor, sessionDeleted()) }) // when it has been sent the last of it
		}
	}
	return begun, out, over
}

// admit checks s against what a page found and notes until when that holds.
func (t *sessionFanout) admit(s *subscription, page *session.LogPage) *fault.Error {
	grant, why := s.auth.check(&page.Access, capability.Read)
	if grant != nil {
		s.actor = grant.Actor
	}
	if why != nil && why.Code != fault.SessionDeleted { // that it is told after the log's last event
		return why
	}
	s.authorized, s.authGen, s.expires, s.grant, s.hashKey = true, page.Row.AuthGen, grant.Expires, grant, page.Key
	before := max(grant.VisibleFrom, 1) - 1 // the first event that the ref shows comes after it
	if s.cursor < before && s.cursor <= page.Row.Cursor {
		s.cursor, s.head, s.resumeHash = before, session.Hash{}, session.Hash{} // nothing that it has is next to what it is shown
	}
	if s.cursor == before && s.cursor > page.Row.Cursor {
		return nil // it is still to come
	}
	if why := checkCursor(page.Row, s.cursor); why != nil {
		return why
	}
	if s.resumeHash != (session.Hash{}) {
		s.head = page.Hashes[s.cursor]
		if !sameLog(page, grant, s.cursor, s.resumeHash) {
			return logDiverged(s.cursor)
		}
		s.resumeHash = session.Hash{}
	}
	if s.cursor == page.Row.Cursor && s.head != (session.Hash{}) && s.head != page.Row.Head {
		return logDiverged(s.cursor)
	}
	return nil
}

// continues says whether events go on from the last one that s has, as far as that can be
// said: its hash is known, and they have the next. mu is held.
func (t *sessionFanout) continues(s *subscription, events []*session.Event) bool {
	next := s.cursor + 1
	if s.head == (session.Hash{}) || len(events) == 0 || events[0].Cursor > next || events[len(events)-1].Cursor < next {
		return true
	}
	i := next - events[0].Cursor
	e := events[i]
	switch {
	case i > 0:
		return events[i-1].Hash == s.head
	case t.lastChained.next == e && t.lastChained.head == s.head:
		return true
	case session.HashEvent(s.head, e) != e.Hash:
		return false
	}
	t.lastChained.next, t.lastChained.head = e, s.head
	return true
}

// sameLog says whether the event at a cursor is the one of which somebody was shown
// hash. The page has been asked for it.
func sameLog(page *session.LogPage, g *capability.Grant, cursor uint64, hash session.Hash) bool {
	return cursor == 0 || page.Key.Mask(g, page.Hashes[cursor]) == hash
}

// logDiverged is for who has events up to a cursor that the log does not have.
func logDiverged(cursor uint64) *fault.Error {
	return fault.ServerBehind.With("event %d is not the one you have: the server was restored to an earlier state and went on from there; take a snapshot and go on from that", cursor)
}

// checkCursor says whether the log can be followed from cursor.
func checkCursor(row *session.Row, cursor uint64) *fault.Error {
	switch {
	case cursor < row.Base:
		return fault.CursorExpired.With("the log starts after cursor %d: take a snapshot and go on from there", row.Base).Pos(row.Base + 1)
	case cursor > row.Cursor:
		return fault.ServerBehind.With("the session is at cursor %d, before %d: the server was restored to an earlier state", row.Cursor, cursor).Pos(row.Cursor)
	}
	return nil
}

// deferReaders puts readers back for a while, since the log cannot be read. Those
// that have not begun are refused: their callers know best when to try again. At the
// hub's end nobody is put back.
func (t *sessionFanout) deferReaders(readers []*subscription, err error) {
	why := toFault(t.hub.log, err, "read the log")
	t.mu.Lock()
	var over []func()
	if t.endReason != nil {
		over = t.finishAll(t.endReason, func(*subscription) bool { return true })
	}
	for _, s := range readers {
		if s.onStart != nil && !s.finished {
			over = append(over, t.finish(s, why))
		}
	}
	t.failedReads++
	delay := min(50*time.Millisecond<<min(t.failedReads, 6), 2*time.Second)
	t.running = false
	t.clearTail()
	t.mu.Unlock()
	for _, f := range over {
		f()
	}
	t.hub.runAfter(delay, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.wakeAll()
		t.start()
	})
}

// errSuperseded says that a delivery was not made: one before it was not sent.
var errSuperseded = errors.New("an earlier delivery was not sent")

// wouldBlockPause is how long a subscriber whose connection takes no more is left alone.
const wouldBlockPause = 50 * time.Millisecond

// deliver gives a delivery to its sink. No lock is held.
func (t *sessionFanout) deliver(d delivery) {
	s := d.sub
	t.mu.Lock()
	void := s.generation != d.generation
	t.mu.Unlock()
	if void {
		t.acked(d, errSuperseded)
		return
	}
	events := d.events
	d.events = nil // a peer that does not answer keeps none
	began := time.Now()
	s.sink.events(events, func(err error) {
		if err == nil {
			t.hub.observeDelivery(time.Since(began).Seconds())
		}
		t.acked(d, err)
	})
}

// acked is what a delivery came to.
func (t *sessionFanout) acked(d delivery, err error) {
	s := d.sub
	t.mu.Lock()
	if s.finished { // what was under way has been given back
		t.mu.Unlock()
		return
	}
	s.inFlight -= d.bytes
	if err == nil && s.window < s.windowMax {
		s.window = min(2*s.window, s.windowMax)
	}
	then, wake := func() {}, s.conn.release(d.bytes)
	switch {
	case errors.Is(err, errSuperseded): // who made it void is woken for that
	case errors.Is(err, errWouldBlock): // it was not sent, and what follows it must not be
		s.generation++
		s.cursor, s.head, s.paused = d.after, d.head, true
		then = func() { t.hub.runAfter(wouldBlockPause, s.unpause) }
	case err != nil:
		then = t.finish(s, fault.Canceled.With("the subscriber's sink failed: %v", err))
	case s.cursor < t.cursor || s.authGen != t.gen:
		t.wake(s)
	}
	t.mu.Unlock()
	then()
	wake()
}

// finish takes s out of the fan-out and returns what tells its subscriber, to be
// called without locks. mu is held. A nil why tells nothing: the subscriber has
// left by itself. What is under way to it is given back: whether who has left
// still answers must not matter to the connection's others.
func (t *sessionFanout) finish(s *subscription, why *fault.Error) func() {
	s.finished = true
	s.generation++ // what was cut for it and is not under way yet is not sent
	delete(t.subs, s)
	if s.cancelSnapshot != nil {
		s.cancelSnapshot() // its snapshot, if that is still on its way
	}
	started := s.onStart
	s.onStart = nil
	wake := s.conn.releaseAll(&s.waiter, s.inFlight)
	s.inFlight = 0
	return func() {
		wake()
		t.hub.forget(t)
		if started != nil {
			if why == nil {
				why = fault.Canceled.With("the subscription was cancelled")
			}
			s.conn.removeSub()
			started(why)
			s.sink.ended(nil)
			return
		}
		t.tell(s, why)
	}
}

// tell lets s's sink go, telling it why, as soon as its connection takes that. So
// long s counts as one of the connection's.
func (t *sessionFanout) tell(s *subscription, why *fault.Error) {
	if s.sink.ended(why) {
		s.conn.removeSub()
		return
	}
	t.hub.runAfter(wouldBlockPause, func() { t.tell(s, why) })
}
