package session_test

import (
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// rotate asks for a rotation through ref.
func rotate(ref, to string) session.Submission {
	return session.Submission{Batch: ledger.Batch{Session: capability.Target(ref)}, Ref: ref,
		Direct: &session.Direct{Rotate: &session.Rotation{ID: to, Hash: session.SumOf([]byte(to))}}}
}

func TestRotatePutsANewOwnerInTheOldOnesPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create("label", "mine")
	helper := o.share([]string{"read", "append", "share", "revoke"})
	next, _ := newRef(o.session)

	answers, published := w.commit(rotate(o.ref, next))
	if answers[0].Err != nil {
		t.Fatal(answers[0].Err)
	}
	cut := answers[0].Cut
	mustEqual(t, "the cut", cut, w.store.Session(o.session).Cursor)
	mustEqual(t, "authority changed", published.Sessions[0].AuthChanged, true)
	ev := o.last()
	mustEqual(t, "the event", ev.Method+" "+ev.Key+" "+ev.Ref, "rotate ref/"+next+" "+o.ref)

	// The old one is dead, the helper lives, the new one has all there was.
	o.under(o.ref).refuse(ledger.Denied, fault.Revoked, op("put", "key", "message/m", "payload", raw(`{}`)))
	o.refuse(ledger.Denied, fault.UnknownRef, op("put", "key", "message/m", "payload", raw(`{}`))) // its maker's object
	o.under(helper).apply(op("put", "key", "message/m", "payload", raw(`{"a":1}`)))
	owner := o.under(next)
	owner.apply(op("put", "key", "message/m", "payload", raw(`{"a":2}`)))
	g := w.store.Grant(next)
	if !g.Owner || g.Rights != capability.SessionRights || g.Label != "mine" || g.Actor != "owner" || g.Parent != w.space {
		t.Errorf("the new owner: %+v", g)
	}
	mustEqual(t, "the helper's parent", w.store.Grant(helper).Parent, next)

	// Who lost the answer asks again, through the dead one, and only for the same.
	again := w.store.Session(o.session).Cursor
	answers, _ = w.commit(rotate(o.ref, next))
	if answers[0].Err != nil || answers[0].Cut != cut {
		t.Errorf("the same again: %+v, the cut was %d", answers[0], cut)
	}
	mustEqual(t, "the cursor", w.store.Session(o.session).Cursor, again)
	other, _ := newRef(o.session)
	answers, _ = w.commit(rotate(o.ref, other))
	mustEqual(t, "another one through the dead one", answers[0].Err.Code, fault.Revoked)
	stolen := rotate(o.ref, next)
	stolen.Direct.Rotate.Hash = session.SumOf([]byte("another secret"))
	answers, _ = w.commit(stolen)
	mustEqual(t, "the same id with another secret", answers[0].Err.Code, fault.Revoked)

	// What the new owner revokes is what it was given.
	owner.apply(op("revoke", "ref", helper))
	o.under(helper).refuse(ledger.Denied, fault.Revoked, op("put", "key", "message/m", "payload", raw(`{}`)))
}

func TestRotateTakesAnOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	helper := o.share([]string{"read", "append", "share", "revoke"})
	next, _ := newRef(o.session)
	answers, _ := w.commit(rotate(helper, next))
	mustEqual(t, "a helper", answers[0].Err.Code, fault.NotAnOwner)
	answers, _ = w.commit(rotate(o.ref, helper))
	mustEqual(t, "to a ref that is there", answers[0].Err.Code, fault.AlreadyExists)
	foreign, _ := newRef(w.create().session)
	answers, _ = w.commit(rotate(o.ref, foreign))
	mustEqual(t, "to another session's", answers[0].Err.Code, fault.BadArgument)
	o.apply(op("delete"))
	answers, _ = w.commit(rotate(o.ref, next))
	mustEqual(t, "of what was deleted", answers[0].Err.Code, fault.SessionDeleted)
}

// TestRotateInAGroup: what comes before and after it in one transaction sees
// things as they are by then, also of refs that it reads only afterwards.
func TestRotateInAGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	old := o.share([]string{"read", "append"})
	owner := o.under(o.ref)
	late, _ := newRef(o.session)
	next, _ := newRef(o.session)
	last, _ := newRef(o.session)
	after := o.under(last)
	answers, _ := w.commit(
		owner.batch(false, op("share", "ref", late, "hash", sha(late), "rights", []string{"append"})),
		rotate(o.ref, next),
		owner.batch(false, op("put", "key", "message/m", "payload", raw(`{}`))),
		rotate(next, last),
		after.batch(false, op("revoke", "ref", old), op("revoke", "ref", last)),
		o.under(late).batch(false, op("put", "key", "message/m", "payload", raw(`{}`))),
	)
	for i, want := range []fault.Code{fault.None, fault.None, fault.Revoked, fault.None, fault.None, fault.Revoked} {
		if answers[i].Err != nil {
			t.Fatalf("submission %d: %v", i, answers[i].Err)
		}
		if out := answers[i].Outcomes; len(out) > 0 && out[0].Reason != want {
			t.Errorf("submission %d: %s (%s), want %s", i, out[0].Reason, out[0].Message, want)
		}
	}
	for _, ref := range []string{o.ref, next, last, old, late} {
		if w.store.Grant(ref).Revoked == 0 {
			t.Errorf("%s is alive", ref)
		}
	}
}
