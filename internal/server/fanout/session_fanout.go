// A session's fan-out: the subscriptions of one session, and the single runner that delivers
// to them.
//
// Every cause of work (a commit here, a notification, a poll, an ack of a subscriber) puts
// subscriptions on the ready list and starts the runner unless it runs. So deliveries to one
// subscriber never overtake each other, events published meanwhile go out together, and no
// committer waits for a fan-out.
//
// The runner sends from the tail (events just published here) whatever needs no new check, and
// for everything else reads the log together with the authority to see it, in one snapshot:
//
//   - the tail's events were committed under one AuthGen; a subscriber gets
//     them only if its authority was last found alive at that AuthGen, and has
//     not expired by the database clock of the event;
//   - a subscriber gets only the event after the last one it has. A gap, for
//     whatever reason, causes a read of the log.
//
// The events of a commit that changed authority are not in the tail. So no delivery, wherever it
// waits, has an event above the cut of its subscriber's ref: that event and those after it are
// only sent from a page that was read with the cut.
//
// Cursors alone do not prove that an event follows the last one: a database may have been
// restored from a copy and gone on differently, under a subscriber or while it was away. So a
// subscriber that names the hash at its cursor gets nothing before that hash was compared, and
// each delivery continues from the hash of the one before (continues).

package fanout

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/session"
)

// sessionFanout is one session's subscriptions. mu is never held over a call of a sink or of
// the store.
type sessionFanout struct {
	hub     *Hub
	session string

	mu          sync.Mutex
	subs        map[*Subscription]struct{}
	ready       []*Subscription // have work, in order of arrival
	running     bool            // the runner runs
	failedReads int             // consecutive failed reads
	endReason   *fault.Error    // if not nil, every subscription is ended with it

	cursor uint64 // highest known, since the log was read
	gen    uint64 // highest AuthGen known, since the log was read
	// heardDuringRead is the highest cursor and AuthGen notified while the log is read, which
	// the page may not show yet. All that was notified before the read is in the page, or was
	// wrong.
	heardDuringRead struct{ cursor, gen uint64 }

	// tail holds the events published here while the runner was running: consecutive, and all
	// committed at AuthGen tailGen.
	tail      session.UnscopedEvents
	tailGen   uint64
	tailBytes int

	chain session.ChainCheck // of what is delivered
	shown session.ShownCache // what was delivered just now; empty while the runner rests
}

