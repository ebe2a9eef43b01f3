package outbox

// What a machine's random story (machine_property_test.go) is held against: at each step,
// when everything has become good, and in the end.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

func (t *simulation) batchOf(batch string) *simBatch {
	return t.batches[slices.IndexFunc(t.batches, func(b *simBatch) bool { return b.row.ID == batch })]
}

func (t *simulation) called(e *machine.Entry) string { return t.names[e.ID] }

// plain is what a batch is, for notes.
func plain(b *simBatch) (text string) {
	for _, op := range b.ops {
		text += fmt.Sprintf(" %s %v", op.Method, op.Needs())
	}
	return fmt.Sprintf("atomic %v, seq %v, retries %q:%s", b.atomic, b.row.FirstSeq != nil, b.ops[0].Retries, text)
}

// durable holds what the holder of the lease sends against the row.
func (t *simulation) durable(s *simSender, e *machine.Entry) {
	if t.holder != s.p {
		return
	}
	r := t.row(e.Num)
	if !r.Sequenced() || *r.FirstSeq != int64(e.FirstSeq) {
		t.fault("%s is sent with seq %d, which its row does not have", t.called(e), e.FirstSeq)
		return
	}
	if r.State == sqlstore.RowFinished {
		return // a former holder has stored its outcome
	}
	want := r.Entry(bodyOf(r), 0).WireBatch.Ops
	if !slices.EqualFunc(e.WireBatch.Ops, want, func(a, b ledger.Intent) bool { return a.Digest() == b.Digest() }) {
		t.fault("%s is sent as %v, its row has %v", t.called(e), e.WireBatch.Ops, want)
	}
}

// done says whether all seqs of a session from one to before another have stored outcomes,
// as those behind a batch whose own could not be stored.
func (t *simulation) done(session string, from, to uint64) bool {
	for _, r := range t.rows {
		if r.Session == session && r.Sequenced() && r.State != sqlstore.RowFinished && uint64(*r.FirstSeq) >= from && uint64(*r.FirstSeq) < to {
			return false
		}
	}
	return from < to
}

// acknowledged holds what is acknowledged against what is stored and what is needed still.
func (t *simulation) acknowledged(s *simSender, session string, through uint64) {
	for _, r := range t.rows {
		if through == 0 || r.Session != session || !r.Sequenced() || r.State == sqlstore.RowFinished {
			continue
		}
		if uint64(*r.FirstSeq) <= through {
			t.fault("process %d acknowledges %d of %s, and the outcome of %d is not stored", s.p.name, through, session, *r.FirstSeq)
		}
		bd := bodyOf(r)
		for i := range bd.Ops {
			op := &bd.Ops[i]
			if _, known := t.ends[op.ID]; known || op.Void || !op.TakesSeq() {
				continue
			}
			for _, id := range op.Needs() {
				f := t.opAt(id)
				if seq := f.Seq(); f.Row.ID != r.ID && f.Row.Session == session && seq > 0 && seq <= through {
					t.fault("process %d acknowledges %d of %s, and the op of seq %d refers to %d", s.p.name, through, session, *r.FirstSeq, seq)
				}
			}
		}
	}
}

// checkInvariants holds the machine's own accounts against each other.
func (s *simSender) checkInvariants() {
	if wrong := s.m.BrokenInvariant(); wrong != "" {
		s.p.t.fault("process %d: %s", s.p.name, wrong)
	}
	if s.m.OpenStreams != len(s.conns) {
		s.p.t.fault("process %d: %d places are taken, %d streams are open", s.p.name, s.m.OpenStreams, len(s.conns))
	}
}

