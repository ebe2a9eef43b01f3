package machine

// The streams and their queues: what happened, and what is sent next.

import (
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
)

// Intervals that have no setting.
const (
	IdleAckDelay    = time.Second     // acked_through is sent without a batch after this long
	IdleTimeout     = 5 * time.Minute // a stream with nothing to do is closed after this long
	RecheckInterval = time.Second     // how often a batch that waits for another stream is loaded anyway
	CopyPoll        = 2 * time.Second // a fork that the server is copying is asked for again after this long at most
	fairnessQuantum = time.Second     // a stream that is never idle is closed after this long, if others wait for a slot
)

// initialCwnd is how many batches a stream may have in flight at first.
const initialCwnd = 16

// Machine is all streams of one term of sending.
type Machine struct {
	win        Window
	newBackoff func() backoff.BackOff

	Streams            map[string]*Stream
	uncreated          map[string]Route // sessions whose create did not apply, and how they are reached
	Hosts              map[string]*host
	BlockedSessions    map[string]map[string]bool // sessions by the batch they are blocked on
	OpenQueue          []*Stream                  // streams that wait for a slot
	OpenStreams        int                        // slots in use, at most Window.Streams
	lastConnID         int
	raisingIncarnation bool
	fenced             bool
	Timers             timerHeap
	Actions            []Action
}

func New(win Window, newBackoff func() backoff.BackOff) *Machine {
	return &Machine{win: win, newBackoff: newBackoff, Streams: make(map[string]*Stream), uncreated: make(map[string]Route),
		Hosts: make(map[string]*host), BlockedSessions: make(map[string]map[string]bool)}
}

func (m *Machine) emit(a Action) { m.Actions = append(m.Actions, a) }

func (m *Machine) StreamOf(session string) *Stream {
	s := m.Streams[session]
	if s == nil {
		s = &Stream{Session: session, backoff: m.newBackoff(), cwnd: min(initialCwnd, m.win.Batches)}
		s.timer.stream = s
		m.Streams[session] = s
	}
	return s
}

func (m *Machine) hostOf(name string) *host {
	h := m.Hosts[name]
	if h == nil {
		h = &host{name: name, backoff: m.newBackoff()}
		h.timer.host = h
		m.Hosts[name] = h
	}
	return h
}

// Recovered adds a session's unanswered batches after a takeover, in order.
func (m *Machine) Recovered(session string, entries []*Entry, making Route, drops map[int64]*fault.Error, now time.Time) {
	s := m.StreamOf(session)
	m.noteUncreated(session, making)
	for _, e := range entries {
		e.authorityUnknown = true
	}
	s.enqueue(entries)
	if len(drops) > 0 {
		s.Drops = drops // the takeover has raised the incarnation
	}
	m.Step(s, now)
}

// BacklogFound reports that sessions have, or may have, rows without a seq.
func (m *Machine) BacklogFound(sessions []string, now time.Time) {
	for _, id := range sessions {
		s := m.StreamOf(id)
		if len(s.BlockedOn) > 0 && now.Sub(s.loadedAt) >= RecheckInterval {
			m.unblock(s)
		} else if len(s.BlockedOn) > 0 {
			m.scheduleRecheck(s, now)
		}
		m.markBacklog(s, now)
	}
}

// scheduleRecheck loads a stream's rows again, even if it is blocked, RecheckInterval after the
// last load.
func (m *Machine) scheduleRecheck(s *Stream, now time.Time) {
	if !s.Recheck {
		s.Recheck = true
		m.arm(s, now)
	}
}

func (m *Machine) markBacklog(s *Stream, now time.Time) {
	s.hasBacklog = true
	s.loadAgain = s.Loading
	m.Step(s, now)
}

// Sequenced adds a batch that was committed with its seqs.
func (m *Machine) Sequenced(e *Entry, now time.Time) {
	s := m.StreamOf(e.Session)
	s.enqueue([]*Entry{e})
	m.fenceOnArrival(s, []*Entry{e}, now)
	m.Step(s, now)
}

// Waiting is BacklogFound for a row that was committed just now. If its session has no stream, one is
// opened without loading the row first: rows before it are found once the stream is open, and that
// the session's create did not apply, if opening fails.
func (m *Machine) Waiting(head *Entry, now time.Time) {
	if m.Streams[head.Session] != nil {
		m.BacklogFound([]string{head.Session}, now)
		return
	}
	s := m.StreamOf(head.Session)
	s.Unsequenced, s.unread, s.hasBacklog = head, true, true
	m.Step(s, now)
}

// Loaded is the answer to ActPeek and ActLoad: the batches that have seqs now, the first that
// has none, or the batches it is blocked on. making is the route of an uncreated session, from
// the database.
func (m *Machine) Loaded(session string, entries []*Entry, head *Entry, more bool, blockedOn []string, making Route, now time.Time) {
	s := m.StreamOf(session)
	s.Loading = false
	s.Unsequenced, s.unread, s.hasBacklog = head, false, more || s.loadAgain
	s.loadedAt = now
	m.noteUncreated(session, making)
	s.enqueue(entries)
	for _, batch := range blockedOn {
		if m.BlockedSessions[batch] == nil {
			m.BlockedSessions[batch] = make(map[string]bool)
		}
		m.BlockedSessions[batch][session] = true
	}
	if s.BlockedOn = blockedOn; len(blockedOn) > 0 && s.loadAgain {
		m.scheduleRecheck(s, now)
	}
	s.loadAgain = false
	m.fenceOnArrival(s, entries, now)
	m.Step(s, now)
}

