package machine

// The machine's opening of streams, their failures, and dropping ops that may have been sent.

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// tryOpen opens a stream that has something to send, if its backoff is over, its host is not
// down and a slot is free.
func (m *Machine) tryOpen(s *Stream, now time.Time) {
	if now.Before(s.RetryAt) {
		m.arm(s, now)
		return
	}
	if s.resolvingDrops {
		return
	}
	if s.needsNewIncarnation {
		if !m.raisingIncarnation {
			m.raisingIncarnation = true
			m.emit(Action{Kind: ActRaiseIncarnation})
		}
		return
	}
	if e := s.Next(); e.RouteErr != nil && e.RetryRoute {
		m.findRoute(s, now)
		return
	} else if e.RouteErr != nil {
		s.Stopped = e.RouteErr
		m.emit(Action{Kind: ActSetStopped, Session: s.Session, Err: e.RouteErr})
		return
	}
	to := s.Next().Route
	if to.Rotating {
		return // it is loaded again when that is done
	}
	h := m.hostOf(to.Host)
	if h.down && h.probe != s && (h.probe != nil || now.Before(h.retryAt)) {
		if !s.inHostQueue {
			s.inHostQueue = true
			h.waiting = append(h.waiting, s)
		}
		return
	}
	if m.OpenStreams >= m.win.Streams && !m.closeIdlest(now) {
		if !s.inOpenQueue {
			s.inOpenQueue = true
			m.OpenQueue = append(m.OpenQueue, s)
		}
		return
	}
	if h.down {
		h.probe = s
	}
	if making := m.uncreated[s.Session]; to.Space == "" && making.Ref == to.Ref {
		to.Space = making.Space
	}
	m.OpenStreams++
	m.lastConnID++
	s.Phase, s.connID, s.OpenRoute, s.hostEpoch, s.answered = PhaseOpening, m.lastConnID, to, h.epoch, false
	s.InFlight, s.inFlightBytes = 0, 0
	m.emit(Action{Kind: ActOpen, Session: s.Session, ConnID: s.connID, Route: to, AwaitLastSeq: len(s.Drops) > 0})
}

// findRoute asks for the routes whose lookup failed, now and then after a backoff.
func (m *Machine) findRoute(s *Stream, now time.Time) {
	s.RetryAt = now.Add(s.backoff.NextBackOff())
	e := s.Next()
	m.emit(Action{Kind: ActRecordAttempt, Entries: []*Entry{e}, At: s.RetryAt, Err: e.RouteErr})
	m.arm(s, now)
	a := Action{Kind: ActFindRoute, Session: s.Session}
	for _, e := range s.Queue {
		if e.RetryRoute {
			a.Entries = append(a.Entries, e)
		}
	}
	if s.Unsequenced != nil && s.Unsequenced.RetryRoute {
		a.Entries = append(a.Entries, s.Unsequenced)
	}
	m.emit(a)
}

// Routed reports that ActFindRoute was done.
func (m *Machine) Routed(session string, now time.Time) {
	s := m.Streams[session]
	if s == nil {
		return
	}
	if e := s.Next(); e != nil && !e.RetryRoute {
		s.RetryAt = time.Time{}
	}
	m.Step(s, now)
}

// InFlightVia counts the batches in flight under a ref, over all streams.
func (m *Machine) InFlightVia(ref string) (n int) {
	for _, s := range m.Streams {
		if s.Phase != PhaseClosed && (s.OpenRoute.Ref == ref || s.OpenRoute.Space == ref) {
			n += s.InFlight
		}
	}
	return n
}

// closeIdlest closes the open stream that has been idle for longest.
func (m *Machine) closeIdlest(now time.Time) bool {
	var oldest *Stream
	for _, s := range m.Streams {
		if s.Phase == PhaseOpen && !s.idleSince.IsZero() && (oldest == nil || s.idlerThan(oldest)) {
			oldest = s
		}
	}
	if oldest == nil {
		return false
	}
	m.acknowledge(oldest)
	m.tearDown(oldest)
	m.Step(oldest, now)
	return true
}

// idlerThan reports whether s has been idle for longer than o.
func (s *Stream) idlerThan(o *Stream) bool {
	return s.idleSince.Before(o.idleSince) || s.idleSince.Equal(o.idleSince) && s.Session < o.Session
}