// settle has everything become good, and holds what has come of it against the promises.
func (t *simulation) settle() {
	t.note("all becomes good")
	t.calm = true
	clear(t.down)
	for _, l := range t.lines {
		if l.closed {
			l.forth = nil // it has been on its way for too long
		}
	}
	for _, session := range t.sessions {
		t.changeRoute(session, "")
	}
	t.drain()
	t.scan() // who leads no more hears of it
	t.drain()
	if t.leader() == nil {
		t.procs[t.dice.IntN(len(t.procs))].acquire(true)
		t.drain()
	}
	if t.dice.IntN(2) == 0 { // else time is all that it takes
		t.pass(machine.RecheckInterval)
		t.scan()
		t.drain()
		t.reported()
		t.wake()
		t.drain()
		for n := 0; n < 3 && t.unfinished(); n++ { // what ended in its own session tells nobody who waits for others as well
			t.pass(machine.RecheckInterval)
			t.scan()
			t.drain()
		}
		t.over("when links were back")
	}
	for n := 0; t.unfinished() && len(t.faults) == 0; n++ {
		if n > 100 {
			t.over("after a long time")
			break
		}
		t.reported()
		t.passOn()
	}
	t.reported()
	if len(t.stopped) > 0 && len(t.faults) == 0 {
		t.note("somebody decides")
		if s := t.leader(); s != nil {
			s.end(fault.Canceled)
			s.p.step = 1
		}
		t.drain()
		t.procs[t.dice.IntN(len(t.procs))].acquire(true)
		for n := 0; n < 100 && (n == 0 || t.unfinished()) && len(t.faults) == 0; n++ {
			t.passOn()
		}
	}
	if len(t.faults) == 0 {
		t.rest()
	}
	if len(t.faults) == 0 {
		t.verify()
	}
	t.calm = false
}

// leader is the sender that has the lease.
func (t *simulation) leader() *simSender {
	for _, p := range t.procs {
		if p.s != nil && t.holder == p {
			return p.s
		}
	}
	return nil
}

// drain has all come that is under way.
func (t *simulation) drain() {
	for n := 0; t.move() && len(t.faults) == 0; n++ {
		if n > 20000 {
			t.fault("it goes on and on")
		}
	}
}

func (t *simulation) scan() {
	for _, p := range t.procs {
		if p.s != nil {
			p.s.scan()
		}
	}
}

// passOn has the time pass until the leader wants to be looked at.
func (t *simulation) passOn() {
	d := machine.RecheckInterval
	if s := t.leader(); s != nil {
		if at := s.m.WakeAt(); at.After(t.now) {
			d = min(d, at.Sub(t.now))
		}
	}
	t.pass(d)
	t.scan()
	t.drain()
}

// unfinished says whether there are rows that are not finished and do not have to wait for
// somebody's decision.
func (t *simulation) unfinished() bool {
	for _, r := range t.rows {
		if r.State != sqlstore.RowFinished && !t.stands(r.Session, nil) {
			return true
		}
	}
	return false
}

// stands says whether a session stands still, or waits for none but such.
func (t *simulation) stands(session string, seen []string) bool {
	if t.stopped[session] != fault.None {
		return true
	}
	if slices.Contains(seen, session) {
		return false
	}
	for _, r := range t.rows {
		if r.Session != session || r.State == sqlstore.RowFinished {
			continue
		}
		if r.FirstSeq != nil {
			return false
		}
		bd := bodyOf(r)
		res, err := intent.Resolve(bd, session, t.finder(r.Num), false)
		if err != nil || bd.Decided() || len(res.BlockedOn) == 0 {
			return false
		}
		for _, e := range res.BlockedOn {
			if e.Seq > 0 && t.stopped[e.Session] == fault.None || e.Seq == 0 && !t.stands(e.Session, append(seen, session)) {
				return false
			}
		}
		return true
	}
	return false
}

// over says what is not over.
func (t *simulation) over(when string) {
	for _, r := range t.rows {
		if r.State != sqlstore.RowFinished && !t.stands(r.Session, nil) {
			t.fault("%s %s of %s is not finished", when, t.names[r.ID], r.Session)
		}
	}
	if s := t.leader(); s != nil && len(t.faults) > 0 {
		for _, st := range s.m.SortedStreams() {
			t.note("%s: %+v", st.Session, *st)
		}
		for name, h := range s.m.Hosts {
			t.note("%s: %+v", name, *h)
		}
	}
}

