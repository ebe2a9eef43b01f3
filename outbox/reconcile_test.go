package outbox

// What a session lacks: the plan, by a table, and its carrying out.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// planned is a session's rows for a plan: batches of ops, of which each has applied at
// the next cursor unless its method says otherwise.
type planned struct {
	rows []*sqlstore.BatchRow
	outs map[string]*ledger.Outcome
	at   uint64
	id   func() string // of the next batch; nil: a new one
}

// add adds a finished row.
func (p *planned) add(atomic bool, ops ...intent.Op) (ids []string) {
	id := opid.NewBatch()
	if p.id != nil {
		id = p.id()
	}
	bd := &intent.Batch{Atomic: atomic, Ops: ops}
	var outs []ledger.Outcome
	for i := range bd.Ops {
		op := &bd.Ops[i]
		if op.ID == "" {
			op.ID = opid.Of(id, i)
		}
		o := ledger.Outcome{OpID: op.ID, Status: ledger.Applied}
		switch op.Method {
		case "refused":
			o = ledger.Outcome{OpID: op.ID, Status: ledger.Rejected, Reason: fault.BadPayload}
		case "unchanged":
			o.Cursor, o.Result = p.at, fmt.Appendf(nil, `{"cursor":%d,"unchanged":true}`, p.at)
		default:
			p.at++
			o.Cursor, o.Result = p.at, fmt.Appendf(nil, `{"cursor":%d}`, p.at)
		}
		outs = append(outs, o)
		ids = append(ids, op.ID)
		p.outs[op.ID] = &o
	}
	p.rows = append(p.rows, &sqlstore.BatchRow{Num: int64(len(p.rows)), ID: id, Session: "ses_1", State: sqlstore.RowFinished, Ops: len(ops),
		Body: bd.Encode("ses_1", id), Outcomes: intent.EncodeOutcomes(outs, bd.Ops)})
	return ids
}

// plan plans, with these next ops of ops.
func (p *planned) plan(t *testing.T, log *sessionLog, o ReconcileOptions, next map[string]string) *plan {
	t.Helper()
	find := func(op string) (*intent.Target, error) {
		if out := p.outs[op]; out != nil {
			return &intent.Target{ID: op, Session: "ses_1", Outcome: out}, nil
		}
		return nil, nil
	}
	pl := newPlanner(log, o, find, func(op string) (string, error) { return next[op], nil })
	for _, r := range p.rows {
		f := pl.addFinished
		if r.State != sqlstore.RowFinished {
			f = pl.addUnfinished
		}
		if err := f(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := pl.planResend(); err != nil {
		t.Fatal(err)
	}
	return &pl.plan
}

// fates are a plan's ops in words: the method and the fate.
func (p *plan) fates() (all []string) {
	for _, c := range p.ops {
		all = append(all, c.Method+" "+c.Fate.String())
	}
	return all
}

func refTo(op, path string) []ledger.Arg {
	return []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: op, Path: path}}}
}

