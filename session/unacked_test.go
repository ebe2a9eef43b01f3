package session_test

// What a stream leaves behind: outcomes that its client has not acknowledged,
// and denials in the audit. Both are bounded, whoever sends.

import (
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
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

	var sent []session.Submission
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
	mustEqual(t, "audit rows", len(denials), len(sent))
	mustEqual(t, "denials told by the first", denials[0].Count, 20)
	mustEqual(t, "op of the first", denials[0].Op, sent[0].Batch.Ops[0].OpID)

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
	answers, _ = w.commit(full, session.Submission{Batch: ledger.Batch{Session: guest.session, Outbox: guest.outbox, Incarnation: 1, AckedThrough: 60}, Ack: true}, full)
	if answers[0].Err == nil || answers[1].Err != nil || answers[2].Err != nil {
		t.Fatalf("acknowledged apart: %+v", answers)
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
	subs := []session.Submission{first}
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

// One row for each reason of a batch.
func TestDenialsAreGathered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	guest := o.under(o.share([]string{"read", "append"}))
	bob := o.share(all)
	before := len(w.store.Audit())
	guest.try(put("message/a"), op("revoke", "ref", bob), op("delete"), op("bumpEpoch"), op("delete"))
	counts := map[fault.Code]uint32{}
	for _, a := range w.store.Audit()[before:] {
		mustEqual(t, "act", a.Act, capability.AuditDenial)
		counts[a.Reason] += a.Count
	}
	if len(w.store.Audit()) != before+2 || counts[fault.MissingRight] != 2 || counts[fault.NotAnOwner] != 2 {
		t.Fatalf("%d rows, %v", len(w.store.Audit())-before, counts)
	}
}
