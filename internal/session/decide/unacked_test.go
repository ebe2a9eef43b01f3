package decide_test

// What a stream leaves behind: outcomes that its client has not acknowledged,
// and denials in the audit. Both are bounded, whoever sends.

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

func puts(n int) (ops []anOp) {
	for range n {
		ops = append(ops, put("message/m"))
	}
	return ops
}

// A dead ref's holder may send for ever, and is denied; what is kept of that
// stays small.
func TestUnacknowledgedOutcomesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.UnackedOps = 200
	o := w.create()
	guest := o.under(o.share(all))
	o.apply(op("revoke", "ref", guest.ref))
	rows := len(w.store.Audit())

	var sent []decide.Submission
	for range 10 {
		sub := guest.batch(false, puts(20)...)
		sent = append(sent, sub)
		answers, _ := w.commit(sub)
		if a := answers[0]; a.Err != nil || a.Outcomes[19].Reason != fault.Revoked {
			t.Fatalf("%+v", a)
		}
	}
	var denials []*capability.AuditRow
	for _, a := range w.store.Audit()[rows:] {
		if a.Act == capability.AuditDenial {
			denials = append(denials, a)
		}
	}
	mustEqual(t, "audit rows", len(denials), 20*len(sent))
	mustEqual(t, "denials told by the first", denials[0].Count, 1)
	mustEqual(t, "op of the first", denials[0].Op, sent[0].Batch.Ops[0].OpID)
	mustEqual(t, "method of the first", denials[0].Subject, session.MethodPut)

	full := guest.batch(false, puts(20)...)
	answers, _ := w.commit(full, sent[3])
	if err := answers[0].Err; err == nil || err.Code != fault.Overloaded {
		t.Fatalf("a new batch: %+v", answers[0])
	}
	if !answers[1].Duplicate {
		t.Fatalf("an old one: %+v", answers[1])
	}
	mustEqual(t, "records", w.store.Records(guest.session, guest.outbox), len(sent))
	w.commit(o.batch(false, put("message/m"))) // others go on

	full.Batch.AckedThrough = 20 // what comes with it counts
	answers, _ = w.commit(full)
	if answers[0].Err != nil {
		t.Fatalf("acknowledged: %+v", answers[0])
	}
	full = guest.batch(false, puts(20)...)
	answers, _ = w.commit(full, decide.Submission{Batch: ledger.Batch{Session: guest.session, Outbox: guest.outbox, Incarnation: 1, AckedThrough: 60}, Ack: true}, full)
	if answers[0].Err == nil || answers[1].Err != nil || answers[2].Err != nil {
		t.Fatalf("acknowledged apart: %+v", answers)
	}
}

func TestUnacknowledgedOutcomesUpToTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.UnackedOps = 3
	o := w.create()
	guest := o.under(o.share(all))
	answers, _ := w.commit(guest.batch(false, puts(2)...), guest.batch(false, puts(1)...), guest.batch(false, puts(1)...))
	if answers[0].Err != nil || answers[1].Err != nil || answers[2].Err == nil || !strings.Contains(answers[2].Err.Message, "3 outcomes") {
		t.Errorf("%+v", answers)
	}
}

// An outbox does not acknowledge what an op that has no answer yet refers to. It
// has seqs for 4 windows of 64 batches ahead; the last of them may need the first.
func TestReferencesNeverMeetTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.UnackedOps /= w.cfg.Limits.BatchOps / 10
	w.cfg.Limits.BatchOps = 10
	o := w.create()
	o.acked = o.seq
	first := o.batch(false, puts(10)...)
	subs := []decide.Submission{first}
	for range 4*64 - 2 {
		subs = append(subs, o.batch(false, puts(10)...))
	}
	last := put("message/n")
	last.depends = []string{first.Batch.Ops[0].OpID}
	subs = append(subs, o.batch(false, last))
	answers, _ := w.commit(subs...)
	for i, a := range answers {
		if a.Err != nil || a.Outcomes[0].Status != ledger.Applied {
			t.Fatalf("batch %d: %+v", i, a)
		}
	}
}

