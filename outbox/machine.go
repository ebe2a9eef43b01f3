package outbox

// The logic of queues and streams, without database, clock or socket. The loop
// in run.go tells it what happened and does what it puts into out, in order.
// It is used by one goroutine at a time.
//
// A stream is closed until there is something to send, asks for a place (there
// are only so many) and for its host (of a host that is down only one stream
// tries), is opened, and then keeps a window of batches in flight. Whatever goes
// wrong with it closes it, and it is opened again after a while and sends its
// unanswered batches again, the same ones in the same order: the ledger answers
// what it has seen as duplicates.

import (
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// Waiting times that nobody needs to set.
const (
	ackIdle    = time.Second     // acked_through goes without a batch after so long
	idleClose  = 5 * time.Minute // a stream with nothing to do is closed after so long
	owedRelook = time.Second     // how often a batch that waits for another stream is looked at anyway
	fairTurn   = time.Second     // a stream that is never idle gives up its place after so long, if others wait for one
)

// firstRoom is how many batches a stream may have in flight at first.
const firstRoom = 16

// route is how a stream is to be opened.
type route struct {
	ref   string // id of the ref to go through
	space string // id of the space's ref, while the session is yet to be made
	with  string // id of a ref that must be held live: fork's via
	host  string // what fails together: the ref's address
	proof uint64 // differs if any of the refs does, in its secret too
	seen  uint64 // how often the refs had changed when it was found, if it was found beside the loop
	sure  bool   // the ref is known to be good
	held  bool   // another ref is about to take the ref's place: nothing new is sent until it has
}

// entry is a batch with seqs that has no outcome yet; as a stream's head, what finding
// the way takes of one without seqs (first is 0).
type entry struct {
	num      int64
	id       string
	session  string
	via      string
	first    uint64
	n        int // seqs
	bytes    int
	hold     uint64 // lowest seq of its stream it still refers to; 0: none
	route    route
	problem  *fault.Error // why there is no route
	passing  bool         // … which another look may change
	damaged  bool         // … which nothing will
	body     *body
	marked   bool // its row says in flight
	attempts int
	wire     *ledger.Batch // what is sent, but for incarnation and acked_through
	under    grounds       // of the openings on which it was sent; zero: of none
	unsure   bool          // … or on others, or by a former sender: nobody knows
}

func (e *entry) last() uint64 { return e.first + uint64(e.n) - 1 }

// phase is a stream's stage.
type phase uint8

const (
	closed phase = iota
	opening
	settling // open, but a drop has to be decided before anything is sent
	open
)

// stream is the queue of one session.
type stream struct {
	session  string
	phase    phase
	conn     int      // the present opening's number; what comes from others is ignored
	opened   route    // how the present opening was made
	queue    []*entry // with seqs, unanswered, in order
	sent     int      // of queue, in this opening
	inflight int      // bytes of those
	queued   int      // bytes of queue
	holds    int      // entries of queue with a hold
	head     *entry   // first batch without a seq, as last looked at
	backlog  bool     // there may be rows without a seq
	asking   bool     // the database is being asked about them
	again    bool     // … and more came meanwhile
	owed     []string // batches of other sessions that the head waits for: any may decide it
	lookedAt time.Time
	relook   bool // there was news too soon after: look when the time has come

	unstored int    // answered batches whose outcomes are not stored
	unkept   bool   // … and never will be, of one: nothing more is acknowledged or sent in this term
	stored   uint64 // outcomes are stored through here
	told     uint64 // … and the server knows
	ackAt    time.Time

	drops     map[int64]*fault.Error // batches with ops to void; the error is why, nil if asked for
	early     map[int64]bool         // batches to be dropped that were not in queue when that was asked for
	needRaise bool                   // before it may be opened again
	deciding  bool                   // the database is being told what becomes of drops: send nothing
	refusal   *refusal               // the server makes no such stream: nothing is sent until that is settled here

	room      int  // batches that may be in flight, as far as is known
	roomFor   int  // answers since room last grew
	crowded   bool // the server was too busy for more once
	heard     bool // an answer came in this opening
	gaps      int  // in a row
	backoff   backoff.BackOff
	retryAt   time.Time
	stopped   *fault.Error
	inReady   bool
	inWaiting bool
	hostEpoch int       // of its host when the opening began
	since     time.Time // when it was opened
	idleSince time.Time
	alarm     alarm
}

// host is what several streams need and lose together.
type host struct {
	name    string
	down    bool
	epoch   int // raised when it goes down
	probe   *stream
	retryAt time.Time
	backoff backoff.BackOff
	waiting []*stream
	alarm   alarm
}

// machine is all streams of one term of sending.
type machine struct {
	win        Window
	newBackoff func() backoff.BackOff

	streams map[string]*stream
	unmade  map[string]route // sessions whose create did not apply, and how they are reached
	hosts   map[string]*host
	owing   map[string]map[string]bool // batch → sessions that wait for it
	ready   []*stream                  // wait for a place
	places  int                        // taken
	conns   int
	raising bool
	fenced  bool
	alarms  alarms
	out     []action
}

func newMachine(win Window, newBackoff func() backoff.BackOff) *machine {
	return &machine{win: win, newBackoff: newBackoff, streams: make(map[string]*stream), unmade: make(map[string]route),
		hosts: make(map[string]*host), owing: make(map[string]map[string]bool)}
}

func (m *machine) do(a action) { m.out = append(m.out, a) }

func (m *machine) stream(session string) *stream {
	s := m.streams[session]
	if s == nil {
		s = &stream{session: session, backoff: m.newBackoff(), room: min(firstRoom, m.win.Batches)}
		s.alarm.s = s
		m.streams[session] = s
	}
	return s
}

func (m *machine) host(name string) *host {
	h := m.hosts[name]
	if h == nil {
		h = &host{name: name, backoff: m.newBackoff()}
		h.alarm.h = h
		m.hosts[name] = h
	}
	return h
}

// recovered takes a session's unanswered batches after a takeover, in order.
func (m *machine) recovered(session string, entries []*entry, making route, drops map[int64]*fault.Error, now time.Time) {
	s := m.stream(session)
	m.know(session, making)
	for _, e := range entries {
		e.unsure = true
	}
	s.add(entries)
	if len(drops) > 0 {
		s.drops = drops // the takeover has raised the incarnation
	}
	m.step(s, now)
}

// found says that sessions have rows without a seq, or may have.
func (m *machine) found(sessions []string, now time.Time) {
	for _, id := range sessions {
		s := m.stream(id)
		if len(s.owed) > 0 && now.Sub(s.lookedAt) >= owedRelook {
			m.paid(s)
		} else if len(s.owed) > 0 {
			m.relook(s, now)
		}
		m.more(s, now)
	}
}

// relook has a stream looked at, owed or not, once some time has gone by since
// the last look.
func (m *machine) relook(s *stream, now time.Time) {
	if !s.relook {
		s.relook = true
		m.arm(s, now)
	}
}

func (m *machine) more(s *stream, now time.Time) {
	s.backlog = true
	s.again = s.asking
	m.step(s, now)
}

// sequenced takes a batch that was committed with its seqs.
func (m *machine) sequenced(e *entry, now time.Time) {
	s := m.stream(e.session)
	s.add([]*entry{e})
	m.fenceEarly(s, []*entry{e}, now)
	m.step(s, now)
}

// looked is the answer to actLook and actLoad: batches that have seqs now, the
// first that has none, or all that it waits for. making is as the database knows it.
func (m *machine) looked(session string, entries []*entry, head *entry, more bool, owed []string, making route, now time.Time) {
	s := m.stream(session)
	s.asking = false
	s.head, s.backlog = head, more || s.again
	s.lookedAt = now
	m.know(session, making)
	s.add(entries)
	for _, batch := range owed {
		if m.owing[batch] == nil {
			m.owing[batch] = make(map[string]bool)
		}
		m.owing[batch][session] = true
	}
	if s.owed = owed; len(owed) > 0 && s.again {
		m.relook(s, now)
	}
	s.again = false
	m.fenceEarly(s, entries, now)
	m.step(s, now)
}

// know keeps how a session is reached whose create did not apply.
func (m *machine) know(session string, making route) {
	if making.space != "" {
		m.unmade[session] = making
	}
}

func (s *stream) add(entries []*entry) {
	if len(s.queue) == 0 && s.unstored == 0 && len(entries) > 0 {
		s.stored = max(s.stored, entries[0].first-1) // all before is finished
	}
	for _, e := range entries {
		s.queue = append(s.queue, e)
		s.queued += e.bytes
		if e.hold > 0 {
			s.holds++
		}
	}
}

// finished says that a batch has its outcomes stored, here or elsewhere.
func (m *machine) finished(batch string, now time.Time) {
	for _, session := range slices.Sorted(maps.Keys(m.owing[batch])) {
		s := m.streams[session]
		m.paid(s)
		m.more(s, now)
	}
}

// paid has a stream wait for no batch any more.
func (m *machine) paid(s *stream) {
	for _, batch := range s.owed {
		delete(m.owing[batch], s.session)
		if len(m.owing[batch]) == 0 {
			delete(m.owing, batch)
		}
	}
	s.owed, s.relook = nil, false
}

// storedThrough says that outcomes are stored up to a seq.
func (m *machine) storedThrough(session string, through uint64, now time.Time) {
	s := m.streams[session]
	if s == nil {
		return
	}
	s.unstored--
	if !s.unkept {
		s.stored = max(s.stored, through)
	}
	m.step(s, now)
}

// unstorable says that what became of a batch cannot be stored. The server keeps
// its answer until it is, so the stream stands still: the next term sends the batch again.
func (m *machine) unstorable(session string, why *fault.Error, now time.Time) {
	s := m.streams[session]
	if m.fenced || s == nil || s.unkept {
		return
	}
	s.unkept = true
	if s.phase != closed {
		m.closeQuietly(s)
	}
	if s.stopped == nil {
		s.stopped = why
		m.do(action{kind: actStop, session: session, err: why})
	}
	m.fillPlaces(now)
}

// ackable is how far the server may forget: what is stored, and nothing that an
// unanswered batch still refers to.
func (s *stream) ackable() uint64 {
	through := s.stored
	if s.holds > 0 {
		for _, e := range s.queue {
			if e.hold > 0 {
				through = min(through, e.hold-1)
			}
		}
	}
	return through
}

// step does whatever the stream can do now.
func (m *machine) step(s *stream, now time.Time) {
	switch {
	case m.fenced || s.stopped != nil:
	case s.phase == open:
		m.pump(s, now)
	case s.phase != closed:
	case s.refusal != nil:
		if !s.asking {
			m.ask(s, action{kind: actRefuse, session: s.session, route: s.refusal.to, err: s.refusal.why})
		}
	case len(s.queue) > 0 || s.head != nil:
		m.tryOpen(s, now)
	case s.asking || len(s.owed) > 0:
	case s.backlog:
		m.ask(s, action{kind: actLook, session: s.session})
	case s.unstored == 0 && !s.needRaise:
		m.alarms.set(&s.alarm, time.Time{})
		delete(m.streams, s.session)
	}
}

func (m *machine) ask(s *stream, a action) {
	s.asking, s.again = true, false
	m.do(a)
}

// next is the batch that the stream is opened for.
func (s *stream) next() *entry {
	if len(s.queue) > 0 {
		return s.queue[0]
	}
	return s.head
}

// pump sends what the window allows, fetches more, or finds that there is
// nothing to do.
func (m *machine) pump(s *stream, now time.Time) {
	over := len(m.ready) > 0 && now.Sub(s.since) >= fairTurn
	if over && s.sent == 0 {
		m.close(s, now)
		m.step(s, now)
		return
	}
	for s.sent < len(s.queue) && !over {
		e := s.queue[s.sent]
		if e.route.held {
			break
		}
		if !s.opened.serves(e.route) {
			if s.sent == 0 {
				m.close(s, now)
				m.step(s, now)
				return
			}
			break
		}
		if s.sent > 0 && (s.sent >= s.room || s.inflight+e.bytes > m.win.Bytes) {
			break
		}
		s.sent++
		s.inflight += e.bytes
		e.sentUnder(s.opened.grounds())
		s.told = max(s.told, s.ackable())
		m.do(action{kind: actSend, session: s.session, conn: s.conn, entry: e, through: s.told})
		if !e.marked {
			e.marked = true
			m.do(action{kind: actMark, entry: e})
		}
	}
	blocked := s.head != nil && s.head.damaged
	if blocked && len(s.queue) == 0 {
		m.close(s, now)
		m.step(s, now)
		return
	}
	if s.backlog && !s.asking && len(s.owed) == 0 && !blocked && !over {
		batches, bytes := aheadFactor*m.win.Batches-len(s.queue), aheadFactor*m.win.Bytes-s.queued
		if len(s.queue) == 0 || batches*2 >= aheadFactor*m.win.Batches && bytes*2 >= aheadFactor*m.win.Bytes {
			m.ask(s, action{kind: actLoad, session: s.session, batches: batches, bytes: bytes})
		}
	}
	if len(s.queue) > 0 || s.asking || s.backlog && len(s.owed) == 0 {
		s.idleSince, s.ackAt = time.Time{}, time.Time{}
		return
	}
	if s.idleSince.IsZero() {
		s.idleSince = now
	}
	if len(m.ready) > 0 {
		m.close(s, now)
		m.step(s, now)
		return
	}
	if s.ackable() > s.told && s.ackAt.IsZero() {
		s.ackAt = now.Add(ackIdle)
	}
	m.arm(s, now)
}

// serves says whether a stream opened this way can carry a batch that wants that one.
func (r route) serves(want route) bool {
	return r.ref == want.ref && (want.space == "" || r.space == want.space) && (want.with == "" || r.with == want.with)
}

// replied takes the answer to a batch: the first unanswered one of this opening.
func (m *machine) replied(session string, conn int, r Reply, now time.Time) {
	s := m.streams[session]
	if m.fenced || s == nil || s.conn != conn || s.phase != open || s.sent == 0 {
		return
	}
	e := s.queue[0]
	if r.Err == nil && !answers(e, r.Outcomes) {
		r.Err = fault.Internal.With("the answer to batch %s does not fit it", e.id)
	}
	if r.Err != nil {
		m.fail(s, r.Err, now)
		return
	}
	h := m.host(s.opened.host)
	h.backoff.Reset()
	s.backoff.Reset()
	s.heard, s.gaps = true, 0
	s.widen(m.win.Batches)
	s.queue[0] = nil
	s.queue = s.queue[1:]
	s.sent--
	s.inflight -= e.bytes
	s.queued -= e.bytes
	if e.hold > 0 {
		s.holds--
	}
	delete(s.drops, e.num)
	s.unstored++
	act := action{kind: actFinish, entry: e, answer: r.Outcomes}
	if first := &e.body.ops[0]; creates(first.method) {
		if first.travels() && r.Outcomes[0].Status == ledger.Applied {
			delete(m.unmade, session)
		} else { // e's own route may be another one since it was sent
			m.unmade[session] = s.opened
			act.route = s.opened
		}
	}
	m.do(act)
	m.step(s, now)
}

// narrow and widen find how many batches in flight a server has room for: slow
// start, then additive increase and multiplicative decrease (RFC 5681, section
// 3.1, by batches). One more costs little; too many are all sent again.
func (s *stream) narrow(inFlight int) { s.room, s.roomFor, s.crowded = max(inFlight/2, 1), 0, true }

func (s *stream) widen(window int) {
	if s.roomFor++; !s.crowded || s.roomFor >= s.room {
		s.room, s.roomFor = min(s.room+1, window), 0
	}
}

// answers says whether outcomes are those of the entry's ops.
func answers(e *entry, outs []ledger.Outcome) bool {
	if len(outs) != e.n {
		return false
	}
	k := 0
	for i := range e.body.ops {
		if op := &e.body.ops[i]; op.travels() {
			if outs[k].OpID != op.id {
				return false
			}
			k++
		}
	}
	return true
}