// noteUncreated records how a session is reached whose create did not apply.
func (m *Machine) noteUncreated(session string, making Route) {
	if making.Space != "" {
		m.uncreated[session] = making
	}
}

func (s *Stream) enqueue(entries []*Entry) {
	if len(s.Queue) == 0 && s.unstored == 0 && len(entries) > 0 {
		s.StoredThrough = max(s.StoredThrough, entries[0].FirstSeq-1) // all before is finished
	}
	for _, e := range entries {
		s.Queue = append(s.Queue, e)
		s.queuedBytes += e.Bytes
		if e.PinSeq > 0 {
			s.pins++
		}
	}
}

// Finished reports that a batch's outcomes are stored, here or elsewhere.
func (m *Machine) Finished(batch string, now time.Time) {
	for _, session := range slices.Sorted(maps.Keys(m.BlockedSessions[batch])) {
		s := m.Streams[session]
		m.unblock(s)
		m.markBacklog(s, now)
	}
}

// unblock clears the batches that a stream is blocked on.
func (m *Machine) unblock(s *Stream) {
	for _, batch := range s.BlockedOn {
		delete(m.BlockedSessions[batch], s.Session)
		if len(m.BlockedSessions[batch]) == 0 {
			delete(m.BlockedSessions, batch)
		}
	}
	s.BlockedOn, s.Recheck = nil, false
}

// OutcomesStored reports that outcomes are stored up to a seq.
func (m *Machine) OutcomesStored(session string, through uint64, now time.Time) {
	s := m.Streams[session]
	if s == nil {
		return
	}
	s.unstored--
	if !s.storeFailed {
		s.StoredThrough = max(s.StoredThrough, through)
	}
	m.Step(s, now)
}

// StoreFailed reports that a batch's outcomes cannot be stored. The server keeps its answer
// until they are, so the stream sends no more; the next term sends the batch again.
func (m *Machine) StoreFailed(session string, why *fault.Error, now time.Time) {
	s := m.Streams[session]
	if m.fenced || s == nil || s.storeFailed {
		return
	}
	s.storeFailed = true
	if s.Phase != PhaseClosed {
		m.tearDown(s)
	}
	if s.Stopped == nil {
		s.Stopped = why
		m.emit(Action{Kind: ActSetStopped, Session: session, Err: why})
	}
	m.openWaiting(now)
}

// ackable is the seq up to which the server may forget outcomes: stored, and below every seq
// that an unanswered batch still refers to.
func (s *Stream) ackable() uint64 {
	through := s.StoredThrough
	if s.pins > 0 {
		for _, e := range s.Queue {
			if e.PinSeq > 0 {
				through = min(through, e.PinSeq-1)
			}
		}
	}
	return through
}

// Step advances the stream as far as its state allows now.
func (m *Machine) Step(s *Stream, now time.Time) {
	switch {
	case m.fenced || s.Stopped != nil:
	case s.Phase == PhaseOpen:
		m.pump(s, now)
	case s.Phase != PhaseClosed:
	case s.refusal != nil:
		if !s.Loading {
			m.startLoad(s, Action{Kind: ActEndRefused, Session: s.Session, Route: s.refusal.Route, Err: s.refusal.Err})
		}
	case len(s.Queue) > 0 || s.Unsequenced != nil:
		m.tryOpen(s, now)
	case s.Loading || len(s.BlockedOn) > 0:
	case s.hasBacklog:
		m.startLoad(s, Action{Kind: ActPeek, Session: s.Session})
	case s.unstored == 0 && !s.needsNewIncarnation:
		m.Timers.set(&s.timer, time.Time{})
		delete(m.Streams, s.Session)
	}
}

func (m *Machine) startLoad(s *Stream, a Action) {
	s.Loading, s.loadAgain = true, false
	m.emit(a)
}

// Next is the batch that the stream is opened for.
func (s *Stream) Next() *Entry {
	if len(s.Queue) > 0 {
		return s.Queue[0]
	}
	return s.Unsequenced
}