func TestPlansOfLostOps(t *testing.T) {
	t.Parallel()
	p := &planned{outs: map[string]*ledger.Outcome{}}
	a := p.add(false, intent.Op{Method: "a"}, intent.Op{Method: "b"})
	c := p.add(false, intent.Op{Method: "c"}, intent.Op{Method: "refused"}, intent.Op{Method: "unchanged"}, intent.Op{Method: "d", Args: refTo(a[0], "cursor")})
	e := p.add(false, intent.Op{Method: "e", Deps: []string{c[0]}, Args: refTo(c[3], "cursor")}, intent.Op{Method: "expecting", Expected: ledger.Expect{Set: true, Cursor: 4}})
	offset := p.add(true, intent.Op{Method: "f"}, intent.Op{Method: "appendText", Args: []ledger.Arg{{Name: "offset", JSON: []byte("3")}}})
	needs := p.add(false, intent.Op{Method: "g", Deps: []string{e[1]}}, intent.Op{Method: "h", Args: refTo(offset[0], "cursor")}, intent.Op{Method: "i"})
	log := &sessionLog{Ops: map[string]uint64{a[0]: 1, a[1]: 2}}

	got := p.plan(t, log, ReconcileOptions{}, nil)
	want := []string{"c sent_again", "d sent_again", "e sent_again", "expecting held_back", "f held_back", "appendText held_back",
		"g held_back", "h held_back", "i sent_again"}
	if !slices.Equal(got.fates(), want) {
		t.Fatalf("the plan is %q", got.fates())
	}
	if len(got.resend) != 3 {
		t.Fatalf("%d batches", len(got.resend))
	}
	first, second := got.resend[0].body.Ops, got.resend[1].body.Ops
	if len(first) != 2 || first[0].ID != resentID(c[0]) || first[0].Retries != c[0] || string(first[1].Args[0].JSON) != "1" || first[1].Args[0].Ref != nil {
		t.Errorf("what the log has is a value: %+v", first)
	}
	if len(second) != 1 || !slices.Equal(second[0].Deps, []string{resentID(c[0])}) || second[0].Args[0].Ref == nil || second[0].Args[0].Ref.Op != resentID(c[3]) {
		t.Errorf("what is sent again is referred to as such: %+v", second)
	}
	if got := p.plan(t, log, ReconcileOptions{WithExpectations: true}, nil); slices.ContainsFunc(got.ops, func(c Reconciled) bool { return c.Fate != SentAgain }) || len(got.resend) != 4 {
		t.Errorf("with expectations the plan is %q", got.fates())
	}

	// What stands for an op already is not sent another time, and what was held back still can be.
	next := map[string]string{}
	for _, ops := range [][]string{{c[0], c[3], e[0]}, {needs[2]}} {
		for _, op := range ops {
			next[op] = resentID(op)
		}
	}
	if got := p.plan(t, log, ReconcileOptions{}, next); len(got.resend) > 0 || len(got.ops) != 5 {
		t.Errorf("a second time the plan is %q", got.fates())
	}
	if got := p.plan(t, log, ReconcileOptions{WithExpectations: true}, next); len(got.resend) != 3 {
		t.Errorf("a second time with expectations the plan is %q", got.fates())
	}
	// So is what a copy of this outbox has sent again, however often.
	log.Ops[resentID(c[0])], log.Ops[resentID(resentID(c[3]))] = 3, 4
	if got := p.plan(t, log, ReconcileOptions{}, nil); got.ops[0].Method != "e" {
		t.Errorf("after a copy the plan is %q", got.fates())
	}
	// Events that have left the log are not missing.
	if got := p.plan(t, &sessionLog{Base: p.at}, ReconcileOptions{}, nil); len(got.ops) > 0 {
		t.Errorf("of a log without old events the plan is %q", got.fates())
	}
	p.rows[1].Body[20] ^= 1
	slim, err := p.rows[0].Decode()
	if err != nil {
		t.Fatal(err)
	}
	slim.Compacted = true
	p.rows[0].Body = slim.Encode("ses_1", p.rows[0].ID)
	lost := p.plan(t, &sessionLog{Ops: map[string]uint64{a[0]: 1}}, ReconcileOptions{}, nil)
	if f := lost.fates(); f[0] != " lost" || lost.ops[0].Batch != p.rows[1].ID || f[1] != "b lost" || f[2] != "e held_back" {
		t.Errorf("of damaged rows the plan is %q", f)
	}
}