// wake puts s on the ready list and starts the runner unless it runs. mu is held.
func (t *sessionFanout) wake(s *Subscription) {
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

// notify records that the session is at cursor and gen, and wakes all subscriptions if that is news.
func (t *sessionFanout) notify(cursor, gen uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.advance(cursor, gen) {
		t.wakeAll()
	}
}

// isNewAuthority reports whether gen is higher than known.
func (t *sessionFanout) isNewAuthority(gen uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return gen > t.gen
}

// advance records a cursor and an AuthGen; news reports whether either is higher than known
// before. mu is held.
func (t *sessionFanout) advance(cursor, gen uint64) (news bool) {
	t.heardDuringRead.cursor, t.heardDuringRead.gen = max(t.heardDuringRead.cursor, cursor), max(t.heardDuringRead.gen, gen)
	news = cursor > t.cursor || gen > t.gen
	t.cursor, t.gen = max(t.cursor, cursor), max(t.gen, gen)
	return news
}

// expire wakes the subscriptions whose refs may have expired by now, to be checked again.
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

// EndAll ends every subscription with why, through the runner. The runner skips a subscription
// whose snapshot is being sent, so that one is ended here.
func (t *sessionFanout) endAll(why *fault.Error) {
	t.mu.Lock()
	t.endReason = why
	over := t.finishAll(why, func(s *Subscription) bool { return s.inSnapshot })
	t.wakeAll()
	t.mu.Unlock()
	for _, f := range over {
		f()
	}
}

// fail ends every subscription after a panic of the runner, since it is not known which of
// them it was serving.
func (t *sessionFanout) fail(why *fault.Error) {
	t.mu.Lock()
	t.running = false
	over := t.finishAll(why, func(*Subscription) bool { return true })
	t.mu.Unlock()
	for _, f := range over {
		_ = admission.CatchPanic(t.hub.log, "tell a subscriber of its end", f) // it is logged
	}
}

// finishAll calls finish for all subscriptions that meant selects. mu is held.
func (t *sessionFanout) finishAll(why *fault.Error, meant func(*Subscription) bool) (over []func()) {
	for s := range t.subs {
		if meant(s) {
			over = append(over, t.finish(s, why))
		}
	}
	return over
}

// publish adds the events of a commit of this replica to the tail.
func (t *sessionFanout) publish(p *session.PublishedSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bytes := p.Events.TotalBytes()
	switch {
	case p.Events.Len() == 0 || t.tail.Len() > 0 && p.Row.Cursor <= t.tail.Last():
		// nothing new, or a later commit was published first
	case p.AuthChanged || bytes > t.hub.tailBytes:
		t.clearTail() // authority changed: every subscription reads the log, and is checked
	case t.tail.Len() > 0 && t.tailGen == p.Row.AuthGen && t.tail.Last()+1 == p.Events.First() && t.tailBytes+bytes <= t.hub.tailBytes:
		t.tail, t.tailBytes = t.tail.Append(p.Events), t.tailBytes+bytes
	default:
		t.tail, t.tailGen, t.tailBytes = session.UnscopedEvents{}.Append(p.Events), p.Row.AuthGen, bytes
	}
	t.advance(p.Row.Cursor, p.Row.AuthGen)
	t.wakeAll()
}

func (t *sessionFanout) clearTail() {
	t.tail, t.tailGen, t.tailBytes = session.UnscopedEvents{}, 0, 0
	t.shown.Clear()
}

// run is the goroutine of the runner.
func (t *sessionFanout) run() {
	defer t.hub.endTask()
	if why := admission.CatchPanic(t.hub.log, "send events", t.dispatch); why != nil {
		t.fail(why)
	}
}

// dispatch serves subscriptions until none is ready.
func (t *sessionFanout) dispatch() {
	for {
		r, more := t.nextRound()
		t.deliverAll(r.out)
		for _, f := range r.ended {
			f()
		}
		read := len(r.readers) == 0 || t.read(r.readers)
		for _, s := range r.turns {
			if !read || !s.skipped { // a skipped one has not been able to use its turn
				s.conn.endTurn(&s.waiter)()
			}
		}
		if !read || !more {
			return
		}
	}
}

// round is the work of the runner for the subscriptions that were ready.
type round struct {
	out     []delivery      // from the tail
	readers []*Subscription // need the log
	ended   []func()        // notify the sinks of ended subscriptions
	turns   []*Subscription // have their turn on their connections, which ends with the round
}

// nextRound empties the ready list. more is false, and the runner stops, if the list was empty.
func (t *sessionFanout) nextRound() (r round, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ready) == 0 {
		t.running = false
		t.clearTail() // a later subscription reads the log
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
		case s.conn.isWaiting(&s.waiter): // woken when its connection has room
		case t.tail.Covers(s.cursor+1) && t.tailGen == s.authGen && !t.tailExpired(s):
			if !t.continues(s, t.tail) {
				r.ended = append(r.ended, t.finish(s, LogDiverged(s.cursor)))
				continue
			}
			r.out = s.nextDeliveries(r.out, t.tail)
			if s.cursor < t.cursor && !t.tail.Covers(s.cursor+1) {
				t.wake(s)
			}
		case s.hasRoom(s.window / 2): // otherwise the next ack wakes it
			read = true
		}
		if read {
			r.readers = append(r.readers, s)
		} else {
			s.skipped = false // it does not keep its turn, if it has one, for a page
		}
	}
	return r, true
}

