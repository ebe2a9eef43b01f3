package outbox

// The machine: the logic of queues and streams, without database, clock or socket. The loop in
// run.go passes it events and performs the actions it emits, in order. One goroutine uses it at
// a time.
//
// A stream is closed until there is something to send. Then it waits for a free slot
// (Window.Streams) and for its host (while a host is down only one of its streams tries), is
// opened, and keeps a window of batches in flight. Any failure closes it; after a backoff it is
// opened again and resends its unanswered batches, the same ones in the same order: the ledger
// answers those it has recorded as duplicates.

import (
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// Intervals that have no setting.
const (
	idleAckDelay    = time.Second     // acked_through is sent without a batch after this long
	idleTimeout     = 5 * time.Minute // a stream with nothing to do is closed after this long
	recheckInterval = time.Second     // how often a batch that waits for another stream is loaded anyway
	fairnessQuantum = time.Second     // a stream that is never idle is closed after this long, if others wait for a slot
)

// initialCwnd is how many batches a stream may have in flight at first.
const initialCwnd = 16

// route is how a stream is opened.
type route struct {
	ref            string // id of the ref to go through
	space          string // id of the space's ref, until the session is created
	forkVia        string // id of fork's via, a ref that must be held live
	host           string // the ref's address: its streams fail together
	fingerprint    uint64 // changes with any of the refs, including its secret
	refsGeneration uint64 // refCache's generation when the route was found, if it was found outside the loop
	confirmed      bool   // the ref is known to be good
	rotating       bool   // another ref is about to replace the ref: nothing new is sent until it has
}

// entry is a batch with seqs that has no outcome yet. As a stream's unsequenced one it holds
// only what finding the route takes, and firstSeq is 0.
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
	retryRoute       bool         // routeErr may be gone at the next lookup
	damaged          bool         // routeErr is permanent: the row cannot be read
	body             *body
	markedInFlight   bool // its row says in flight
	attempts         int
	wireBatch        *ledger.Batch // the batch as sent, but for incarnation and acked_through
	sentAuthority    authority     // of the openings on which it was sent; zero: not sent
	authorityUnknown bool          // it was sent under several authorities, or by a former sender
}

func (e *entry) lastSeq() uint64 { return e.firstSeq + uint64(e.seqCount) - 1 }

// phase is a stream's stage.
type phase uint8

const (
	phaseClosed phase = iota
	phaseOpening
	phaseResolvingDrops // open, but requested drops are resolved before anything is sent
	phaseOpen
)

// streamState is the queue of one session.
type streamState struct {
	session       string
	phase         phase
	connID        int      // number of the present opening; events of others are ignored
	openRoute     route    // the route of the present opening
	queue         []*entry // with seqs, unanswered, in order
	inFlight      int      // batches of queue sent in this opening
	inFlightBytes int      // bytes of inFlight
	queuedBytes   int      // bytes of queue
	pins          int      // entries of queue with a pinSeq
	unsequenced   *entry   // first batch without a seq, as last loaded
	hasBacklog    bool     // there may be rows without a seq
	loading       bool     // actPeek or actLoad is under way
	loadAgain     bool     // more rows came while loading
	blockedOn     []string // batches of other sessions that unsequenced waits for: any may decide it
	loadedAt      time.Time
	recheck       bool // a load was asked for within recheckInterval of the last: load when it is over

	unstored      int    // answered batches whose outcomes are not stored
	storeFailed   bool   // outcomes of a batch cannot be stored: nothing more is acknowledged or sent in this term
	storedThrough uint64 // outcomes are stored up to this seq
	ackedThrough  uint64 // the server knows that outcomes are stored up to this seq
	ackAt         time.Time

	drops               map[int64]*fault.Error // batches with ops to void, by row num; the error is why, nil if requested
	dropsOnArrival      map[int64]bool         // batches to drop that were not in queue when the drop was requested
	needsNewIncarnation bool                   // raise the incarnation before opening again
	resolvingDrops      bool                   // actResolveDrops is under way: send nothing
	recordedThrough     uint64                 // the server's last seq when drops were last resolved
	refusal             *refusal               // the server does not create the stream: nothing is sent until actEndRefused is done

	cwnd            int  // congestion window: batches that may be in flight
	acksAtCwnd      int  // answers since cwnd last grew
	sawOverload     bool // the server has reported overload
	answered        bool // an answer came in this opening
	consecutiveGaps int  // Gap answers in a row
	backoff         backoff.BackOff
	retryAt         time.Time
	stopped         *fault.Error
	inOpenQueue     bool
	inHostQueue     bool
	hostEpoch       int       // host.epoch when the opening began
	openedAt        time.Time // when it was opened
	idleSince       time.Time
	timer           timer
}

