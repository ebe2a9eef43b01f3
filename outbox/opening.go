package outbox

// The machine's other half: opening streams, what can go wrong with them, and
// dropping what may have been sent.

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// tryOpen opens a stream that has something to send, if its own waiting time is
// over, its host is not down and there is a place.
func (m *machine) tryOpen(s *stream, now time.Time) {
	if now.Before(s.retryAt) {
		m.arm(s, now)
		return
	}
	if s.deciding {
		return
	}
	if s.needRaise {
		if !m.raising {
			m.raising = true
			m.do(action{kind: actRaise})
		}
		return
	}
	if e := s.next(); e.problem != nil && e.passing {
		m.find(s, now)
		return
	} else if e.problem != nil {
		s.stopped = e.problem
		m.do(action{kind: actStop, session: s.session, err: e.problem})
		return
	}
	to := s.next().route
	if to.held {
		return // it is looked at again when that is done
	}
	h := m.host(to.host)
	if h.down && h.probe != s && (h.probe != nil || now.Before(h.retryAt)) {
		if !s.inWaiting {
			s.inWaiting = true
			h.waiting = append(h.waiting, s)
		}
		return
	}
	if m.places >= m.win.Streams && !m.makePlace(now) {
		if !s.inReady {
			s.inReady = true
			m.ready = append(m.ready, s)
		}
		return
	}
	if h.down {
		h.probe = s
	}
	if making := m.unmade[s.session]; to.space == "" && making.ref == to.ref {
		to.space = making.space
	}
	m.places++
	m.conns++
	s.phase, s.conn, s.opened, s.hostEpoch, s.heard = opening, m.conns, to, h.epoch, false
	s.sent, s.inflight = 0, 0
	m.do(action{kind: actOpen, session: s.session, conn: s.conn, route: to, settle: len(s.drops) > 0})
}

// find has the ways be looked up that could not be, now and then after a while.
func (m *machine) find(s *stream, now time.Time) {
	s.retryAt = now.Add(s.backoff.NextBackOff())
	e := s.next()
	m.do(action{kind: actNote, entries: []*entry{e}, at: s.retryAt, err: e.problem})
	m.arm(s, now)
	a := action{kind: actFind, session: s.session}
	for _, e := range s.queue {
		if e.passing {
			a.entries = append(a.entries, e)
		}
	}
	if s.head != nil && s.head.passing {
		a.entries = append(a.entries, s.head)
	}
	m.do(a)
}

// routed says that actFind was done.
func (m *machine) routed(session string, now time.Time) {
	s := m.streams[session]
	if s == nil {
		return
	}
	if e := s.next(); e != nil && !e.passing {
		s.retryAt = time.Time{}
	}
	m.step(s, now)
}

// through counts the batches that are on their way under a ref, over all streams.
func (m *machine) through(ref string) (n int) {
	for _, s := range m.streams {
		if s.phase != closed && (s.opened.ref == ref || s.opened.space == ref) {
			n += s.sent
		}
	}
	return n
}

// makePlace closes the open stream that has had nothing to do for longest.
func (m *machine) makePlace(now time.Time) bool {
	var oldest *stream
	for _, s := range m.streams {
		if s.phase == open && !s.idleSince.IsZero() && (oldest == nil || s.idlerThan(oldest)) {
			oldest = s
		}
	}
	if oldest == nil {
		return false
	}
	m.acknowledge(oldest)
	m.closeQuietly(oldest)
	m.step(oldest, now)
	return true
}

// idlerThan says whether s has had nothing to do for longer than o.
func (s *stream) idlerThan(o *stream) bool {
	return s.idleSince.Before(o.idleSince) || s.idleSince.Equal(o.idleSince) && s.session < o.session
}

// close lets go of a stream and gives its place to the next that waits.
func (m *machine) close(s *stream, now time.Time) {
	m.acknowledge(s)
	m.closeQuietly(s)
	m.fillPlaces(now)
}

// fillPlaces gives places that have become free to those who wait.
func (m *machine) fillPlaces(now time.Time) {
	for len(m.ready) > 0 && m.places < m.win.Streams {
		next := m.ready[0]
		m.ready = m.ready[1:]
		next.inReady = false
		if m.streams[next.session] == next {
			m.step(next, now)
		}
	}
}

func (m *machine) closeQuietly(s *stream) {
	m.places--
	s.phase = closed
	s.sent, s.inflight = 0, 0
	s.idleSince, s.ackAt = time.Time{}, time.Time{}
	if h := m.host(s.opened.host); h.probe == s {
		h.probe = nil
		m.alarms.set(&h.alarm, h.retryAt)
	}
	m.do(action{kind: actClose, session: s.session, conn: s.conn})
}