// close closes a stream and gives its slot to the next that waits.
func (m *Machine) close(s *Stream, now time.Time) {
	m.acknowledge(s)
	m.tearDown(s)
	m.openWaiting(now)
}

// openWaiting gives free slots to the streams that wait for one.
func (m *Machine) openWaiting(now time.Time) {
	for len(m.OpenQueue) > 0 && m.OpenStreams < m.win.Streams {
		next := m.OpenQueue[0]
		m.OpenQueue = m.OpenQueue[1:]
		next.inOpenQueue = false
		if m.Streams[next.Session] == next {
			m.Step(next, now)
		}
	}
}

func (m *Machine) tearDown(s *Stream) {
	m.OpenStreams--
	s.Phase = PhaseClosed
	s.InFlight, s.inFlightBytes = 0, 0
	s.idleSince, s.ackAt = time.Time{}, time.Time{}
	if h := m.hostOf(s.OpenRoute.Host); h.probe == s {
		h.probe = nil
		m.Timers.set(&h.timer, h.retryAt)
	}
	m.emit(Action{Kind: ActClose, Session: s.Session, ConnID: s.connID})
}

// StreamOpened is the answer to ActOpen. lastSeq counts if the action had AwaitLastSeq.
func (m *Machine) StreamOpened(session string, conn int, lastSeq uint64, err error, now time.Time) {
	s := m.Streams[session]
	if m.fenced || s == nil || s.connID != conn || s.Phase != PhaseOpening {
		return
	}
	if err != nil {
		m.fail(s, err, now)
		return
	}
	h := m.hostOf(s.OpenRoute.Host)
	if h.probe == s {
		h.probe = nil
	}
	s.Phase, s.openedAt = PhaseOpen, now
	if len(s.Drops) > 0 {
		s.Phase = PhaseResolvingDrops
		m.resolveDrops(s, lastSeq)
	}
	if h.down {
		h.down = false
		m.hostUp(h, now)
	}
	m.Step(s, now)
}

// hostUp resumes all streams that waited for a host.
func (m *Machine) hostUp(h *host, now time.Time) {
	waiting := h.waiting
	h.waiting = nil
	for _, s := range waiting {
		s.inHostQueue = false
		if m.Streams[s.Session] == s { // else it was removed meanwhile, and its session may have another
			m.Step(s, now)
		}
	}
}

// probeHost lets one of the streams that wait for a down host try.
func (m *Machine) probeHost(h *host, now time.Time) {
	for h.down && h.probe == nil && len(h.waiting) > 0 && !now.Before(h.retryAt) {
		s := h.waiting[0]
		h.waiting = h.waiting[1:]
		s.inHostQueue = false
		if m.Streams[s.Session] == s {
			m.Step(s, now)
		}
	}
}

// LinkBroken reports that an opened stream is unusable.
func (m *Machine) LinkBroken(session string, conn int, now time.Time) {
	s := m.Streams[session]
	if m.fenced || s == nil || s.connID != conn || s.Phase == PhaseClosed {
		return
	}
	m.fail(s, fault.Disconnected.With("the link broke"), now)
}

// Wake reports that links are back: all backoffs end.
func (m *Machine) Wake(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(m.Hosts)) {
		h := m.Hosts[name]
		h.retryAt = now
		h.backoff.Reset()
		m.probeHost(h, now)
	}
	for _, s := range m.SortedStreams() {
		s.RetryAt = time.Time{}
		if s.Phase == PhaseClosed {
			m.Step(s, now)
		}
	}
}

// SortedStreams returns all streams in a fixed order, so that the same events emit the same
// actions.
func (m *Machine) SortedStreams() []*Stream {
	return slices.SortedFunc(maps.Values(m.Streams), func(a, b *Stream) int { return strings.Compare(a.Session, b.Session) })
}

// Resume lets a stopped stream try again.
func (m *Machine) Resume(session string, now time.Time) {
	if s := m.Streams[session]; s != nil && s.Stopped != nil && !s.storeFailed {
		s.Stopped = nil
		s.Unsequenced, s.unread = nil, false // its route may have changed
		m.emit(Action{Kind: ActSetStopped, Session: session})
		m.markBacklog(s, now)
	}
}

// RestoredAdvice is the advice for a server that has lost outcomes it answered.
const RestoredAdvice = "it was restored to an earlier time and nothing more is sent: restore its newer data, or send what the session lacks again (mooring outbox reconcile)"

