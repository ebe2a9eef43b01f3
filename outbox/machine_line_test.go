package outbox

// The refs, the lines and the server of a machine's random story (machine_property_test.go).
// Lines lose and delay, and what was on one may still come when another has long been opened.

import (
	"cmp"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

const simOutbox = "obx_01J00000000000000000000000"

// line is one opening of a stream.
type line struct {
	t           *simulation
	s           *simSender
	session     string
	conn        int
	incarnation uint64
	to          machine.Route
	forth, back []func() // on their way
	unanswered  bool     // the sender does not know how the opening went
	live        bool     // … and sends
	broken      bool
	closed      bool // by the sender
	refused     error
	failed      bool // the server has answered a batch with an error
	dones       []func(Reply)
	out         []*machine.Entry // sent, and not answered
	last        uint64           // seq sent
}

func (s *simSender) open(a machine.Action) {
	t := s.p.t
	if s.conns[a.Session] != nil {
		t.fault("process %d opens %s twice", s.p.name, a.Session)
	}
	l := &line{t: t, s: s, session: a.Session, conn: a.ConnID, incarnation: uint64(s.incarnation), to: a.Route, unanswered: true}
	s.conns[a.Session] = l
	t.lines = append(t.lines, l)
	t.note("process %d opens %s through %s%s, line %d, settle %v", s.p.name, a.Session, a.Route.Space, a.Route.Ref, a.ConnID, a.AwaitLastSeq)
	if len(s.conns) > t.win.Streams {
		t.fault("process %d has %d streams open, of %d", s.p.name, len(s.conns), t.win.Streams)
	}
	eager := !a.AwaitLastSeq && t.inject(t.rates.eager)
	if eager {
		l.back = append(l.back, func() { l.opened(0, nil) })
	}
	l.forth = append(l.forth, func() {
		last, err := t.opens(l)
		l.refused = err
		if !eager && !l.broken {
			l.back = append(l.back, func() { l.opened(last, err) })
		}
	})
}

// opened tells the sender how the opening went.
func (l *line) opened(last uint64, err error) {
	s := l.s
	l.unanswered = false
	s.postAsync(func() {
		if err == nil && s.conns[l.session] != l {
			return
		}
		if err == nil {
			l.live = true
			s.p.seqs.SetOpen(l.session, true)
		}
		s.m.StreamOpened(l.session, l.conn, last, err, l.t.now)
	})
}

// drop lets go of a line.
func (s *simSender) drop(l *line) {
	delete(s.conns, l.session)
	s.p.seqs.SetOpen(l.session, false)
	l.closed = true
	if s.p.t.dice.IntN(2) == 0 {
		l.cut()
	}
}

// cut breaks a line. Some of what is on its way comes still, and the sender hears of it.
func (l *line) cut() {
	if l.broken {
		return
	}
	t, s := l.t, l.s
	t.note("line %d of %s breaks", l.conn, l.session)
	for n := t.dice.IntN(len(l.back) + 1); n > 0; n-- {
		l.deliver(&l.back)
	}
	l.broken, l.back = true, nil
	l.forth = l.forth[:t.dice.IntN(len(l.forth)+1)]
	gone := fault.Disconnected.With("the link broke")
	early := t.dice.IntN(2) == 0
	hear := func() { s.postAsync(func() { s.m.LinkBroken(l.session, l.conn, t.now) }) }
	if l.unanswered {
		l.opened(0, gone)
		return
	}
	if early {
		hear()
	}
	for _, done := range l.dones {
		done(Reply{Err: gone})
	}
	if l.dones = nil; !early {
		hear()
	}
}

func (l *line) deliver(way *[]func()) {
	f := (*way)[0]
	*way = (*way)[1:]
	f()
}

// arrive has the first on its way to the server arrive.
func (l *line) arrive() {
	if l.t.down[l.to.Host] && !l.broken {
		l.cut()
		return
	}
	l.deliver(&l.forth)
}

func (s *simSender) send(a machine.Action) {
	t, e := s.p.t, a.Entry
	l := s.conns[a.Session]
	if l == nil || l.conn != a.ConnID || !l.live {
		t.fault("process %d sends %s on line %d, which is not open", s.p.name, t.called(e), a.ConnID)
		return
	}
	t.note("process %d sends %s, seq %d, acknowledges %d", s.p.name, t.called(e), e.FirstSeq, a.Through)
	bytes := e.Bytes
	for _, o := range l.out {
		bytes += o.Bytes
	}
	if n := len(l.out); n > 0 && (n+1 > t.win.Batches || bytes > t.win.Bytes) {
		t.fault("%d batches of %d bytes are in flight, the window is %d, %d", n+1, bytes, t.win.Batches, t.win.Bytes)
	}
	if l.last > 0 && e.FirstSeq != l.last+1 && !t.done(a.Session, l.last+1, e.FirstSeq) {
		t.fault("seq %d is sent after %d", e.FirstSeq, l.last)
	}
	if e.Route.Rotating || !l.to.Serves(e.Route) {
		t.fault("%s goes out through %v and wants %v", t.called(e), l.to, e.Route)
	}
	l.last = e.LastSeq()
	l.out = append(l.out, e)
	t.durable(s, e)
	t.acknowledged(s, a.Session, a.Through)
	b := *e.WireBatch
	b.Outbox, b.Incarnation, b.AckedThrough = simOutbox, l.incarnation, a.Through
	done := func(r Reply) {
		s.postAsync(func() {
			l.out = l.out[1:]
			r = s.checkPruned(e, r)
			s.m.Replied(a.Session, a.ConnID, r.Outcomes, r.Err, t.now)
		})
	}
	if l.broken {
		done(Reply{Err: fault.Disconnected.With("the link broke")})
		return
	}
	l.dones = append(l.dones, done)
	l.forth = append(l.forth, func() {
		r := t.applies(l, &b)
		if l.failed = l.failed || r.Err != nil; r.Err == nil && t.inject(t.rates.deaf) {
			t.note("… and its answer is lost")
			if t.chance(30) {
				r.Err = fault.Unavailable.With("on request")
			} else if !l.broken {
				l.cut()
			}
		}
		if !l.broken {
			l.back = append(l.back, func() {
				done := l.dones[0]
				l.dones = l.dones[1:]
				done(r)
			})
		}
	})
}

// checkPruned is that of the loop.
func (s *simSender) checkPruned(e *machine.Entry, r Reply) Reply {
	if r.Err != nil || len(r.Outcomes) == 0 || r.Outcomes[0].Reason != fault.Pruned {
		return r
	}
	row := s.p.t.row(e.Num)
	if row.State != sqlstore.RowFinished {
		s.p.t.fault("seq %d of %s is pruned at the server, and its outcome is not stored", e.FirstSeq, e.Session)
		return r
	}
	outs, _ := intent.DecodeOutcomes(row.Outcomes, e.Body.Ops)
	r.Outcomes = nil
	for i := range outs {
		if e.Body.Ops[i].TakesSeq() {
			r.Outcomes = append(r.Outcomes, outs[i])
		}
	}
	return r
}

// opens is the server's answer to an opening.
func (t *simulation) opens(l *line) (last uint64, err error) {
	key := l.session + simOutbox
	r := t.server.streams[key]
	code := fault.None
	if t.inject(t.rates.refusing) {
		code = refusals[t.dice.IntN(len(refusals)-4)]
	}
	if code == fault.Revoked {
		t.dead[l.mortal()] = true
	}
	switch {
	case code != fault.None && code != fault.Revoked:
		return 0, code.With("on request")
	case r == nil && t.dead[l.mortal()] && !t.calm: // when all is good there is a place
		return 0, fault.Revoked.With("on request")
	case r == nil:
		r = &fakeStreamRow{row: ledger.Stream{Session: l.session, Outbox: simOutbox}, history: ledger.NewHistory(nil)}
		t.server.streams[key] = r
	}
	if l.incarnation < r.row.Incarnation {
		return 0, fault.Fenced.With("incarnation %d, the server knows %d", l.incarnation, r.row.Incarnation)
	}
	if se := t.server.session(l.session); se.managed && !se.made && l.to.Space == "" {
		return 0, fault.NotYetKnown.With("the session is not there yet")
	}
	r.row.Incarnation = l.incarnation
	return r.row.LastSeq, nil
}

// mortal is what a line goes through, in its session.
func (l *line) mortal() string { return l.session + l.to.Space + l.to.Ref }

// refusals are call-level answers; the last of them are not those of an opening, and of
// these, all but the first have the stream stand still or give the batch up.
var refusals = []fault.Code{fault.Overloaded, fault.NotYetKnown, fault.Unavailable, fault.Internal, fault.Draining, fault.DiskFull,
	fault.UnknownRef, fault.Revoked, fault.Gap, fault.ServerBehind, fault.OutboxDiverged, fault.TooLarge}

// applies is the server's answer to a batch.
func (t *simulation) applies(l *line, b *ledger.Batch) (r Reply) {
	defer func() {
		t.note("the server, on line %d of incarnation %d: %s %d: %v %v", l.conn, l.incarnation, b.BatchID, b.Ops[0].Seq, r.Err, statuses(r.Outcomes))
	}()
	if l.refused != nil {
		return Reply{Err: l.refused}
	}
	row := t.server.streams[b.Session+simOutbox]
	if t.inject(t.rates.refusing) && b.Incarnation >= row.row.Incarnation {
		code := refusals[t.dice.IntN(len(refusals))]
		if code == fault.Revoked {
			code = fault.UnknownRef
		}
		if t.chance(70) && code.Transient() == false {
			code = fault.Overloaded
		}
		if code == fault.TooLarge {
			t.batchOf(b.BatchID).spoiled = true
		}
		return Reply{Err: code.With("on request").Pos(max(row.row.LastSeq+1, b.Ops[0].Seq))}
	}
	last := row.row.LastSeq
	t.server.dead = t.dead[l.mortal()]
	r = t.server.apply(b)
	switch code := fault.CodeOf(r.Err); {
	case code == fault.Gap && l.failed, code == fault.Fenced:
	case r.Err != nil:
		t.fault("the server answers batch %s, seq %d: %v", t.names[b.BatchID], b.Ops[0].Seq, r.Err)
	case row.row.LastSeq > last:
		t.recorded(b, r.Outcomes)
	}
	return r
}

// acks is acked_through without a batch.
func (t *simulation) acks(l *line, through uint64) {
	row := t.server.streams[l.session+simOutbox]
	if l.refused != nil {
		return
	}
	switch _, err := ledger.Acknowledge(&row.row, l.incarnation, through, row.history.Record); {
	case err == nil:
		row.history.Prune(row.row.AckedThrough)
	case err.Code != fault.Fenced:
		t.fault("the server is told that %d is stored: %v", through, err)
	}
}

// recorded holds a batch that the server has recorded against the one that was committed.
func (t *simulation) recorded(b *ledger.Batch, outs []ledger.Outcome) {
	bd := bodyOf(t.batchOf(b.BatchID).row)
	var ids []string
	for i := range bd.Ops {
		if op := &bd.Ops[i]; op.TakesSeq() {
			ids = append(ids, op.ID)
		}
	}
	if !slices.EqualFunc(ids, b.Ops, func(id string, in ledger.Intent) bool { return id == in.OpID }) {
		t.fault("batch %s came with ops %v, it has %v", t.names[b.BatchID], b.Ops, ids)
	}
	for _, o := range outs {
		if was, twice := t.ends[o.OpID]; twice {
			t.fault("op %s is recorded again: %v after %v", o.OpID, o, was)
		}
		if o.Reason == fault.BadReference {
			t.fault("op %s refers to what the server does not know: %s", o.OpID, o.Message)
		}
		t.ends[o.OpID] = o
	}
}

// rerouted has a session's stream look again how it is sent, for there was news of its refs.
func (s *simSender) rerouted(session string) {
	st := s.m.Streams[session]
	if st == nil {
		return
	}
	for _, e := range st.Queue {
		s.p.t.setRoute(e)
	}
	if st.Unsequenced != nil {
		s.p.t.setRoute(st.Unsequenced)
	}
	if st.Stopped != nil {
		s.resumeIfRerouted(session)
		return
	}
	s.m.Step(st, s.p.t.now)
}

// resumeIfRerouted lets a stream that stands still go on if its way is there now.
func (s *simSender) resumeIfRerouted(session string) {
	st := s.m.Streams[session]
	if st == nil || st.Stopped == nil || st.Stopped.Code != fault.UnknownRef {
		return
	}
	for _, e := range st.Queue {
		s.p.t.setRoute(e)
	}
	if st.Unsequenced != nil {
		s.p.t.setRoute(st.Unsequenced)
	}
	if e := st.Next(); e == nil || e.RouteErr == nil || e.RetryRoute {
		s.m.Resume(session, s.p.t.now)
	}
}

// simRoute is a ref, by its session and id.
type simRoute struct {
	host  string
	state string // "", held, routeless or lost
}

// setRoute sets how an entry is sent, or why it cannot be.
func (t *simulation) setRoute(e *machine.Entry) {
	w, made := t.ways[e.Session+e.Via], t.server.session(e.Session)
	e.Route, e.RouteErr, e.RetryRoute = machine.Route{Ref: cmp.Or(e.Via, "own"), Host: w.host, Rotating: w.state == "held",
		Confirmed: made.made || !made.managed}, nil, false
	if intent.CreatesSession(e.Body.Ops[0].Method) {
		e.Route.Space = "space"
	}
	switch w.state {
	case "routeless":
		e.Route, e.RouteErr, e.RetryRoute = machine.Route{}, fault.Unavailable.With("on request"), true
	case "lost":
		e.Route, e.RouteErr = machine.Route{}, fault.UnknownRef.With("on request")
	}
}