// openedStream is the answer to actOpen. lastSeq counts if it was to settle.
func (m *machine) openedStream(session string, conn int, lastSeq uint64, err error, now time.Time) {
	s := m.streams[session]
	if m.fenced || s == nil || s.conn != conn || s.phase != opening {
		return
	}
	if err != nil {
		m.fail(s, err, now)
		return
	}
	h := m.host(s.opened.host)
	if h.probe == s {
		h.probe = nil
	}
	s.phase, s.since = open, now
	if len(s.drops) > 0 {
		s.phase = settling
		m.settle(s, lastSeq)
	}
	if h.down {
		h.down = false
		m.release(h, now)
	}
	m.step(s, now)
}

// release lets everyone who waited for a host go on.
func (m *machine) release(h *host, now time.Time) {
	waiting := h.waiting
	h.waiting = nil
	for _, s := range waiting {
		s.inWaiting = false
		if m.streams[s.session] == s { // else it was forgotten meanwhile, and its session may have another
			m.step(s, now)
		}
	}
}

// tryHost lets one of those who wait for a host that is down try.
func (m *machine) tryHost(h *host, now time.Time) {
	for h.down && h.probe == nil && len(h.waiting) > 0 && !now.Before(h.retryAt) {
		s := h.waiting[0]
		h.waiting = h.waiting[1:]
		s.inWaiting = false
		if m.streams[s.session] == s {
			m.step(s, now)
		}
	}
}

// broken says that an opened stream is of no more use.
func (m *machine) broken(session string, conn int, now time.Time) {
	s := m.streams[session]
	if m.fenced || s == nil || s.conn != conn || s.phase == closed {
		return
	}
	m.fail(s, fault.Disconnected.With("the link broke"), now)
}

// wake says that links are back: nobody waits any longer.
func (m *machine) wake(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(m.hosts)) {
		h := m.hosts[name]
		h.retryAt = now
		h.backoff.Reset()
		m.tryHost(h, now)
	}
	for _, s := range m.inOrder() {
		s.retryAt = time.Time{}
		if s.phase == closed {
			m.step(s, now)
		}
	}
}

// inOrder gives all streams in an order of their own, so that the same events have
// the same actions.
func (m *machine) inOrder() []*stream {
	return slices.SortedFunc(maps.Values(m.streams), func(a, b *stream) int { return strings.Compare(a.session, b.session) })
}

// resume lets a stream that stopped try again.
func (m *machine) resume(session string, now time.Time) {
	if s := m.streams[session]; s != nil && s.stopped != nil && !s.unkept {
		s.stopped = nil
		s.head = nil // its route may be another one
		m.do(action{kind: actStop, session: session})
		m.more(s, now)
	}
}

// restored says what to do about a server that has forgotten what it answered.
const restored = "it was restored to an earlier time and nothing more is sent: put its newer data back, or have what the session lacks sent again (mooring outbox reconcile)"

// What an error means for a stream.
type verdict uint8

const (
	tryLink    verdict = iota // the way to the server: it and all on the same host wait
	tryStream                 // this stream waits
	giveUp                    // it stops until someone decides
	leaseLost                 // this process sends no more
	rewind                    // seqs are missing: send from the first unanswered one
	unsendable                // the batch itself: voids take its place
)

// judge says what an error means. What it does not know it retries.
func judge(err error) (verdict, *fault.Error) {
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
		return rewind, f
	case c == fault.Disconnected, c == fault.Unavailable, c == fault.Draining, c == fault.Canceled:
		return tryLink, f
	case c.Transient(), c == fault.Internal, c == fault.OutboxDamaged, c == fault.DiskFull, c == fault.None:
		return tryStream, f
	case c == fault.TooLarge, c == fault.Malformed:
		return unsendable, f
	default:
		return giveUp, f
	}
}