// What was not answered: the log tells of what was sent.
func TestPlansOfUnansweredOps(t *testing.T) {
	t.Parallel()
	p := &planned{outs: map[string]*ledger.Outcome{}}
	waits := func(first int64, ops ...intent.Op) []string {
		ids := p.add(false, ops...)
		r := p.rows[len(p.rows)-1]
		r.State, r.Outcomes = sqlstore.RowPending, nil
		if first > 0 {
			r.State, r.FirstSeq = sqlstore.RowInFlight, &first
		}
		return ids
	}
	sent := waits(5, intent.Op{Method: "a"}, intent.Op{Method: "b"})
	waits(7, intent.Op{Method: "c"}, intent.Op{Method: "d", Void: true})
	late := waits(0, intent.Op{Method: "e"}, intent.Op{Method: "expecting", Expected: ledger.Expect{Set: true}}, intent.Op{Method: "f"})
	waits(0, intent.Op{Method: "g", Deps: []string{late[1]}})
	got := p.plan(t, &sessionLog{Ops: map[string]uint64{sent[0]: 3}}, ReconcileOptions{}, nil)
	want := []string{"a in_log", "b held_back", "c waits", "d held_back", "e waits", "expecting held_back", "f waits", "g waits"}
	if !slices.Equal(got.fates(), want) {
		t.Errorf("the plan is %q", got.fates())
	}
	if o := got.pending[0].recorded; len(o) != 2 || o[0].Cursor != 3 || o[1].Status == ledger.Applied {
		t.Errorf("what was recorded is %+v", o)
	}
}

// logOf is a fake server's log as a client reads it.
func (s *fakeServer) logOf(session string) *sessionLog {
	log := &sessionLog{Ops: map[string]uint64{}}
	for i, e := range s.log(session) {
		log.Ops[e.op] = uint64(i + 1)
	}
	return log
}

// forget puts a session back to its first n events.
func (s *fakeServer) forget(session, outbox string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	se := s.session(session)
	se.log = slices.Clone(se.log[:n])
	delete(s.streams, session+outbox)
}

// A server forgets what it has answered, twice; between the two, and before anything is
// sent, the outbox is reconciled again, by other processes. In the end each op is there
// once, in order.
func TestReconcileBringsBackInOrder(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		srv := newFakeServer()
		session, other := withSession(t, b), withSession(t, b)
		stop := run(t, b, srv)
		var tickets []Ticket
		for i := range 5 {
			ops := []Op{put(fmt.Sprint(i)), put(fmt.Sprint(i + 100))}
			if i > 0 { // in the log as a value, or sent again as a reference
				ops[1].Args[0] = ledger.Arg{Name: "v", Ref: &ledger.Ref{Op: tickets[i-1].Ops[0], Path: "args.v"}}
			}
			tickets = append(tickets, commit(t, b, Batch{Session: session, Ops: ops}))
			wait(t, b, tickets[i])
		}
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		stop()
		before := srv.log(session)
		waits := commit(t, b, Batch{Session: session, Ops: []Op{put("5")}})
		needs := commit(t, b, Batch{Session: other, Ops: []Op{{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: waits.Ops[0], Path: "args.v"}}}}}})
		for _, kept := range []int{4, 6} {
			srv.forget(session, b.ID(), kept)
			log := srv.logOf(session)
			plan, err := b.planReconcile(ctx, session, log, ReconcileOptions{})
			if err != nil || !plan.Needed() {
				t.Fatalf("%+v, %v", plan, err)
			}
			for i := range 3 { // what was not sent goes along in its place
				r, err := p.open(t, quick()).reconcile(ctx, session, log, ReconcileOptions{})
				if i == 0 && (err != nil || !slices.Equal(r.Ops, plan.Ops)) {
					t.Errorf("it does %+v, and %+v was planned: %v", r.Ops, plan.Ops, err)
				}
				if err != nil || i > 0 && r.Count(SentAgain) > 0 {
					t.Fatalf("time %d: %+v, %v", i, r.Ops, err)
				}
			}
			srv.mu.Lock()
			delete(srv.streams, session+b.ID())
			srv.mu.Unlock()
			stop := run(t, b, srv)
			if err := b.Drain(ctx, nil); err != nil {
				t.Fatal(err)
			}
			stop()
		}
		var was, is []string
		for _, e := range before {
			was = append(was, string(e.args[0].JSON))
		}
		for _, e := range srv.log(session) {
			is = append(is, string(e.args[0].JSON))
		}
		if !slices.Equal(is, append(was, "5")) {
			t.Errorf("the log has %q, and had %q", is, was)
		}
		for _, ticket := range []Ticket{waits, needs} {
			if got := wait(t, b, ticket); got[0].Status != ledger.Applied {
				t.Errorf("%+v", got)
			}
		}
		for _, ticket := range tickets { // who has the ticket has the answer that was given
			if got := wait(t, b, ticket); got[0].Status != ledger.Applied {
				t.Errorf("%+v", got)
			}
		}
		if r, err := b.reconcile(ctx, session, srv.logOf(session), ReconcileOptions{}); err != nil || r.Needed() || len(r.Ops) > 0 {
			t.Errorf("nothing is missing: %+v, %v", r, err)
		}
	})
}