// pump sends within the window, loads more rows, or closes an idle stream.
func (m *Machine) pump(s *Stream, now time.Time) {
	over := len(m.OpenQueue) > 0 && now.Sub(s.openedAt) >= fairnessQuantum
	if over && s.InFlight == 0 {
		m.close(s, now)
		m.Step(s, now)
		return
	}
	for s.InFlight < len(s.Queue) && !over {
		e := s.Queue[s.InFlight]
		if e.Route.Rotating {
			break
		}
		if !s.OpenRoute.Serves(e.Route) {
			if s.InFlight == 0 {
				m.close(s, now)
				m.Step(s, now)
				return
			}
			break
		}
		if s.InFlight > 0 && (s.InFlight >= s.cwnd || s.inFlightBytes+e.Bytes > m.win.Bytes) {
			break
		}
		s.InFlight++
		s.inFlightBytes += e.Bytes
		e.noteSent(s.OpenRoute.authority())
		s.ackedThrough = max(s.ackedThrough, s.ackable())
		m.emit(Action{Kind: ActSend, Session: s.Session, ConnID: s.connID, Entry: e, Through: s.ackedThrough})
		if !e.MarkedInFlight {
			e.MarkedInFlight = true
			m.emit(Action{Kind: ActMarkInFlight, Entry: e})
		}
	}
	blocked := s.Unsequenced != nil && s.Unsequenced.Damaged
	if blocked && len(s.Queue) == 0 {
		m.close(s, now)
		m.Step(s, now)
		return
	}
	if s.hasBacklog && !s.Loading && len(s.BlockedOn) == 0 && !blocked && !over {
		batches, bytes := WindowsAhead*m.win.Batches-len(s.Queue), WindowsAhead*m.win.Bytes-s.queuedBytes
		if len(s.Queue) == 0 || batches*2 >= WindowsAhead*m.win.Batches && bytes*2 >= WindowsAhead*m.win.Bytes {
			m.startLoad(s, Action{Kind: ActLoad, Session: s.Session, Batches: batches, Bytes: bytes})
		}
	}
	if len(s.Queue) > 0 || s.Loading || s.hasBacklog && len(s.BlockedOn) == 0 {
		s.idleSince, s.ackAt = time.Time{}, time.Time{}
		return
	}
	if s.idleSince.IsZero() {
		s.idleSince = now
	}
	if len(m.OpenQueue) > 0 {
		m.close(s, now)
		m.Step(s, now)
		return
	}
	if s.ackable() > s.ackedThrough && s.ackAt.IsZero() {
		s.ackAt = now.Add(IdleAckDelay)
	}
	m.arm(s, now)
}

// Serves reports whether a stream opened by r can carry a batch whose route is want.
func (r Route) Serves(want Route) bool {
	return r.Ref == want.Ref && (want.Space == "" || r.Space == want.Space) && (want.ForkVia == "" || r.ForkVia == want.ForkVia)
}

// Replied takes the answer to the first unanswered batch of this opening: an outcome for each of
// its ops that took a seq, or the error of the call.
func (m *Machine) Replied(session string, conn int, outcomes []ledger.Outcome, err error, now time.Time) {
	s := m.Streams[session]
	if m.fenced || s == nil || s.connID != conn || s.Phase != PhaseOpen || s.InFlight == 0 {
		return
	}
	e := s.Queue[0]
	if err == nil && !outcomesMatch(e, outcomes) {
		err = fault.Internal.With("the answer to batch %s does not fit it", e.ID)
	}
	if err != nil {
		m.fail(s, err, now)
		return
	}
	h := m.hostOf(s.OpenRoute.Host)
	h.backoff.Reset()
	s.backoff.Reset()
	s.answered, s.consecutiveGaps = true, 0
	s.onAck(m.win.Batches)
	s.Queue[0] = nil
	s.Queue = s.Queue[1:]
	s.InFlight--
	s.inFlightBytes -= e.Bytes
	s.queuedBytes -= e.Bytes
	if e.PinSeq > 0 {
		s.pins--
	}
	delete(s.Drops, e.Num)
	s.unstored++
	act := Action{Kind: ActFinish, Entry: e, Outcomes: outcomes}
	if first := &e.Body.Ops[0]; intent.CreatesSession(first.Method) {
		if first.TakesSeq() && outcomes[0].Status == ledger.Applied {
			delete(m.uncreated, session)
		} else { // e's own route may have changed since it was sent
			m.uncreated[session] = s.OpenRoute
			act.Route = s.OpenRoute
		}
	}
	m.emit(act)
	m.Step(s, now)
}

// onOverload and onAck adapt cwnd to the server's capacity: slow start, then additive increase
// and multiplicative decrease (RFC 5681, section 3.1, by batches). One batch too many is cheap;
// on overload all are resent.
func (s *Stream) onOverload(inFlight int) {
	s.cwnd, s.acksAtCwnd, s.sawOverload = max(inFlight/2, 1), 0, true
}

func (s *Stream) onAck(window int) {
	if s.acksAtCwnd++; !s.sawOverload || s.acksAtCwnd >= s.cwnd {
		s.cwnd, s.acksAtCwnd = min(s.cwnd+1, window), 0
	}
}

// outcomesMatch reports whether outs are the outcomes of the entry's ops.
func outcomesMatch(e *Entry, outs []ledger.Outcome) bool {
	if len(outs) != e.SeqCount {
		return false
	}
	k := 0
	for i := range e.Body.Ops {
		if op := &e.Body.Ops[i]; op.TakesSeq() {
			if outs[k].OpID != op.ID {
				return false
			}
			k++
		}
	}
	return true
}

// WindowsAhead is how many windows of batches may have seqs.
const WindowsAhead = 4
