package decide_test

// How many turns may be open, of whom.

import (
	"context"
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

func begin(message string) anOp {
	return op("begin", "message", message, "payload", raw(`{}`))
}

func aborted(message string) anOp { return op("finalize", "message", message, "status", "aborted") }

// together commits ops in one batch, all of which apply.
func (o *writer) together(ops ...anOp) {
	o.w.Helper()
	for _, out := range o.try(ops...) {
		if out.Status != ledger.Applied {
			o.w.Fatalf("op %s: %s: %s", out.OpID, out.Reason, out.Message)
		}
	}
}

// begins opens n turns, of messages that are named after what.
func (o *writer) begins(what string, n int) {
	o.w.Helper()
	if n == 0 {
		return
	}
	ops := make([]anOp, n)
	for i := range ops {
		ops[i] = begin(fmt.Sprintf("%s%d", what, i))
	}
	o.together(ops...)
}

// waits says that a begin is answered as one that may come again, and consumes no seq.
func (o *writer) waits(t *testing.T, when string) {
	t.Helper()
	last := o.w.store.Stream(o.session, o.outbox).LastSeq
	if err := o.refused(begin("waits")); err == nil || err.Code != fault.Overloaded {
		t.Fatalf("a begin %s: %v, want overloaded", when, err)
	}
	mustEqual(t, "last seq "+when, o.w.store.Stream(o.session, o.outbox).LastSeq, last)
}

// open are the turns that have not ended.
func (o *writer) open() (open []*session.Turn) {
	_, turns := o.w.store.State(o.session)
	for _, t := range turns {
		if t.Status.Open() {
			open = append(open, t)
		}
	}
	return open
}

// turnRow is a turn's row.
func (o *writer) turnRow(message string) *session.Turn {
	_, turns := o.w.store.State(o.session)
	for _, t := range turns {
		if t.Message == message {
			return t
		}
	}
	return nil
}

// A stream's own open turns are its own fault.
func TestOpenTurnsOfAStreamAreBounded(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.begins("m", session.MaxOpenTurns)
	o.refuse(ledger.Rejected, fault.TooLarge, begin("x"))
	o.under(o.ref).apply(begin("x")) // of another stream
	o.together(aborted("m0"), begin("y"))
	o.refuse(ledger.Rejected, fault.TooLarge, begin("z"))
}

// What others have open makes a begin wait: others of the same ref, of those that it
// descends from, and of all that descend from these.
func TestOpenTurnsOfARefAreBounded(t *testing.T) {
	t.Parallel()
	const full = session.MaxOpenTurns
	for name, c := range map[string]struct {
		parent, child, sibling, owner int    // turns that are open
		waiting                       string // whose begin waits
	}{
		"room for one":                {100, full - 101, full - 1, full - 1, ""},
		"a ref's own":                 {full, 0, 0, 0, "parent child "},
		"a ref's with those below it": {100, full - 100, 0, 0, "parent child "},
		"one below it":                {0, full, 0, 0, "parent child "},
		"beside it":                   {0, 0, full, 0, "sibling "},
		"the owner's":                 {0, 0, 0, full, ""},
		"all refs but the owner's":    {0, full, full, 0, "parent child sibling "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newWorld(t).create()
			parent, sibling := o.under(o.share(all)), o.under(o.share(all))
			child := o.under(parent.share(all))
			parent.begins("p", c.parent)
			child.begins("c", c.child)
			sibling.begins("s", c.sibling)
			o.begins("o", c.owner)
			o.w.lapse(true, o.session) // interrupted ones count too
			waiting := ""
			for _, who := range []struct {
				name string
				*writer
			}{{"parent", parent}, {"child", child}, {"sibling", sibling}, {"owner", o}} {
				next := who.name + "-next"
				other := who.under(who.ref) // whose own stream has none
				if err := other.refused(begin(next), aborted(next)); err != nil {
					mustEqual(t, who.name, err.Code, fault.Overloaded)
					other.waits(t, who.name)
					waiting += who.name + " "
				}
			}
			mustEqual(t, "whose begin waits", waiting, c.waiting)
			// Who goes on is not refused, whatever is open.
			child.apply(put("message/x"))
			for _, turn := range o.open() {
				if child.outbox == turn.Outbox && turn.Status != session.Streaming {
					t.Fatalf("%+v", turn)
				}
			}
			// Room is made by whoever ends one.
			if c.parent == full {
				o.apply(aborted("p7"))
				child.apply(begin("x"))
				child.waits(t, "when it is full again")
			}
		})
	}
}