// Each refusal has a row, with what was refused and whence it came, and what is
// beyond many has one together for each reason.
func TestDenialsHaveARowEachUpToABound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	guest := o.under(o.share([]string{"read", "append"}))
	bob := o.share(all)
	before := len(w.store.Audit())
	few := guest.batch(false, put("message/a"), op("revoke", "ref", bob), op("delete"), op("no\x00such"), op("bumpEpoch"), op("delete"))
	few.Peer = "192.0.2.7"
	w.commit(few)
	var got []string
	for _, a := range w.store.Audit()[before:] {
		mustEqual(t, "act", a.Act, capability.AuditDenial)
		mustEqual(t, "peer", a.Peer, "192.0.2.7")
		got = append(got, fmt.Sprintf("%s %s %d", a.Subject, a.Reason, a.Count))
	}
	mustEqual(t, "rows", strings.Join(got, ", "), "revoke missing_right 1, delete not_an_owner 1, bumpEpoch missing_right 1, delete not_an_owner 1")

	o.apply(op("revoke", "ref", guest.ref))
	before = len(w.store.Audit())
	many := guest.batch(false, puts(50)...)
	w.commit(many)
	rows := w.store.Audit()[before:]
	mustEqual(t, "rows of 50 refusals", len(rows), 33)
	counted := uint32(0)
	for _, a := range rows {
		counted += a.Count
	}
	mustEqual(t, "refusals in them", counted, 50)
	mustEqual(t, "op of the last row", rows[32].Op, many.Batch.Ops[32].OpID)
	mustEqual(t, "method of the last row, which is for many", rows[32].Subject, "")
	mustEqual(t, "method of the one before", rows[31].Subject, session.MethodPut)
}

// A denial names the ref that was shown and, where that is the session's, its actor;
// and only what was refused for want of authority is one.
func TestSubjectOfADenial(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create("actor", "ann")
	ref := o.share(all, "actor", "ann/bob")
	bob, stranger := o.under(ref), o.under(w.create("actor", "eve").ref)
	lister, hash := newRef(capability.Target(w.space))
	w.store.AddGrant(capability.Grant{ID: lister, Target: capability.Target(w.space), Hash: hash, Rights: capability.List, Actor: "clerk"})
	made := w.newWriter()
	made.space = lister
	unborn := rotate(ref, ref)
	unborn.Batch.Session, unborn.Ref = made.session, made.ref
	own := decide.Submission{Batch: ledger.Batch{Session: o.session}, Ref: ref, Peer: "192.0.2.7", Direct: &decide.Direct{Ref: o.ref}}
	w.commit(o.batch(false, op("revoke", "ref", o.share([]string{"read"}))))
	for _, c := range []struct {
		sub  decide.Submission
		want string
	}{
		{bob.batch(true, put("message/a"), op("delete")), "delete not_an_owner " + ref + " ann/bob 1"},
		{bob.batch(true, put("message/a"), put("ref/x")), ""},
		{stranger.batch(false, put("message/a")), "put unknown_ref " + stranger.ref + "  1"},
		{made.batch(false, op("create", "ref", made.ref, "hash", sha(made.ref))), "create missing_right " + lister + "  1"},
		{own, "revoke missing_right " + ref + " ann/bob 0"},
		{rotate(ref, ref), "rotate not_an_owner " + ref + " ann/bob 0"},
		{unborn, "rotate unknown_ref " + made.ref + "  0"},
		{rotate(o.ref, ref), ""},
		{o.batch(false, op("revoke", "ref", o.ref)), "revoke none " + o.ref + " ann 0"},
		{o.batch(false, op("void")), "void revoked " + o.ref + " ann 1"}, // by who made it, through the space
	} {
		before := len(w.store.Audit())
		w.commit(c.sub)
		got := ""
		for _, a := range w.store.Audit()[before:] {
			got += fmt.Sprintf("%s %s %s %s %d", a.Subject, a.Reason, a.Ref, a.Actor, a.Count)
			if a.Target != c.sub.Batch.Session || a.At != w.store.Now || a.Peer != c.sub.Peer {
				t.Errorf("%+v", a)
			}
			if a.Act == capability.AuditRevoke {
				got = "revoke none " + a.Ref + " " + a.Actor + " 0"
			}
		}
		mustEqual(t, "audit", got, c.want)
	}
}

