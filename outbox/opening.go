package outbox

// The machine's opening of streams, their failures, and dropping ops that may have been sent.

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// tryOpen opens a stream that has something to send, if its backoff is over, its host is not
// down and a slot is free.
func (m *machine) tryOpen(s *streamState, now time.Time) {
	if now.Before(s.retryAt) {
		m.arm(s, now)
		return
	}
	if s.resolvingDrops {
		return
	}
	if s.needsNewIncarnation {
		if !m.raisingIncarnation {
			m.raisingIncarnation = true
			m.emit(action{kind: actRaiseIncarnation})
		}
		return
	}
	if e := s.next(); e.routeErr != nil && e.retryRoute {
		m.findRoute(s, now)
		return
	} else if e.routeErr != nil {
		s.stopped = e.routeErr
		m.emit(action{kind: actSetStopped, session: s.session, err: e.routeErr})
		return
	}
	to := s.next().route
	if to.rotating {
		return // it is loaded again when that is done
	}
	h := m.hostOf(to.host)
	if h.down && h.probe != s && (h.probe != nil || now.Before(h.retryAt)) {
		if !s.inHostQueue {
			s.inHostQueue = true
			h.waiting = append(h.waiting, s)
		}
		return
	}
	if m.openStreams >= m.win.Streams && !m.closeIdlest(now) {
		if !s.inOpenQueue {
			s.inOpenQueue = true
			m.openQueue = append(m.openQueue, s)
		}
		return
	}
	if h.down {
		h.probe = s
	}
	if making := m.uncreated[s.session]; to.space == "" && making.ref == to.ref {
		to.space = making.space
	}
	m.openStreams++
	m.lastConnID++
	s.phase, s.connID, s.openRoute, s.hostEpoch, s.answered = phaseOpening, m.lastConnID, to, h.epoch, false
	s.inFlight, s.inFlightBytes = 0, 0
	m.emit(action{kind: actOpen, session: s.session, connID: s.connID, route: to, awaitLastSeq: len(s.drops) > 0})
}

// findRoute asks for the routes whose lookup failed, now and then after a backoff.
func (m *machine) findRoute(s *streamState, now time.Time) {
	s.retryAt = now.Add(s.backoff.NextBackOff())
	e := s.next()
	m.emit(action{kind: actRecordAttempt, entries: []*entry{e}, at: s.retryAt, err: e.routeErr})
	m.arm(s, now)
	a := action{kind: actFindRoute, session: s.session}
	for _, e := range s.queue {
		if e.retryRoute {
			a.entries = append(a.entries, e)
		}
	}
	if s.unsequenced != nil && s.unsequenced.retryRoute {
		a.entries = append(a.entries, s.unsequenced)
	}
	m.emit(a)
}

// routed reports that actFindRoute was done.
func (m *machine) routed(session string, now time.Time) {
	s := m.streams[session]
	if s == nil {
		return
	}
	if e := s.next(); e != nil && !e.retryRoute {
		s.retryAt = time.Time{}
	}
	m.step(s, now)
}

// inFlightVia counts the batches in flight under a ref, over all streams.
func (m *machine) inFlightVia(ref string) (n int) {
	for _, s := range m.streams {
		if s.phase != phaseClosed && (s.openRoute.ref == ref || s.openRoute.space == ref) {
			n += s.inFlight
		}
	}
	return n
}

// closeIdlest closes the open stream that has been idle for longest.
func (m *machine) closeIdlest(now time.Time) bool {
	var oldest *streamState
	for _, s := range m.streams {
		if s.phase == phaseOpen && !s.idleSince.IsZero() && (oldest == nil || s.idlerThan(oldest)) {
			oldest = s
		}
	}
	if oldest == nil {
		return false
	}
	m.acknowledge(oldest)
	m.tearDown(oldest)
	m.step(oldest, now)
	return true
}

// idlerThan reports whether s has been idle for longer than o.
func (s *streamState) idlerThan(o *streamState) bool {
	return s.idleSince.Before(o.idleSince) || s.idleSince.Equal(o.idleSince) && s.session < o.session
}