// What one batch of a group does is counted for the next, and what was taken back is not.
func TestOpenTurnsAreCountedWithinAGroup(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	parent := o.under(o.share(all))
	child, other := parent.under(parent.share(all)), parent.under(parent.ref)
	child.begins("c", session.MaxOpenTurns-1)
	reasons := func(subs ...decide.Submission) (reasons []fault.Code) {
		answers, _ := o.w.commit(subs...)
		for i, a := range answers {
			if a.Err != nil {
				reasons = append(reasons, a.Err.Code)
				continue
			}
			reasons = append(reasons, a.Outcomes[len(subs[i].Batch.Ops)-1].Reason)
		}
		return reasons
	}
	got := reasons(parent.batch(true, begin("a"), put("?")), parent.batch(false, begin("b")), other.batch(false, begin("c")))
	mustEqual(t, "the last one alone waits", fmt.Sprint(got), fmt.Sprint([]fault.Code{fault.BadKey, fault.None, fault.Overloaded}))
	other.seq--
	got = reasons(o.batch(false, begin("d")), o.batch(false, op("revoke", "ref", child.ref)), other.batch(false, begin("c")))
	mustEqual(t, "a ref has died before the last", fmt.Sprint(got), fmt.Sprint([]fault.Code{fault.None, fault.None, fault.None}))
}

// Turns of dead refs do not count, however the refs died.
func TestOpenTurnsOfDeadRefsDoNotCount(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]func(o *writer, child string){
		"revoked":         func(o *writer, child string) { o.apply(op("revoke", "ref", child)) },
		"of an old epoch": func(o *writer, _ string) { o.apply(op("bumpEpoch")) },
		"expired":         func(o *writer, _ string) { o.w.store.Now += 5000 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newWorld(t).create()
			parent := o.under(o.share(all))
			child := parent.under(parent.share(all, "expires_at", o.w.store.Now+5000))
			child.begins("c", session.MaxOpenTurns)
			parent.waits(t, "before")
			die(o, child.ref)
			if name == "of an old epoch" {
				parent = o.under(o.share(all))
			}
			parent.begins("p", session.MaxOpenTurns)
			parent.under(parent.ref).waits(t, "when it has as many of its own")
		})
	}
}

// What has ended by the time that it could be marked is none.
func TestAnEndedTurnIsNoOrphan(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	guest := o.under(o.share(all))
	guest.begins("g", 2)
	o.begins("o", session.MaxOpenTurns)
	o.apply(op("revoke", "ref", guest.ref))
	outs := o.try(begin("x"), aborted("g0"), aborted("o0"), begin("y"))
	for i, want := range []fault.Code{fault.TooLarge, fault.None, fault.None, fault.None} {
		mustEqual(t, outs[i].Message, outs[i].Reason, want)
	}
	if o.turnRow("g0").Orphan || !o.turnRow("g1").Orphan {
		t.Errorf("%+v %+v", o.turnRow("g0"), o.turnRow("g1"))
	}
}

// A stream that goes on under another ref has the turns of the dead one no more.
func TestOpenTurnsOfAStreamUnderADeadRef(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	guest := o.under(o.share(all))
	guest.begins("g", session.MaxOpenTurns)
	guest.refuse(ledger.Rejected, fault.TooLarge, begin("x"))
	o.apply(op("revoke", "ref", guest.ref))
	guest.ref = o.share(all)
	guest.begins("h", session.MaxOpenTurns)
	guest.refuse(ledger.Rejected, fault.TooLarge, begin("x"))
}

// opened has n turns that are rows alone, which no event tells of: nothing is to be
// checked against these, so batches are committed by code.
func (o *writer) opened(what string, n int, t session.Turn) {
	o.w.Helper()
	rows := &session.Changes{}
	t.Session, t.Status, t.Begun = o.session, session.Interrupted, 1
	for i := range n {
		t.Message = fmt.Sprintf("%s%d", what, i)
		rows.Turns = append(rows.Turns, new(t))
	}
	if err := o.w.store.Update(context.Background(), func(tx session.Tx) error { return tx.Save(context.Background(), rows) }); err != nil {
		o.w.Fatalf("%v", err)
	}
}

// code commits ops and gives why they were not applied, the last one if they were recorded.
func (o *writer) code(atomic bool, ops ...anOp) (code fault.Code) {
	o.w.Helper()
	sub := o.batch(atomic, ops...)
	err := o.w.store.Update(context.Background(), func(tx session.Tx) error {
		answers, _, err := decide.Commit(context.Background(), tx, []decide.Submission{sub}, o.w.cfg)
		switch {
		case err != nil:
		case answers[0].Err != nil:
			code, o.seq = answers[0].Err.Code, o.seq-uint64(len(ops))
		default:
			code = answers[0].Outcomes[len(ops)-1].Reason
		}
		return err
	})
	if err != nil {
		o.w.Fatalf("commit: %v", err)
	}
	return code
}