// reported holds what rows and streams say against what the leader is about. Nothing is
// under way.
func (t *simulation) reported() {
	s := t.leader()
	if s == nil {
		t.fault("nobody leads")
		return
	}
	for _, session := range t.sessions {
		st := s.m.Streams[session]
		code := fault.None
		if st != nil && st.Stopped != nil {
			code = st.Stopped.Code
		}
		if t.stopped[session] != code {
			t.fault("%s is said to stand still: %s, it does: %s", session, t.stopped[session], code)
		}
		if st == nil {
			if slices.ContainsFunc(t.rows, func(r *sqlstore.BatchRow) bool { return r.Session == session && r.State != sqlstore.RowFinished }) {
				t.fault("%s has rows and no stream", session)
			}
			continue
		}
		if e := st.Next(); e != nil && e.FirstSeq > 0 && st.Phase == machine.PhaseClosed && st.Stopped == nil && st.RetryAt.After(t.now) {
			if r := t.row(e.Num); r.State != sqlstore.RowFinished && r.NextRetry > t.now.UnixNano() && r.NextRetry != st.RetryAt.UnixNano() {
				t.fault("%s is tried again at %s, its row says %s", t.called(e), st.RetryAt.Sub(t.begun), time.Unix(0, r.NextRetry).Sub(t.begun))
			}
		}
		for _, e := range st.Queue[:st.InFlight] {
			if r := t.row(e.Num); r.State == sqlstore.RowPending {
				t.fault("%s is in flight, its row does not say so", t.called(e))
			}
		}
	}
}

// rest holds what is left when all is finished against nothing.
func (t *simulation) rest() {
	s := t.leader()
	m := s.m
	for n := 0; n < 40 && slices.ContainsFunc(m.SortedStreams(), func(st *machine.Stream) bool { return st.Next() != nil || st.Loading }); n++ {
		t.passOn() // what a former holder has stored is answered again
	}
	t.over("in the end")
	for range 2 { // it may have had something to look at still
		t.pass(machine.IdleAckDelay)
		t.drain()
	}
	for _, l := range s.conns {
		acked := uint64(0) // by a server that was sent nothing
		if r := t.server.streams[l.session+simOutbox]; r != nil {
			acked = r.row.AckedThrough
		}
		if st := m.Streams[l.session]; st == nil {
			t.fault("%s has a line and no stream", l.session)
		} else if acked < st.StoredThrough {
			t.fault("%d of %d outcomes of %s are acknowledged", acked, st.StoredThrough, l.session)
		}
	}
	t.pass(machine.IdleTimeout)
	t.drain()
	for _, st := range m.SortedStreams() { // one with nothing of its own left is not told of what another process has dropped, until there is news of its session
		if len(st.BlockedOn) > 0 {
			s.postAsync(func() { m.BacklogFound([]string{st.Session}, t.now) })
			t.drain()
		}
	}
	if len(s.conns)+len(m.Streams)+len(m.Timers)+len(m.BlockedSessions)+len(m.OpenQueue)+m.OpenStreams > 0 {
		t.fault("there is something left: %d open, %d streams, %d alarms, %d owing, %d ready, %d places", len(s.conns), len(m.Streams), len(m.Timers), len(m.BlockedSessions), len(m.OpenQueue), m.OpenStreams)
	}
}

