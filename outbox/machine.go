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
	idleAckDelay    = time.Second     // acked_through goes without a batch after so long
	idleTimeout     = 5 * time.Minute // a stream with nothing to do is closed after so long
	recheckInterval = time.Second     // how often a batch that waits for another stream is looked at anyway
	fairnessQuantum = time.Second     // a stream that is never idle gives up its place after so long, if others wait for one
)

// initialCwnd is how many batches a stream may have in flight at first.
const initialCwnd = 16

// route is how a stream is to be opened.
type route struct {
	ref            string // id of the ref to go through
	space          string // id of the space's ref, while the session is yet to be made
	forkVia        string // id of a ref that must be held live: fork's via
	host           string // what fails together: the ref's address
	fingerprint    uint64 // differs if any of the refs does, in its secret too
	refsGeneration uint64 // how often the refs had changed when it was found, if it was found beside the loop
	confirmed      bool   // the ref is known to be good
	rotating       bool   // another ref is about to take the ref's place: nothing new is sent until it has
}

// entry is a batch with seqs that has no outcome yet; as a stream's head, what finding
// the way takes of one without seqs (first is 0).
type entry struct {
	num              int64
	id               string
	session          string
	via              string
	firstSeq         uint64
	seqCount         int // seqs
	bytes            int
	pinSeq           uint64 // lowest seq of its stream it still refers to; 0: none
	route            route
	routeErr         *fault.Error // why there is no route
	retryRoute       bool         // … which another look may change
	damaged          bool         // … which nothing will
	body             *body
	markedInFlight   bool // its row says in flight
	attempts         int
	wireBatch        *ledger.Batch // what is sent, but for incarnation and acked_through
	sentAuthority    authority     // of the openings on which it was sent; zero: of none
	authorityUnknown bool          // … or on others, or by a former sender: nobody knows
}

func (e *entry) lastSeq() uint64 { return e.firstSeq + uint64(e.seqCount) - 1 }

// phase is a stream's stage.
type phase uint8

const (
	phaseClosed phase = iota
	phaseOpening
	phaseResolvingDrops // open, but a drop has to be decided before anything is sent
	phaseOpen
)

// streamState is the queue of one session.
type streamState struct {
	session       string
	phase         phase
	connID        int      // the present opening's number; what comes from others is ignored
	openRoute     route    // how the present opening was made
	queue         []*entry // with seqs, unanswered, in order
	inFlight      int      // of queue, in this opening
	inFlightBytes int      // bytes of those
	queuedBytes   int      // bytes of queue
	pins          int      // entries of queue with a hold
	unsequenced   *entry   // first batch without a seq, as last looked at
	hasBacklog    bool     // there may be rows without a seq
	loading       bool     // the database is being asked about them
	loadAgain     bool     // … and more came meanwhile
	blockedOn     []string // batches of other sessions that the head waits for: any may decide it
	loadedAt      time.Time
	recheck       bool // there was news too soon after: look when the time has come

	unstored      int    // answered batches whose outcomes are not stored
	storeFailed   bool   // … and never will be, of one: nothing more is acknowledged or sent in this term
	storedThrough uint64 // outcomes are stored through here
	ackedThrough  uint64 // … and the server knows
	ackAt         time.Time

	drops               map[int64]*fault.Error // batches with ops to void; the error is why, nil if asked for
	dropsOnArrival      map[int64]bool         // batches to be dropped that were not in queue when that was asked for
	needsNewIncarnation bool                   // before it may be opened again
	resolvingDrops      bool                   // the database is being told what becomes of drops: send nothing
	recordedThrough     uint64                 // the server's last seq when a drop was decided last
	refusal             *refusal               // the server makes no such stream: nothing is sent until that is settled here

	cwnd            int  // batches that may be in flight, as far as is known
	acksAtCwnd      int  // answers since room last grew
	sawOverload     bool // the server was too busy for more once
	answered        bool // an answer came in this opening
	consecutiveGaps int  // in a row
	backoff         backoff.BackOff
	retryAt         time.Time
	stopped         *fault.Error
	inOpenQueue     bool
	inHostQueue     bool
	hostEpoch       int       // of its host when the opening began
	openedAt        time.Time // when it was opened
	idleSince       time.Time
	timer           timer
}

// host is what several streams need and lose together.
type host struct {
	name    string
	down    bool
	epoch   int // raised when it goes down
	probe   *streamState
	retryAt time.Time
	backoff backoff.BackOff
	waiting []*streamState
	timer   timer
}