// close closes a stream and gives its slot to the next that waits.
func (m *machine) close(s *streamState, now time.Time) {
	m.acknowledge(s)
	m.tearDown(s)
	m.openWaiting(now)
}

// openWaiting gives free slots to the streams that wait for one.
func (m *machine) openWaiting(now time.Time) {
	for len(m.openQueue) > 0 && m.openStreams < m.win.Streams {
		next := m.openQueue[0]
		m.openQueue = m.openQueue[1:]
		next.inOpenQueue = false
		if m.streams[next.session] == next {
			m.step(next, now)
		}
	}
}

func (m *machine) tearDown(s *streamState) {
	m.openStreams--
	s.phase = phaseClosed
	s.inFlight, s.inFlightBytes = 0, 0
	s.idleSince, s.ackAt = time.Time{}, time.Time{}
	if h := m.hostOf(s.openRoute.host); h.probe == s {
		h.probe = nil
		m.timers.set(&h.timer, h.retryAt)
	}
	m.emit(action{kind: actClose, session: s.session, connID: s.connID})
}

// streamOpened is the answer to actOpen. lastSeq counts if the action had awaitLastSeq.
func (m *machine) streamOpened(session string, conn int, lastSeq uint64, err error, now time.Time) {
	s := m.streams[session]
	if m.fenced || s == nil || s.connID != conn || s.phase != phaseOpening {
		return
	}
	if err != nil {
		m.fail(s, err, now)
		return
	}
	h := m.hostOf(s.openRoute.host)
	if h.probe == s {
		h.probe = nil
	}
	s.phase, s.openedAt = phaseOpen, now
	if len(s.drops) > 0 {
		s.phase = phaseResolvingDrops
		m.resolveDrops(s, lastSeq)
	}
	if h.down {
		h.down = false
		m.hostUp(h, now)
	}
	m.step(s, now)
}

// hostUp resumes all streams that waited for a host.
func (m *machine) hostUp(h *host, now time.Time) {
	waiting := h.waiting
	h.waiting = nil
	for _, s := range waiting {
		s.inHostQueue = false
		if m.streams[s.session] == s { // else it was removed meanwhile, and its session may have another
			m.step(s, now)
		}
	}
}

// probeHost lets one of the streams that wait for a down host try.
func (m *machine) probeHost(h *host, now time.Time) {
	for h.down && h.probe == nil && len(h.waiting) > 0 && !now.Before(h.retryAt) {
		s := h.waiting[0]
		h.waiting = h.waiting[1:]
		s.inHostQueue = false
		if m.streams[s.session] == s {
			m.step(s, now)
		}
	}
}

// linkBroken reports that an opened stream is unusable.
func (m *machine) linkBroken(session string, conn int, now time.Time) {
	s := m.streams[session]
	if m.fenced || s == nil || s.connID != conn || s.phase == phaseClosed {
		return
	}
	m.fail(s, fault.Disconnected.With("the link broke"), now)
}

// wake reports that links are back: all backoffs end.
func (m *machine) wake(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(m.hosts)) {
		h := m.hosts[name]
		h.retryAt = now
		h.backoff.Reset()
		m.probeHost(h, now)
	}
	for _, s := range m.sortedStreams() {
		s.retryAt = time.Time{}
		if s.phase == phaseClosed {
			m.step(s, now)
		}
	}
}

// sortedStreams returns all streams in a fixed order, so that the same events emit the same
// actions.
func (m *machine) sortedStreams() []*streamState {
	return slices.SortedFunc(maps.Values(m.streams), func(a, b *streamState) int { return strings.Compare(a.session, b.session) })
}

// resume lets a stopped stream try again.
func (m *machine) resume(session string, now time.Time) {
	if s := m.streams[session]; s != nil && s.stopped != nil && !s.storeFailed {
		s.stopped = nil
		s.unsequenced = nil // its route may have changed
		m.emit(action{kind: actSetStopped, session: session})
		m.markBacklog(s, now)
	}
}