// A damaged row that had to be sent next is lost, and the rest goes on without it.
func TestReconcileLeavesDamageBehind(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		srv := newFakeServer()
		session := withSession(t, b)
		var mute atomic.Bool
		mute.Store(true)
		srv.after = func(*ledger.Batch) bool { return mute.Load() } // no answer arrives
		stop := run(t, b, srv)
		bad := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		eventually(t, "it has a seq", func() bool {
			rows, err := b.List(ctx, Filter{Batch: bad.Batch})
			return err == nil && rows[0].State == InFlight
		})
		stop()
		mute.Store(false)
		srv.forget(session, b.ID(), 0)
		err := b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
			_, err := q.Exec(ctx, `UPDATE mooring_outbox_batch SET body = $3 WHERE box = $1 AND batch = $2 AND state < 2`, b.t.Box, bad.Batch, []byte{2, 0, 7})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		good := commit(t, b, Batch{Session: session, Ops: []Op{put("2")}})
		stop = run(t, b, srv)
		eventually(t, "the stream stops", func() bool {
			still, err := b.Stopped(ctx, session)
			return err == nil && still != nil && still.Code == fault.OutboxDamaged
		})
		r, err := b.reconcile(ctx, session, srv.logOf(session), ReconcileOptions{})
		if err != nil || r.Stopped == nil || r.Count(Lost) != 1 || r.Count(Waits) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		if got := wait(t, b, good); got[0].Status != ledger.Applied {
			t.Errorf("%+v", got)
		}
		if _, err := b.Wait(ctx, bad.Batch); fault.CodeOf(err) != fault.OutboxDamaged {
			t.Errorf("waiting for what is lost: %v", err)
		}
		if still, err := b.Stopped(ctx, session); err != nil || still != nil {
			t.Errorf("afterwards: %v, %v", still, err)
		}
		stop()
	})
}

// A session that its server has lost is made again by who made it, and by nobody else.
func TestReconcileMakesTheSessionAgain(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		session := withSession(t, b)
		srv := newFakeServer()
		stop := run(t, b, srv)
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		stop()
		if _, err := b.reconcile(ctx, session, &sessionLog{Gone: true}, ReconcileOptions{}); fault.CodeOf(err) != fault.NotFound || !strings.Contains(err.Error(), "the home folder that made it") {
			t.Errorf("without its creation: %v", err)
		}
		if r, err := b.planReconcile(ctx, session, &sessionLog{}, ReconcileOptions{}); err != nil || r.Count(SentAgain) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// What others send meanwhile is not missed in a log that was read before it came, and
// what is on its way may be there by now.
func TestReconcileWhileOthersSend(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		srv := newFakeServer()
		session := withSession(t, b)
		var mute atomic.Bool
		srv.after = func(*ledger.Batch) bool { return mute.Load() }
		stop := run(t, b, srv)
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		wait(t, b, x)
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		log, err := b.newLog(ctx, session)
		if err != nil {
			t.Fatal(err)
		}
		y := commit(t, b, Batch{Session: session, Ops: []Op{put("2")}})
		wait(t, b, y)
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		r, err := b.planReconcile(ctx, session, log, ReconcileOptions{})
		if err != nil || len(r.Ops) != 1 || r.Ops[0].Op != x.Ops[0] || r.Ops[0].Fate != SentAgain {
			t.Errorf("%+v, %v", r, err)
		}
		mute.Store(true)
		z := commit(t, b, Batch{Session: session, Ops: []Op{put("3")}})
		eventually(t, "it has a seq", func() bool {
			rows, err := b.List(ctx, Filter{Batch: z.Batch})
			return err == nil && rows[0].Seq > 0
		})
		if _, err := b.reconcile(ctx, session, log, ReconcileOptions{}); fault.CodeOf(err) != fault.InUse {
			t.Errorf("while an op is on its way: %v", err)
		}
		mute.Store(false)
		wait(t, b, z)
		stop()
		if n := len(srv.log(session)); n != 3 {
			t.Errorf("the log has %d events", n)
		}
	})
}