// verify holds all outcomes against what had to become of the batches.
func (t *simulation) verify() {
	for _, session := range t.sessions {
		t.verifyOrder(session)
		for i, e := range t.server.session(session).log {
			o, op := t.outcome(e.op), t.ops[e.op]
			if o.Status != ledger.Applied || o.Cursor != uint64(i+1) {
				t.fault("op %s is event %d, its outcome is %v", e.op, i+1, o)
			}
			for k, a := range e.args {
				if want := op.Args[k]; want.Ref == nil && string(want.JSON) != string(a.JSON) || want.Ref != nil && !t.gives(want.Ref, a.JSON) {
					t.fault("op %s: argument %s is %s, not %v", e.op, a.Name, a.JSON, want)
				}
			}
		}
	}
	for _, b := range t.batches {
		bd := bodyOf(b.row)
		excused := slices.ContainsFunc(b.ops, t.excused)
		for i, op := range b.ops {
			o := t.outcome(op.ID)
			rec, known := t.ends[op.ID]
			switch row := &bd.Ops[i]; {
			case known != row.TakesSeq():
				t.fault("op %s ended as %v, recorded %v", op.ID, o, known)
			case known && row.LocalOutcome == nil && (o.Status != rec.Status || o.Reason != rec.Reason || o.Cursor != rec.Cursor || string(o.Result) != string(rec.Result) || o.Cause != rec.Cause):
				t.fault("op %s ended as %v, recorded is %v", op.ID, o, rec)
			}
			if o.Status == ledger.Applied && slices.ContainsFunc(op.Needs(), func(id string) bool { return !t.applied(id) }) {
				t.fault("op %s applied, and not what it needs: %v", op.ID, op.Needs())
			}
			if o.Status != ledger.Applied && !t.excused(op) && !(b.atomic && excused) {
				t.fault("op %s ended as %v, for no reason", op.ID, o)
			}
			if o.Status == ledger.Skipped && t.outcome(o.Cause).Status == ledger.Applied {
				t.fault("op %s was skipped for the sake of %s, which applied", op.ID, o.Cause)
			}
			if o.Status == ledger.Voided && !op.dropped {
				t.fault("op %s is void, and nobody dropped it", op.ID)
			}
		}
	}
}

// verifyOrder holds seqs against the order in which batches were committed.
func (t *simulation) verifyOrder(session string) {
	var rows []*sqlstore.BatchRow
	for _, r := range t.rows {
		if r.Session == session && r.Sequenced() {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b *sqlstore.BatchRow) int { return cmp.Compare(*a.FirstSeq, *b.FirstSeq) })
	next := int64(1)
	for i, r := range rows {
		if *r.FirstSeq != next {
			t.fault("%s: seq %d where %d is next", session, *r.FirstSeq, next)
		}
		next = *r.FirstSeq + int64(bodyOf(r).SeqCount())
		for _, before := range rows[:i] {
			if a, b := t.batchOf(before.ID), t.batchOf(r.ID); b.durable > 0 && b.durable < a.began {
				t.fault("%s overtook %s", t.names[before.ID], t.names[r.ID])
			}
		}
	}
}

func (t *simulation) outcome(op string) ledger.Outcome {
	f := t.opAt(op)
	e, err := f.Target()
	if err != nil || e.Outcome == nil {
		t.fault("op %s has no outcome: %v", op, err)
		return ledger.Outcome{}
	}
	return *e.Outcome
}

// applied says whether an op did, or one that stands for it.
func (t *simulation) applied(op string) bool {
	for ; op != ""; op = t.retries[op] {
		if t.ops[op] != nil && t.outcome(op).Status == ledger.Applied {
			return true
		}
	}
	return false
}

// gives says whether a reference may stand for a value.
func (t *simulation) gives(r *ledger.Ref, value []byte) bool {
	for op := r.Op; op != ""; op = t.retries[op] {
		if v, ok := ledger.Resolve(t.outcome(op).Result, r.Path); ok && string(v) == string(value) {
			return true
		}
	}
	return false
}

// excused says whether there is a reason for an op not to apply.
func (t *simulation) excused(op *simOp) bool {
	se := t.server.session(op.of.row.Session)
	return op.Method != "put" && op.Method != intent.MethodCreate || op.dropped || op.of.spoiled || len(t.dead) > 0 && t.outcome(op.ID).Reason == fault.Revoked || se.managed && t.outcome(op.ID).Reason == fault.UnknownRef ||
		slices.ContainsFunc(op.Args, func(a ledger.Arg) bool { return a.Name == "refuse" }) ||
		slices.ContainsFunc(op.Needs(), func(id string) bool { return t.outcome(id).Status != ledger.Applied })
}