// restoredAdvice is the advice for a server that has lost outcomes it answered.
const restoredAdvice = "it was restored to an earlier time and nothing more is sent: put its newer data back, or have what the session lacks sent again (mooring outbox reconcile)"

// errorClass is what an error means for a stream.
type errorClass uint8

const (
	retryHost   errorClass = iota // the path to the server failed: all streams of the host back off
	retryStream                   // this stream backs off
	stopStream                    // it stops until someone decides
	leaseLost                     // this process sends no more
	resendFirst                   // seqs are missing: send from the first unanswered batch
	unsendable                    // the batch itself: voids take its place
)

// classifyError returns the class of an error. Unknown errors are retried.
func classifyError(err error) (errorClass, *fault.Error) {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = &fault.Error{Code: fault.CodeOf(err), Message: err.Error()}
		if f.Code == fault.Internal {
			f.Code = fault.Disconnected
		}
	}
	switch c := f.Code; {
	case c == fault.Fenced:
		return leaseLost, f
	case c == fault.Gap:
		return resendFirst, f
	case c == fault.Disconnected, c == fault.Unavailable, c == fault.Draining, c == fault.Canceled:
		return retryHost, f
	case c.Transient(), c == fault.Internal, c == fault.OutboxDamaged, c == fault.DiskFull, c == fault.None:
		return retryStream, f
	case c == fault.TooLarge, c == fault.Malformed:
		return unsendable, f
	default:
		return stopStream, f
	}
}

// fail closes a stream and decides how it goes on.
func (m *machine) fail(s *streamState, err error, now time.Time) {
	what, f := classifyError(err)
	tried := s.queue[:s.inFlight]
	if len(tried) == 0 {
		if e := s.next(); e != nil {
			tried = []*entry{e}
		}
	}
	heard, sending := s.answered, s.phase == phaseOpen && s.inFlight > 0
	if what == leaseLost {
		m.fenced = true
		m.emit(action{kind: actFenced, err: f})
		return
	}
	m.tearDown(s)
	retry := now
	h := m.hostOf(s.openRoute.host)
	if what != retryHost && h.down { // the host answers
		h.down = false
		defer m.hostUp(h, now)
	}
	switch what {
	case retryHost:
		if heard {
			break // it worked till now: try at once, then with backoff
		}
		if s.hostEpoch == h.epoch {
			h.epoch++
			h.down = true
			h.retryAt = now.Add(h.backoff.NextBackOff())
			m.timers.set(&h.timer, h.retryAt)
		}
		retry = h.retryAt
	case resendFirst:
		if len(s.queue) > 0 && f.At > 0 && f.At < s.queue[0].firstSeq {
			what = stopStream
			f = fault.ServerBehind.With("the server expects seq %d, and outcomes up to %d are stored here: %s", f.At, s.queue[0].firstSeq-1, restoredAdvice).Pos(f.At)
			break
		}
		if s.consecutiveGaps++; s.consecutiveGaps > 1 {
			retry = now.Add(s.backoff.NextBackOff())
		}
	case unsendable:
		if !sending || s.queue[0].allVoid() || s.queue[0].firstSeq <= s.recordedThrough {
			what = stopStream // it was not about a batch, the batch is all voids, or the server has recorded it and cannot answer
			break
		}
		m.requestDrop(s, s.queue[0].num, f)
	case retryStream:
		if f.Code == fault.Overloaded && sending {
			s.onOverload(len(tried))
		}
		retry = now.Add(s.backoff.NextBackOff())
	}
	if what == stopStream && s.isRefused(f) {
		s.refusal, s.retryAt = &refusal{s.openRoute, f}, time.Time{}
		m.step(s, now)
		m.openWaiting(now)
		return
	}
	if what == stopStream {
		s.stopped = f
		m.emit(action{kind: actSetStopped, session: s.session, err: f})
		retry = time.Time{}
	}
	s.retryAt = retry
	for _, e := range tried {
		e.attempts++
	}
	if len(tried) > 0 {
		m.emit(action{kind: actRecordAttempt, entries: append([]*entry(nil), tried...), at: retry, err: f})
	}
	if what == retryHost && h.down {
		s.retryAt = time.Time{} // the host's retry time counts
	}
	m.step(s, now)
	m.openWaiting(now)
}