// What was sent and not answered follows what is sent again, in its order, with
// references kept.
func TestReconcileKeepsWhatWasSentInOrder(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		srv := newStopping()
		session := withSession(t, b)
		stop := run(t, b, srv)
		first := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		wait(t, b, first)
		srv.stopAt(session, fault.ServerBehind.With("on request"))
		last := first
		for i := 2; i <= 4; i++ {
			last = commit(t, b, Batch{Session: session, Ops: []Op{put(fmt.Sprint(i)), {Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: last.Ops[0], Path: "args.v"}}}}}})
		}
		eventually(t, "the stream stops", func() bool {
			still, err := b.Stopped(ctx, session)
			return err == nil && still != nil
		})
		stop()
		srv.forget(session, b.ID(), 0)
		r, err := b.reconcile(ctx, session, srv.logOf(session), ReconcileOptions{})
		if err != nil || r.Count(SentAgain) != 1 || r.Count(Waits) != 6 {
			t.Fatalf("%+v, %v", r, err)
		}
		srv.fresh(session, b.ID())
		run(t, b, srv)
		wait(t, b, last)
		var log []string
		for _, e := range srv.log(session) {
			log = append(log, string(e.args[0].JSON))
		}
		if want := []string{"1", "2", "1", "3", "2", "4", "3"}; !slices.Equal(log, want) {
			t.Errorf("the log has %q, want %q", log, want)
		}
	})
}

// fakeLog reads a fake server's log, and counts how often.
type fakeLog struct {
	srv     *fakeServer
	session string
	reads   int
	before  func() // a reading
}

func (l *fakeLog) Gone(context.Context) (bool, error) { return false, nil }

func (l *fakeLog) Read(_ context.Context, add func(string, uint64)) (uint64, error) {
	l.reads++
	l.before()
	for op, cursor := range l.srv.logOf(l.session).Ops {
		add(op, cursor)
	}
	return 0, nil
}

// TestReconcileReadsTheLogAgain: the log is read again if a sender has begun since its stream was
// fenced, and nothing is changed by a dry run.
func TestReconcileReadsTheLogAgain(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		srv := newFakeServer()
		session := withSession(t, b)
		stop := run(t, b, srv)
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		wait(t, b, x)
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		stop()
		srv.forget(session, b.ID(), 0)
		log := &fakeLog{srv: srv, session: session, before: func() {}}
		r, err := b.Reconcile(ctx, srv, session, log, ReconcileOptions{DryRun: true})
		if err != nil || r.Count(SentAgain) != 1 || log.reads != 1 {
			t.Fatalf("%+v after %d readings, %v", r, log.reads, err)
		}
		log.reads = 0
		log.before = func() {
			if log.reads == 2 { // after the fence
				if _, err := b.raiseIncarnationBy(ctx, 1); err != nil {
					t.Error(err)
				}
			}
		}
		if r, err = b.Reconcile(ctx, srv, session, log, ReconcileOptions{}); err != nil || r.Count(SentAgain) != 1 || log.reads != 4 {
			t.Fatalf("%+v after %d readings, %v", r, log.reads, err)
		}
		srv.forget(session, b.ID(), 0) // the new stream is another one
		defer run(t, b, srv)()
		if o := wait(t, b, Ticket{Batch: r.Batches[0]})[0]; o.Status != ledger.Applied || o.OpID != r.Ops[0].NewOp {
			t.Errorf("%+v", o)
		}
	})
}