// machine is all streams of one term of sending.
type machine struct {
	win        Window
	newBackoff func() backoff.BackOff

	streams            map[string]*streamState
	uncreated          map[string]route // sessions whose create did not apply, and how they are reached
	hosts              map[string]*host
	blockedSessions    map[string]map[string]bool // batch → sessions that wait for it
	openQueue          []*streamState             // wait for a place
	openStreams        int                        // taken
	lastConnID         int
	raisingIncarnation bool
	fenced             bool
	timers             timerHeap
	actions            []action
}

func newMachine(win Window, newBackoff func() backoff.BackOff) *machine {
	return &machine{win: win, newBackoff: newBackoff, streams: make(map[string]*streamState), uncreated: make(map[string]route),
		hosts: make(map[string]*host), blockedSessions: make(map[string]map[string]bool)}
}

func (m *machine) emit(a action) { m.actions = append(m.actions, a) }

func (m *machine) streamOf(session string) *streamState {
	s := m.streams[session]
	if s == nil {
		s = &streamState{session: session, backoff: m.newBackoff(), cwnd: min(initialCwnd, m.win.Batches)}
		s.timer.stream = s
		m.streams[session] = s
	}
	return s
}

func (m *machine) hostOf(name string) *host {
	h := m.hosts[name]
	if h == nil {
		h = &host{name: name, backoff: m.newBackoff()}
		h.timer.host = h
		m.hosts[name] = h
	}
	return h
}

// recovered takes a session's unanswered batches after a takeover, in order.
func (m *machine) recovered(session string, entries []*entry, making route, drops map[int64]*fault.Error, now time.Time) {
	s := m.streamOf(session)
	m.noteUncreated(session, making)
	for _, e := range entries {
		e.authorityUnknown = true
	}
	s.enqueue(entries)
	if len(drops) > 0 {
		s.drops = drops // the takeover has raised the incarnation
	}
	m.step(s, now)
}

// backlogFound says that sessions have rows without a seq, or may have.
func (m *machine) backlogFound(sessions []string, now time.Time) {
	for _, id := range sessions {
		s := m.streamOf(id)
		if len(s.blockedOn) > 0 && now.Sub(s.loadedAt) >= recheckInterval {
			m.unblock(s)
		} else if len(s.blockedOn) > 0 {
			m.scheduleRecheck(s, now)
		}
		m.markBacklog(s, now)
	}
}

// scheduleRecheck has a stream looked at, blocked or not, once some time has gone by since
// the last look.
func (m *machine) scheduleRecheck(s *streamState, now time.Time) {
	if !s.recheck {
		s.recheck = true
		m.arm(s, now)
	}
}

func (m *machine) markBacklog(s *streamState, now time.Time) {
	s.hasBacklog = true
	s.loadAgain = s.loading
	m.step(s, now)
}

// sequenced takes a batch that was committed with its seqs.
func (m *machine) sequenced(e *entry, now time.Time) {
	s := m.streamOf(e.session)
	s.enqueue([]*entry{e})
	m.fenceOnArrival(s, []*entry{e}, now)
	m.step(s, now)
}

// loaded is the answer to actPeek and actLoad: batches that have seqs now, the
// first that has none, or all that it waits for. making is as the database knows it.
func (m *machine) loaded(session string, entries []*entry, head *entry, more bool, owed []string, making route, now time.Time) {
	s := m.streamOf(session)
	s.loading = false
	s.unsequenced, s.hasBacklog = head, more || s.loadAgain
	s.loadedAt = now
	m.noteUncreated(session, making)
	s.enqueue(entries)
	for _, batch := range owed {
		if m.blockedSessions[batch] == nil {
			m.blockedSessions[batch] = make(map[string]bool)
		}
		m.blockedSessions[batch][session] = true
	}
	if s.blockedOn = owed; len(owed) > 0 && s.loadAgain {
		m.scheduleRecheck(s, now)
	}
	s.loadAgain = false
	m.fenceOnArrival(s, entries, now)
	m.step(s, now)
}

// noteUncreated keeps how a session is reached whose create did not apply.
func (m *machine) noteUncreated(session string, making route) {
	if making.space != "" {
		m.uncreated[session] = making
	}
}