// tailExpired reports whether the ref of s may have expired by the tail's last event.
func (t *sessionFanout) tailExpired(s *Subscription) bool {
	return s.expires != 0 && t.tail.LastAt() >= s.expires
}

// read serves readers from one page of the log. The page starts at the first reader that the
// page before skipped, or else at the first reader. read returns false if the log cannot be
// read now: the runner stops, and is started again later.
func (t *sessionFanout) read(readers []*Subscription) bool {
	var refs []string
	for _, s := range readers {
		refs = append(refs, s.auth.Refs()...)
	}
	slices.Sort(refs)
	refs = slices.Compact(refs) // many subscriptions may share one ref
	t.mu.Lock()
	first := readers[max(slices.IndexFunc(readers, func(s *Subscription) bool { return s.skipped }), 0)]
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
	t.deliverAll(out)
	for _, f := range over {
		f()
	}
	return true
}

// distribute gives each reader its events of a page that was read after cursor from.
func (t *sessionFanout) distribute(page *session.Unscoped[*session.LogPage], readers []*Subscription, from uint64) (begun []func(), out []delivery, over []func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failedReads = 0
	row, events := page.Access().Row, session.EventsOf(page)
	if row != nil {
		found := t.advance(row.Cursor, row.AuthGen) // no other notification of it may come
		t.cursor, t.gen = row.Cursor, row.AuthGen
		if t.advance(t.heardDuringRead.cursor, t.heardDuringRead.gen) || found {
			t.wakeAll() // including subscriptions that waited for a higher cursor, which was wrong
		}
	}
	for _, s := range readers {
		if s.finished {
			continue
		}
		why := t.admit(s, page)
		if why == nil && !t.continues(s, events) {
			why = LogDiverged(s.cursor)
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
		out = s.nextDeliveries(out, events)
		s.skipped = s.cursor == before && before != from && s.cursor < row.Cursor
		switch {
		case s.cursor < row.Cursor:
			// If the page has its next event but there was no room, the next ack
			// wakes it.
			if s.cursor != before || before != from || s.authGen != t.gen {
				t.wake(s)
			}
		case row.Life == session.Deleted:
			over = append(over, func() { s.endAfter(row.Cursor, SessionDeleted()) }) // once its last event was sent
		}
	}
	return begun, out, over
}

// admit checks the authority of s against a page and records how long that holds. mu is held.
func (t *sessionFanout) admit(s *Subscription, page *session.Unscoped[*session.LogPage]) *fault.Error {
	access := page.Access()
	row := access.Row
	grant, why := s.auth.Check(access, capability.Read)
	if grant != nil {
		s.actor = grant.Actor
	}
	if why != nil && why.Code != fault.SessionDeleted { // it is ended with that after the log's last event
		return why
	}
	s.authorized, s.authGen, s.expires, s.grant, s.hashKey = true, row.AuthGen, grant.Expires, grant, access.Key
	s.sight = session.SightOf(grant, s.keys)
	before := max(grant.VisibleFrom, 1) - 1 // the first event that the ref shows comes after it
	if s.cursor < before && s.cursor <= row.Cursor {
		s.cursor, s.head, s.resumeHash = before, session.Hash{}, session.Hash{} // its last event is not adjacent to the first one shown
	}
	if s.cursor == before && s.cursor > row.Cursor {
		return nil // that event is still to come
	}
	if why := CheckCursor(row, s.cursor); why != nil {
		return why
	}
	if s.resumeHash != (session.Hash{}) {
		s.head = session.HashAt(page, s.cursor)
		if !session.SameLog(page, grant, s.cursor, s.resumeHash) {
			return LogDiverged(s.cursor)
		}
		s.resumeHash = session.Hash{}
	}
	if s.cursor == row.Cursor && s.head != (session.Hash{}) && s.head != row.Head {
		return LogDiverged(s.cursor)
	}
	return nil
}

// continues reports whether events follow the last one of s, by its hash; true if that hash is
// not known or the next event is not among them. mu is held.
func (t *sessionFanout) continues(s *Subscription, events session.UnscopedEvents) bool {
	next := s.cursor + 1
	return s.head == (session.Hash{}) || !events.Covers(next) || t.chain.Follows(events, next, s.head)
}

// deferReaders retries readers after a backoff, since the log cannot be read. Readers that have
// not begun are refused instead: their callers decide when to retry. If the fan-out is ending,
// all subscriptions are ended.
func (t *sessionFanout) deferReaders(readers []*Subscription, err error) {
	why := fault.From(t.hub.log, err, "read the log")
	t.mu.Lock()
	var over []func()
	if t.endReason != nil {
		over = t.finishAll(t.endReason, func(*Subscription) bool { return true })
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

// errSuperseded reports that a delivery was not made because an earlier one was not sent.
var errSuperseded = errors.New("an earlier delivery was not sent")

// wouldBlockPause is the pause before sending again to a connection that would block.
const wouldBlockPause = 50 * time.Millisecond

// burst is how many deliveries are passed on before other goroutines get a turn: each has a connection write, and whoever
// has become able to run meanwhile, as a commit has, would wait for all of them.
const burst = 16

// deliverAll passes deliveries to their sinks. No lock is held.
func (t *sessionFanout) deliverAll(all []delivery) {
	for i, d := range all {
		if i%burst == burst-1 {
			runtime.Gosched()
		}
		t.deliver(d)
	}
}

// deliver passes a delivery to its sink. No lock is held.
func (t *sessionFanout) deliver(d delivery) {
	s := d.sub
	t.mu.Lock()
	void := s.generation != d.generation
	t.mu.Unlock()
	if void {
		t.acked(d, errSuperseded)
		return
	}
	shown := d.shown
	d.shown = nil // a peer that does not answer retains none
	began := time.Now()
	s.sink.Events(shown, func(err error) {
		if err == nil {
			t.hub.cfg.ObserveDelivery(time.Since(began).Seconds())
		}
		t.acked(d, err)
	})
}

// acked handles the result of a delivery.
func (t *sessionFanout) acked(d delivery, err error) {
	s := d.sub
	t.mu.Lock()
	if s.finished { // finish has released its bytes
		t.mu.Unlock()
		return
	}
	s.inFlight -= d.bytes
	if err == nil && s.window < s.windowMax {
		s.window = min(2*s.window, s.windowMax)
	}
	then, wake := func() {}, s.conn.release(d.bytes)
	switch {
	case errors.Is(err, errSuperseded): // the failed delivery has arranged the wake-up
	case errors.Is(err, ErrWouldBlock): // it was not sent, and its successors must not be
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

// finish removes s from the fan-out, and returns the function that notifies its subscriber, to
// be called without locks. mu is held. A nil why notifies nobody: the subscriber has
// unsubscribed. Bytes in flight to it are released, so that a peer that no longer answers does
// not hold up the connection's other subscriptions.
func (t *sessionFanout) finish(s *Subscription, why *fault.Error) func() {
	s.finished = true
	s.generation++ // voids deliveries that are not sent yet
	delete(t.subs, s)
	if s.cancelSnapshot != nil {
		s.cancelSnapshot() // its snapshot, if that is still being sent
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
			s.sink.Ended(nil)
			return
		}
		t.tell(s, why)
	}
}

// tell ends the sink of s with why, retrying while the connection would block. Until then s
// counts as one of the connection's subscriptions.
func (t *sessionFanout) tell(s *Subscription, why *fault.Error) {
	if s.sink.Ended(why) {
		s.conn.removeSub()
		return
	}
	t.hub.runAfter(wouldBlockPause, func() { t.tell(s, why) })
}