// ErrorClass is what an error means for a stream.
type ErrorClass uint8

const (
	RetryHost   ErrorClass = iota // the path to the server failed: all streams of the host back off
	RetryStream                   // this stream backs off
	StopStream                    // it stops until someone decides
	LeaseLost                     // this process sends no more
	ResendFirst                   // seqs are missing: send from the first unanswered batch
	Unsendable                    // the batch itself: voids take its place
)

// ClassifyError returns the class of an error. Unknown errors are retried.
func ClassifyError(err error) (ErrorClass, *fault.Error) {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = &fault.Error{Code: fault.CodeOf(err), Message: err.Error()}
		if f.Code == fault.Internal {
			f.Code = fault.Disconnected
		}
	}
	switch c := f.Code; {
	case c == fault.Fenced:
		return LeaseLost, f
	case c == fault.Gap:
		return ResendFirst, f
	case c == fault.Disconnected, c == fault.Unavailable, c == fault.Draining, c == fault.Canceled:
		return RetryHost, f
	case c.Transient(), c == fault.Internal, c == fault.OutboxDamaged, c == fault.DiskFull, c == fault.None:
		return RetryStream, f
	case c == fault.TooLarge, c == fault.Malformed:
		return Unsendable, f
	default:
		return StopStream, f
	}
}

// fail closes a stream and decides how it goes on.
func (m *Machine) fail(s *Stream, err error, now time.Time) {
	what, f := ClassifyError(err)
	tried := s.Queue[:s.InFlight]
	if len(tried) == 0 {
		if e := s.Next(); e != nil {
			tried = []*Entry{e}
		}
	}
	heard, sending := s.answered, s.Phase == PhaseOpen && s.InFlight > 0
	if what == LeaseLost {
		m.fenced = true
		m.emit(Action{Kind: ActFenced, Err: f})
		return
	}
	m.tearDown(s)
	retry := now
	h := m.hostOf(s.OpenRoute.Host)
	if what != RetryHost && h.down { // the host answers
		h.down = false
		defer m.hostUp(h, now)
	}
	switch what {
	case RetryHost:
		if heard {
			break // it worked till now: try at once, then with backoff
		}
		if s.hostEpoch == h.epoch {
			h.epoch++
			h.down = true
			h.retryAt = now.Add(h.backoff.NextBackOff())
			m.Timers.set(&h.timer, h.retryAt)
		}
		retry = h.retryAt
	case ResendFirst:
		if len(s.Queue) > 0 && f.At > 0 && f.At < s.Queue[0].FirstSeq {
			what = StopStream
			f = fault.ServerBehind.With("the server expects seq %d, and outcomes up to %d are stored here: %s", f.At, s.Queue[0].FirstSeq-1, RestoredAdvice).Pos(f.At)
			break
		}
		if s.consecutiveGaps++; s.consecutiveGaps > 1 {
			retry = now.Add(s.backoff.NextBackOff())
		}
	case Unsendable:
		if !sending || s.Queue[0].allVoid() || s.Queue[0].FirstSeq <= s.recordedThrough {
			what = StopStream // it was not about a batch, the batch is all voids, or the server has recorded it and cannot answer
			break
		}
		m.requestDrop(s, s.Queue[0].Num, f)
	case RetryStream:
		if f.Code == fault.Overloaded && sending {
			s.onOverload(len(tried))
		}
		wait := s.backoff.NextBackOff()
		if f.Copying() {
			wait = min(wait, CopyPoll)
		}
		retry = now.Add(wait)
	}
	if what == StopStream && s.isRefused(f) {
		s.refusal, s.RetryAt = &Refusal{s.OpenRoute, f}, time.Time{}
		m.Step(s, now)
		m.openWaiting(now)
		return
	}
	if what == StopStream {
		s.Stopped = f
		m.emit(Action{Kind: ActSetStopped, Session: s.Session, Err: f})
		retry = time.Time{}
	} else if s.unread { // a stopped stream keeps it, to see whether its route changes
		s.Unsequenced, s.unread = nil, false
	}
	s.RetryAt = retry
	for _, e := range tried {
		e.Attempts++
	}
	if len(tried) > 0 {
		m.emit(Action{Kind: ActRecordAttempt, Entries: append([]*Entry(nil), tried...), At: retry, Err: f})
	}
	if what == RetryHost && h.down {
		s.RetryAt = time.Time{} // the host's retry time counts
	}
	m.Step(s, now)
	m.openWaiting(now)
}