func (s *streamState) enqueue(entries []*entry) {
	if len(s.queue) == 0 && s.unstored == 0 && len(entries) > 0 {
		s.storedThrough = max(s.storedThrough, entries[0].firstSeq-1) // all before is finished
	}
	for _, e := range entries {
		s.queue = append(s.queue, e)
		s.queuedBytes += e.bytes
		if e.pinSeq > 0 {
			s.pins++
		}
	}
}

// finished says that a batch has its outcomes stored, here or elsewhere.
func (m *machine) finished(batch string, now time.Time) {
	for _, session := range slices.Sorted(maps.Keys(m.blockedSessions[batch])) {
		s := m.streams[session]
		m.unblock(s)
		m.markBacklog(s, now)
	}
}

// unblock has a stream wait for no batch any more.
func (m *machine) unblock(s *streamState) {
	for _, batch := range s.blockedOn {
		delete(m.blockedSessions[batch], s.session)
		if len(m.blockedSessions[batch]) == 0 {
			delete(m.blockedSessions, batch)
		}
	}
	s.blockedOn, s.recheck = nil, false
}

// outcomesStored says that outcomes are stored up to a seq.
func (m *machine) outcomesStored(session string, through uint64, now time.Time) {
	s := m.streams[session]
	if s == nil {
		return
	}
	s.unstored--
	if !s.storeFailed {
		s.storedThrough = max(s.storedThrough, through)
	}
	m.step(s, now)
}

// storeFailed says that what became of a batch cannot be stored. The server keeps
// its answer until it is, so the stream stands still: the next term sends the batch again.
func (m *machine) storeFailed(session string, why *fault.Error, now time.Time) {
	s := m.streams[session]
	if m.fenced || s == nil || s.storeFailed {
		return
	}
	s.storeFailed = true
	if s.phase != phaseClosed {
		m.tearDown(s)
	}
	if s.stopped == nil {
		s.stopped = why
		m.emit(action{kind: actSetStopped, session: session, err: why})
	}
	m.openWaiting(now)
}

// ackable is how far the server may forget: what is stored, and nothing that an
// unanswered batch still refers to.
func (s *streamState) ackable() uint64 {
	through := s.storedThrough
	if s.pins > 0 {
		for _, e := range s.queue {
			if e.pinSeq > 0 {
				through = min(through, e.pinSeq-1)
			}
		}
	}
	return through
}

// step does whatever the stream can do now.
func (m *machine) step(s *streamState, now time.Time) {
	switch {
	case m.fenced || s.stopped != nil:
	case s.phase == phaseOpen:
		m.pump(s, now)
	case s.phase != phaseClosed:
	case s.refusal != nil:
		if !s.loading {
			m.startLoad(s, action{kind: actEndRefused, session: s.session, route: s.refusal.route, err: s.refusal.err})
		}
	case len(s.queue) > 0 || s.unsequenced != nil:
		m.tryOpen(s, now)
	case s.loading || len(s.blockedOn) > 0:
	case s.hasBacklog:
		m.startLoad(s, action{kind: actPeek, session: s.session})
	case s.unstored == 0 && !s.needsNewIncarnation:
		m.timers.set(&s.timer, time.Time{})
		delete(m.streams, s.session)
	}
}

func (m *machine) startLoad(s *streamState, a action) {
	s.loading, s.loadAgain = true, false
	m.emit(a)
}

// next is the batch that the stream is opened for.
func (s *streamState) next() *entry {
	if len(s.queue) > 0 {
		return s.queue[0]
	}
	return s.unsequenced
}