// What is done is told by ref and method, and nothing else: no refused op, no
// repeated one, nothing of a batch that was taken back.
func TestUsesAreWhatApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	guest := o.under(o.share([]string{"append"}, "actor", "owner/guest"))
	sub := guest.batch(false, put("message/a"), put("message/b"), op("delete"), op("remove", "key", "message/a"), put("message/c"))
	answers, _ := w.commit(sub, sub)
	mustEqual(t, "uses", fmt.Sprint(answers[0].Uses), fmt.Sprintf("[{%s owner/guest put  3} {%s owner/guest remove  1}]", guest.ref, guest.ref))
	mustEqual(t, "uses of a repeated batch", len(answers[1].Uses), 0)
	answers, _ = w.commit(guest.batch(true, put("message/d"), op("delete")))
	mustEqual(t, "uses of a batch that was taken back", len(answers[0].Uses), 0)

	// What makes a session is done under its space's ref, and what follows under its own.
	clerk, hash := newRef(capability.Target(w.space))
	w.store.AddGrant(capability.Grant{ID: clerk, Target: capability.Target(w.space), Hash: hash, Rights: capability.Create, Actor: "clerk"})
	p, f := w.newWriter(), w.newWriter()
	p.space, f.space, f.with = clerk, clerk, []string{o.ref}
	answers, _ = w.commit(p.batch(false, op("create", "ref", p.ref, "hash", sha(p.ref)), put("message/a"), op("bumpEpoch")),
		f.batch(false, op("fork", "source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref))))
	mustEqual(t, "uses of making one", fmt.Sprint(answers[0].Uses), fmt.Sprintf("[{%s clerk create  1} {%s clerk/owner put  1} {%s clerk/owner bumpEpoch  1}]", clerk, p.ref, p.ref))
	mustEqual(t, "uses of a fork", fmt.Sprint(answers[1].Uses), fmt.Sprintf("[{%s clerk fork  1}]", clerk))
}

// TestDenialsAreCountedWhereTheyHaveNoRoom: rows of the audit are the caller's to give.
func TestDenialsAreCountedWhereTheyHaveNoRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	guest := o.under(o.share(all))
	o.apply(op("revoke", "ref", guest.ref))
	for _, c := range []struct{ ops, room, rows, counted int }{
		{20, 20, 20, 0}, {20, 3, 3, 17}, {20, 0, 0, 20}, {100, 33, 33, 0}, {100, 32, 32, 68}, {100, 5, 5, 95},
	} {
		asked := 0
		w.cfg.DenialRows = func(ref string, want int) int {
			asked++
			if ref != guest.ref || want != min(c.ops, 33) {
				t.Errorf("%d rows are wanted for %s", want, ref)
			}
			return c.room
		}
		before := len(w.store.Audit())
		answers, _ := w.commit(guest.batch(false, puts(c.ops)...))
		guest.acked = guest.seq
		counted := 0
		for _, row := range answers[0].Denied {
			counted += int(row.Count)
			if row.Ref != guest.ref || row.Reason != fault.Revoked || row.Op != "" || row.At != 0 {
				t.Errorf("counted: %+v", row)
			}
		}
		if rows := len(w.store.Audit()) - before; rows != c.rows || counted != c.counted || asked != 1 {
			t.Errorf("%+v: %d rows, %d counted, asked %d times", c, rows, counted, asked)
		}
	}
}