// allVoid reports whether the batch consists of voids alone.
func (e *Entry) allVoid() bool {
	for i := range e.Body.Ops {
		if op := &e.Body.Ops[i]; op.TakesSeq() && !op.Void {
			return false
		}
	}
	return true
}

// DropRequested reports that ops of a batch with seqs are to be dropped. They may have been
// sent, and may still be in flight: so a higher incarnation fences them, and then the server's
// last seq decides.
func (m *Machine) DropRequested(session string, num int64, now time.Time) {
	s := m.Streams[session]
	switch {
	case s == nil: // its outcome is stored
	case slices.ContainsFunc(s.Queue, func(e *Entry) bool { return e.Num == num }):
		m.fenceForDrop(s, num, now)
	default: // its outcome is being stored, or it was sequenced and its entry is yet to come
		if s.dropsOnArrival == nil {
			s.dropsOnArrival = make(map[int64]bool)
		}
		s.dropsOnArrival[num] = true
	}
}

// UnsequencedDropped reports that ops without a seq were dropped: a batch that a stream is to
// be opened for, or was stopped for, may be gone or changed.
func (m *Machine) UnsequencedDropped(now time.Time) {
	for _, s := range m.SortedStreams() {
		switch {
		case s.Unsequenced == nil:
		case s.Stopped != nil:
			m.Resume(s.Session, now)
		default:
			s.Unsequenced = nil
			m.markBacklog(s, now)
		}
	}
}

// fenceForDrop closes a stream, so that a batch in its queue can be dropped.
func (m *Machine) fenceForDrop(s *Stream, num int64, now time.Time) {
	if s.Phase != PhaseClosed {
		m.tearDown(s)
	}
	m.requestDrop(s, num, nil)
	m.Step(s, now)
	m.openWaiting(now)
}

// fenceOnArrival applies the drops that were requested before the entries arrived.
func (m *Machine) fenceOnArrival(s *Stream, entries []*Entry, now time.Time) {
	for _, e := range entries {
		if s.dropsOnArrival[e.Num] {
			delete(s.dropsOnArrival, e.Num)
			m.fenceForDrop(s, e.Num, now)
		}
	}
}

func (m *Machine) requestDrop(s *Stream, num int64, why *fault.Error) {
	if s.Drops == nil {
		s.Drops = make(map[int64]*fault.Error)
	}
	s.Drops[num] = why
	s.needsNewIncarnation = true
}

// IncarnationRaised reports that the incarnation was raised.
func (m *Machine) IncarnationRaised(now time.Time) {
	m.raisingIncarnation = false
	for _, s := range m.SortedStreams() {
		if s.needsNewIncarnation {
			s.needsNewIncarnation = false
			m.Step(s, now)
		}
	}
}

// resolveDrops emits ActResolveDrops for a stream: ops that the server has recorded stand.
func (m *Machine) resolveDrops(s *Stream, lastSeq uint64) {
	a := Action{Kind: ActResolveDrops, Session: s.Session, ConnID: s.connID, Through: lastSeq, Drops: s.Drops}
	for _, e := range s.Queue {
		if _, asked := s.Drops[e.Num]; asked {
			a.Entries = append(a.Entries, e)
		}
	}
	s.Drops, s.resolvingDrops, s.recordedThrough = nil, true, lastSeq
	m.emit(a)
}

// DropsResolved takes the batches as they are after ActResolveDrops.
func (m *Machine) DropsResolved(session string, conn int, entries []*Entry, now time.Time) {
	s := m.Streams[session]
	if s == nil {
		return
	}
	for _, e := range entries {
		for i := range s.Queue {
			if s.Queue[i].Num == e.Num {
				s.Queue[i] = e
			}
		}
	}
	s.resolvingDrops = false
	if s.connID == conn && s.Phase == PhaseResolvingDrops {
		s.Phase = PhaseOpen
	}
	m.Step(s, now)
}

// UsesTargets reports whether the stream may be opened with refs for one of these targets.
func (s *Stream) UsesTargets(targets []string) bool {
	return slices.ContainsFunc(targets, func(t string) bool { return t == s.Session || capability.IsSpace(t) })
}