// fail closes a stream and decides how it goes on.
func (m *machine) fail(s *stream, err error, now time.Time) {
	what, f := judge(err)
	tried := s.queue[:s.sent]
	if len(tried) == 0 {
		if e := s.next(); e != nil {
			tried = []*entry{e}
		}
	}
	heard, sending := s.heard, s.phase == open && s.sent > 0
	if what == leaseLost {
		m.fenced = true
		m.do(action{kind: actFenced, err: f})
		return
	}
	m.closeQuietly(s)
	retry := now
	h := m.host(s.opened.host)
	if what != tryLink && h.down { // there is someone who answers
		h.down = false
		defer m.release(h, now)
	}
	switch what {
	case tryLink:
		if heard {
			break // it worked till now: try at once, then with pauses
		}
		if s.hostEpoch == h.epoch {
			h.epoch++
			h.down = true
			h.retryAt = now.Add(h.backoff.NextBackOff())
			m.alarms.set(&h.alarm, h.retryAt)
		}
		retry = h.retryAt
	case rewind:
		if len(s.queue) > 0 && f.At > 0 && f.At < s.queue[0].first {
			what = giveUp
			f = fault.ServerBehind.With("the server expects seq %d, and outcomes up to %d are stored here: %s", f.At, s.queue[0].first-1, restored).Pos(f.At)
			break
		}
		if s.gaps++; s.gaps > 1 {
			retry = now.Add(s.backoff.NextBackOff())
		}
	case unsendable:
		if !sending || s.queue[0].voided() {
			what = giveUp // it was not about a batch, or nothing is left to give up
			break
		}
		m.askDrop(s, s.queue[0].num, f)
	case tryStream:
		if f.Code == fault.Overloaded && sending {
			s.narrow(len(tried))
		}
		retry = now.Add(s.backoff.NextBackOff())
	}
	if what == giveUp && s.refused(f) {
		s.refusal, s.retryAt = &refusal{s.opened, f}, time.Time{}
		m.step(s, now)
		m.fillPlaces(now)
		return
	}
	if what == giveUp {
		s.stopped = f
		m.do(action{kind: actStop, session: s.session, err: f})
		retry = time.Time{}
	}
	s.retryAt = retry
	for _, e := range tried {
		e.attempts++
	}
	if len(tried) > 0 {
		m.do(action{kind: actNote, entries: append([]*entry(nil), tried...), at: retry, err: f})
	}
	if what == tryLink && h.down {
		s.retryAt = time.Time{} // the host's time counts
	}
	m.step(s, now)
	m.fillPlaces(now)
}

// voided says whether the batch is nothing but voids already.
func (e *entry) voided() bool {
	for i := range e.body.ops {
		if op := &e.body.ops[i]; op.travels() && !op.void {
			return false
		}
	}
	return true
}

// dropAsked says that ops of a batch with seqs are to be dropped. They may have
// been sent, and may be on their way still: so what is on its way is fenced off
// by a higher incarnation, and then the server's last seq tells.
func (m *machine) dropAsked(session string, num int64, now time.Time) {
	s := m.streams[session]
	switch {
	case s == nil: // its outcome is stored
	case slices.ContainsFunc(s.queue, func(e *entry) bool { return e.num == num }):
		m.fence(s, num, now)
	default: // its outcome is being stored, or it has its seq and is on its way here
		if s.early == nil {
			s.early = make(map[int64]bool)
		}
		s.early[num] = true
	}
}

// headsDropped says that ops without a seq were dropped: a batch that a stream is to
// be opened for, or was stopped for, may be gone, or be another.
func (m *machine) headsDropped(now time.Time) {
	for _, s := range m.inOrder() {
		switch {
		case s.head == nil:
		case s.stopped != nil:
			m.resume(s.session, now)
		default:
			s.head = nil
			m.more(s, now)
		}
	}
}

// fence closes a stream, so that a batch in its queue can be dropped.
func (m *machine) fence(s *stream, num int64, now time.Time) {
	if s.phase != closed {
		m.closeQuietly(s)
	}
	m.askDrop(s, num, nil)
	m.step(s, now)
	m.fillPlaces(now)
}

// fenceEarly does what was asked of entries before they came.
func (m *machine) fenceEarly(s *stream, entries []*entry, now time.Time) {
	for _, e := range entries {
		if s.early[e.num] {
			delete(s.early, e.num)
			m.fence(s, e.num, now)
		}
	}
}

func (m *machine) askDrop(s *stream, num int64, why *fault.Error) {
	if s.drops == nil {
		s.drops = make(map[int64]*fault.Error)
	}
	s.drops[num] = why
	s.needRaise = true
}

// raised says that the incarnation is higher now.
func (m *machine) raised(now time.Time) {
	m.raising = false
	for _, s := range m.inOrder() {
		if s.needRaise {
			s.needRaise = false
			m.step(s, now)
		}
	}
}

// settle has the drops of a stream decided: what the server has recorded stands.
func (m *machine) settle(s *stream, lastSeq uint64) {
	a := action{kind: actSettle, session: s.session, conn: s.conn, through: lastSeq, drops: s.drops}
	for _, e := range s.queue {
		if _, asked := s.drops[e.num]; asked {
			a.entries = append(a.entries, e)
		}
	}
	s.drops, s.deciding = nil, true
	m.do(a)
}

// settled brings the batches as they are after actSettle.
func (m *machine) settled(session string, conn int, entries []*entry, now time.Time) {
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
	s.deciding = false
	if s.conn == conn && s.phase == settling {
		s.phase = open
	}
	m.step(s, now)
}