// The session's bound is filled by many: a begin waits for it, whoever's it is.
func TestOpenTurnsOfASessionAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	var guests []*writer
	for range session.MaxSessionTurns / session.MaxOpenTurns {
		guests = append(guests, o.under(o.share(all)))
	}
	for i, g := range guests {
		g.opened(fmt.Sprintf("g%d-", i), session.MaxOpenTurns, session.Turn{Outbox: g.outbox, Ref: g.ref})
	}
	end := func(message string) anOp {
		return op("finalize", "message", message, "status", "aborted", "payload", raw(`{}`))
	}
	full := func(when string) { t.Helper(); mustEqual(t, when, o.code(false, begin("waits")), fault.Overloaded) }
	full("at first")
	// The batch is undone as a whole, and comes again.
	mustEqual(t, "room for one of two", o.code(false, end("g0-0"), begin("a"), begin("b")), fault.Overloaded)
	mustEqual(t, "the same with room", o.code(false, end("g0-0"), begin("a")), fault.None)
	full("when it is full again")
	// What is taken back counts as if it had not been.
	mustEqual(t, "a batch that is aborted", o.code(true, aborted("a"), op("revoke", "ref", guests[1].ref), begin("c"), put("?")), fault.BadKey)
	full("when all was taken back")

	mustEqual(t, "a revoke", o.code(false, op("revoke", "ref", guests[1].ref)), fault.None)
	mustEqual(t, "with a dead ref", o.code(false, begin("d")), fault.None)
	orphans := 0
	for _, turn := range o.open() {
		if turn.Orphan != (turn.Ref == guests[1].ref) {
			t.Fatalf("%+v", turn)
		}
		if turn.Orphan {
			orphans++
		}
	}
	mustEqual(t, "orphans", orphans, session.MaxOpenTurns)
	// A batch reads no more of them than it is about, and not their refs.
	var second *session.ReadSet
	var rows *session.Rows
	err := w.store.Update(t.Context(), func(tx session.Tx) error {
		_, _, err := decide.Commit(t.Context(), looking{tx, &second, &rows}, []decide.Submission{o.batch(false, begin("e"), end("g1-0"))}, w.cfg)
		return err
	})
	if got := len(rows.Turns[o.session]); err != nil || got != session.MaxSessionTurns-session.MaxOpenTurns+2 {
		t.Errorf("a batch read %d turns: %v", got, err)
	}
	if second != nil {
		t.Errorf("refs were read one by one: %+v", second)
	}
}

// looking keeps what the first Load found, and what another was for that read refs.
type looking struct {
	session.Tx
	second **session.ReadSet
	first  **session.Rows
}

func (l looking) Load(ctx context.Context, want *session.ReadSet) (*session.Rows, error) {
	rows, err := l.Tx.Load(ctx, want)
	if *l.first == nil {
		*l.first = rows
	} else if len(want.Lineages) > 0 {
		*l.second = want
	}
	return rows, err
}

// An orphan goes on if its stream does, under whatever ref: nothing but its own ops renews it.
func TestAnOrphanGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	guest := o.under(o.share(all))
	guest.together(begin("m"), op("put", "key", "part/m/p", "payload", raw(`{"text":""}`)), begin("n"))
	o.apply(op("revoke", "ref", guest.ref))
	o.apply(begin("o"))
	guest.ref = o.share(all)
	length := 0
	text := func(text string) anOp {
		length++
		return op("appendText", "key", "part/m/p", "offset", length-1, "text", text)
	}
	status := func(when string, m, n session.TurnStatus) {
		t.Helper()
		mustEqual(t, "turn m "+when, o.turnRow("m").Status, m)
		mustEqual(t, "turn n "+when, o.turnRow("n").Status, n)
		if !o.turnRow("m").Orphan || !o.turnRow("n").Orphan || o.turnRow("o").Orphan {
			t.Errorf("%s: orphans: %+v %+v %+v", when, o.turnRow("m"), o.turnRow("n"), o.turnRow("o"))
		}
	}
	guest.apply(put("message/x"))
	w.store.Now += w.cfg.Lease.Milliseconds() - 10
	guest.apply(text("a"))
	w.store.Now += 20
	w.lapse(false, o.session)
	status("later", session.Streaming, session.Interrupted)
	w.store.Now += w.cfg.Lease.Milliseconds()
	w.lapse(false, o.session)
	guest.apply(put("message/x"))
	status("when its lease has lapsed", session.Interrupted, session.Interrupted)
	guest.refuse(ledger.Rejected, fault.TurnOpen, op("remove", "key", "message/m")) // though its turn is looked at
	status("when another op was about it", session.Interrupted, session.Interrupted)
	guest.apply(text("b"))
	status("when it goes on", session.Streaming, session.Interrupted)
	events := w.store.Events(o.session)
	if e := events[len(events)-2]; e.Method != session.MethodResumed || e.Key != "message/m" {
		t.Errorf("before the text came %s of %s", e.Method, e.Key)
	}
	guest.together(op("finalize", "message", "m", "status", "completed"), aborted("n"))
	status("at its end", session.Completed, session.Aborted)
}

// A turn of which no row says a ref counts for its stream and its session.
func TestOpenTurnsWithoutARef(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	guest := o.under(o.share(all))
	gone := session.Turn{Outbox: guest.outbox}
	code := func(by *writer) fault.Code { return by.code(true, begin("x"), put("?")) } // it is taken back
	guest.opened("m", session.MaxOpenTurns, gone)
	mustEqual(t, "under the same ref", code(guest.under(guest.ref)), fault.BadKey)
	mustEqual(t, "of the same stream", code(guest), fault.TooLarge)
	guest.opened("n", session.MaxSessionTurns-session.MaxOpenTurns-1, gone)
	mustEqual(t, "with room for one", code(o), fault.BadKey)
	guest.opened("o", 1, gone)
	mustEqual(t, "in a full session", code(o), fault.Overloaded)
}