// host is an address whose streams fail together.
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
	blockedSessions    map[string]map[string]bool // sessions by the batch they are blocked on
	openQueue          []*streamState             // streams that wait for a slot
	openStreams        int                        // slots in use, at most Window.Streams
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

// recovered adds a session's unanswered batches after a takeover, in order.
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

// backlogFound reports that sessions have, or may have, rows without a seq.
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

// scheduleRecheck loads a stream's rows again, even if it is blocked, recheckInterval after the
// last load.
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

// sequenced adds a batch that was committed with its seqs.
func (m *machine) sequenced(e *entry, now time.Time) {
	s := m.streamOf(e.session)
	s.enqueue([]*entry{e})
	m.fenceOnArrival(s, []*entry{e}, now)
	m.step(s, now)
}

// loaded is the answer to actPeek and actLoad: the batches that have seqs now, the first that
// has none, or the batches it is blocked on. making is the route of an uncreated session, from
// the database.
func (m *machine) loaded(session string, entries []*entry, head *entry, more bool, blockedOn []string, making route, now time.Time) {
	s := m.streamOf(session)
	s.loading = false
	s.unsequenced, s.hasBacklog = head, more || s.loadAgain
	s.loadedAt = now
	m.noteUncreated(session, making)
	s.enqueue(entries)
	for _, batch := range blockedOn {
		if m.blockedSessions[batch] == nil {
			m.blockedSessions[batch] = make(map[string]bool)
		}
		m.blockedSessions[batch][session] = true
	}
	if s.blockedOn = blockedOn; len(blockedOn) > 0 && s.loadAgain {
		m.scheduleRecheck(s, now)
	}
	s.loadAgain = false
	m.fenceOnArrival(s, entries, now)
	m.step(s, now)
}

// noteUncreated records how a session is reached whose create did not apply.
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

// finished reports that a batch's outcomes are stored, here or elsewhere.
func (m *machine) finished(batch string, now time.Time) {
	for _, session := range slices.Sorted(maps.Keys(m.blockedSessions[batch])) {
		s := m.streams[session]
		m.unblock(s)
		m.markBacklog(s, now)
	}
}

// unblock clears the batches that a stream is blocked on.
func (m *machine) unblock(s *streamState) {
	for _, batch := range s.blockedOn {
		delete(m.blockedSessions[batch], s.session)
		if len(m.blockedSessions[batch]) == 0 {
			delete(m.blockedSessions, batch)
		}
	}
	s.blockedOn, s.recheck = nil, false
}

// outcomesStored reports that outcomes are stored up to a seq.
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

// storeFailed reports that a batch's outcomes cannot be stored. The server keeps its answer
// until they are, so the stream sends no more; the next term sends the batch again.
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

// ackable is the seq up to which the server may forget outcomes: stored, and below every seq
// that an unanswered batch still refers to.
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

// step advances the stream as far as its state allows now.
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

// pump sends within the window, loads more rows, or closes an idle stream.
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

// serves reports whether a stream opened by r can carry a batch whose route is want.
func (r route) serves(want route) bool {
	return r.ref == want.ref && (want.space == "" || r.space == want.space) && (want.forkVia == "" || r.forkVia == want.forkVia)
}

// replied takes the answer to the first unanswered batch of this opening.
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
		} else { // e's own route may have changed since it was sent
			m.uncreated[session] = s.openRoute
			act.route = s.openRoute
		}
	}
	m.emit(act)
	m.step(s, now)
}

// onOverload and onAck adapt cwnd to the server's capacity: slow start, then additive increase
// and multiplicative decrease (RFC 5681, section 3.1, by batches). One batch too many is cheap;
// on overload all are resent.
func (s *streamState) onOverload(inFlight int) {
	s.cwnd, s.acksAtCwnd, s.sawOverload = max(inFlight/2, 1), 0, true
}

func (s *streamState) onAck(window int) {
	if s.acksAtCwnd++; !s.sawOverload || s.acksAtCwnd >= s.cwnd {
		s.cwnd, s.acksAtCwnd = min(s.cwnd+1, window), 0
	}
}

// outcomesMatch reports whether outs are the outcomes of the entry's ops.
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