// pump sends what the window allows, fetches more, or finds that there is
// nothing to do.
func (m *machine) pump(s *streamState, now time.Time) {
	over := len(m.openQueue) > 0 && now.Sub(s.openedAt) >= fairnessQuantum
	if over && s.inFlight == 0 {
		m.close(s, now)
		m.step(s, now)
		return
	}
	for s.inFlight < len(s.queue) && !over {
		e := s.queue[s.inFlight]
		if e.route.rotating {
			break
		}
		if !s.openRoute.serves(e.route) {
			if s.inFlight == 0 {
				m.close(s, now)
				m.step(s, now)
				return
			}
			break
		}
		if s.inFlight > 0 && (s.inFlight >= s.cwnd || s.inFlightBytes+e.bytes > m.win.Bytes) {
			break
		}
		s.inFlight++
		s.inFlightBytes += e.bytes
		e.noteSent(s.openRoute.authority())
		s.ackedThrough = max(s.ackedThrough, s.ackable())
		m.emit(action{kind: actSend, session: s.session, connID: s.connID, entry: e, through: s.ackedThrough})
		if !e.markedInFlight {
			e.markedInFlight = true
			m.emit(action{kind: actMarkInFlight, entry: e})
		}
	}
	blocked := s.unsequenced != nil && s.unsequenced.damaged
	if blocked && len(s.queue) == 0 {
		m.close(s, now)
		m.step(s, now)
		return
	}
	if s.hasBacklog && !s.loading && len(s.blockedOn) == 0 && !blocked && !over {
		batches, bytes := windowsAhead*m.win.Batches-len(s.queue), windowsAhead*m.win.Bytes-s.queuedBytes
		if len(s.queue) == 0 || batches*2 >= windowsAhead*m.win.Batches && bytes*2 >= windowsAhead*m.win.Bytes {
			m.startLoad(s, action{kind: actLoad, session: s.session, batches: batches, bytes: bytes})
		}
	}
	if len(s.queue) > 0 || s.loading || s.hasBacklog && len(s.blockedOn) == 0 {
		s.idleSince, s.ackAt = time.Time{}, time.Time{}
		return
	}
	if s.idleSince.IsZero() {
		s.idleSince = now
	}
	if len(m.openQueue) > 0 {
		m.close(s, now)
		m.step(s, now)
		return
	}
	if s.ackable() > s.ackedThrough && s.ackAt.IsZero() {
		s.ackAt = now.Add(idleAckDelay)
	}
	m.arm(s, now)
}

// serves says whether a stream opened this way can carry a batch that wants that one.
func (r route) serves(want route) bool {
	return r.ref == want.ref && (want.space == "" || r.space == want.space) && (want.forkVia == "" || r.forkVia == want.forkVia)
}

// replied takes the answer to a batch: the first unanswered one of this opening.
func (m *machine) replied(session string, conn int, r Reply, now time.Time) {
	s := m.streams[session]
	if m.fenced || s == nil || s.connID != conn || s.phase != phaseOpen || s.inFlight == 0 {
		return
	}
	e := s.queue[0]
	if r.Err == nil && !outcomesMatch(e, r.Outcomes) {
		r.Err = fault.Internal.With("the answer to batch %s does not fit it", e.id)
	}
	if r.Err != nil {
		m.fail(s, r.Err, now)
		return
	}
	h := m.hostOf(s.openRoute.host)
	h.backoff.Reset()
	s.backoff.Reset()
	s.answered, s.consecutiveGaps = true, 0
	s.onAck(m.win.Batches)
	s.queue[0] = nil
	s.queue = s.queue[1:]
	s.inFlight--
	s.inFlightBytes -= e.bytes
	s.queuedBytes -= e.bytes
	if e.pinSeq > 0 {
		s.pins--
	}
	delete(s.drops, e.num)
	s.unstored++
	act := action{kind: actFinish, entry: e, outcomes: r.Outcomes}
	if first := &e.body.ops[0]; createsSession(first.method) {
		if first.takesSeq() && r.Outcomes[0].Status == ledger.Applied {
			delete(m.uncreated, session)
		} else { // e's own route may be another one since it was sent
			m.uncreated[session] = s.openRoute
			act.route = s.openRoute
		}
	}
	m.emit(act)
	m.step(s, now)
}

// onOverload and onAck find how many batches in flight a server has room for: slow
// start, then additive increase and multiplicative decrease (RFC 5681, section
// 3.1, by batches). One more costs little; too many are all sent again.
func (s *streamState) onOverload(inFlight int) {
	s.cwnd, s.acksAtCwnd, s.sawOverload = max(inFlight/2, 1), 0, true
}

func (s *streamState) onAck(window int) {
	if s.acksAtCwnd++; !s.sawOverload || s.acksAtCwnd >= s.cwnd {
		s.cwnd, s.acksAtCwnd = min(s.cwnd+1, window), 0
	}
}

// outcomesMatch says whether outcomes are those of the entry's ops.
func outcomesMatch(e *entry, outs []ledger.Outcome) bool {
	if len(outs) != e.seqCount {
		return false
	}
	k := 0
	for i := range e.body.ops {
		if op := &e.body.ops[i]; op.takesSeq() {
			if outs[k].OpID != op.id {
				return false
			}
			k++
		}
	}
	return true
}