// allVoid reports whether the batch consists of voids alone.
func (e *entry) allVoid() bool {
	for i := range e.body.ops {
		if op := &e.body.ops[i]; op.takesSeq() && !op.void {
			return false
		}
	}
	return true
}

// dropRequested reports that ops of a batch with seqs are to be dropped. They may have been
// sent, and may still be in flight: so a higher incarnation fences them, and then the server's
// last seq decides.
func (m *machine) dropRequested(session string, num int64, now time.Time) {
	s := m.streams[session]
	switch {
	case s == nil: // its outcome is stored
	case slices.ContainsFunc(s.queue, func(e *entry) bool { return e.num == num }):
		m.fenceForDrop(s, num, now)
	default: // its outcome is being stored, or it was sequenced and its entry is yet to come
		if s.dropsOnArrival == nil {
			s.dropsOnArrival = make(map[int64]bool)
		}
		s.dropsOnArrival[num] = true
	}
}

// unsequencedDropped reports that ops without a seq were dropped: a batch that a stream is to
// be opened for, or was stopped for, may be gone or changed.
func (m *machine) unsequencedDropped(now time.Time) {
	for _, s := range m.sortedStreams() {
		switch {
		case s.unsequenced == nil:
		case s.stopped != nil:
			m.resume(s.session, now)
		default:
			s.unsequenced = nil
			m.markBacklog(s, now)
		}
	}
}

// fenceForDrop closes a stream, so that a batch in its queue can be dropped.
func (m *machine) fenceForDrop(s *streamState, num int64, now time.Time) {
	if s.phase != phaseClosed {
		m.tearDown(s)
	}
	m.requestDrop(s, num, nil)
	m.step(s, now)
	m.openWaiting(now)
}

// fenceOnArrival applies the drops that were requested before the entries arrived.
func (m *machine) fenceOnArrival(s *streamState, entries []*entry, now time.Time) {
	for _, e := range entries {
		if s.dropsOnArrival[e.num] {
			delete(s.dropsOnArrival, e.num)
			m.fenceForDrop(s, e.num, now)
		}
	}
}

func (m *machine) requestDrop(s *streamState, num int64, why *fault.Error) {
	if s.drops == nil {
		s.drops = make(map[int64]*fault.Error)
	}
	s.drops[num] = why
	s.needsNewIncarnation = true
}

// incarnationRaised reports that the incarnation was raised.
func (m *machine) incarnationRaised(now time.Time) {
	m.raisingIncarnation = false
	for _, s := range m.sortedStreams() {
		if s.needsNewIncarnation {
			s.needsNewIncarnation = false
			m.step(s, now)
		}
	}
}

// resolveDrops emits actResolveDrops for a stream: ops that the server has recorded stand.
func (m *machine) resolveDrops(s *streamState, lastSeq uint64) {
	a := action{kind: actResolveDrops, session: s.session, connID: s.connID, through: lastSeq, drops: s.drops}
	for _, e := range s.queue {
		if _, asked := s.drops[e.num]; asked {
			a.entries = append(a.entries, e)
		}
	}
	s.drops, s.resolvingDrops, s.recordedThrough = nil, true, lastSeq
	m.emit(a)
}

// dropsResolved takes the batches as they are after actResolveDrops.
func (m *machine) dropsResolved(session string, conn int, entries []*entry, now time.Time) {
	s := m.streams[session]
	if s == nil {
		return
	}
	for _, e := range entries {
		for i := range s.queue {
			if s.queue[i].num == e.num {
				s.queue[i] = e
			}
		}
	}
	s.resolvingDrops = false
	if s.connID == conn && s.phase == phaseResolvingDrops {
		s.phase = phaseOpen
	}
	m.step(s, now)
}
