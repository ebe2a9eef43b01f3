package decide_test

// Rotation, of an owner's ref and of a space's root.

import (
	"reflect"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/ledger"
)

// rotate asks for a rotation through ref.
func rotate(ref, to string) decide.Submission {
	return decide.Submission{Batch: ledger.Batch{Session: capability.Target(ref)}, Ref: ref,
		Direct: &decide.Direct{Rotate: &decide.Rotation{ID: to, Hash: session.SumOf([]byte(to))}}}
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
	mustEqual(t, "its use", answers[0].Uses[0], decide.Use{Ref: o.ref, Actor: "owner", Method: "rotate", Count: 1})
	mustEqual(t, "the epoch", answers[0].Epoch, 1)
	mustEqual(t, "the cut", cut, w.store.Session(o.session).Cursor)
	mustEqual(t, "authority changed", published.Sessions[0].AuthChanged, true)
	ev := o.last()
	mustEqual(t, "the event", ev.Method+" "+ev.Key+" "+ev.Ref, "rotate ref/"+next+" "+o.ref)
	mustEqual(t, "what it holds", string(ev.Payload), `{"ref":"`+next+`","old":"`+o.ref+`"}`)
	if old := w.store.Grant(o.ref); old.Revoked != w.store.Now || old.RevokedBy != next || old.Cut != cut || ev.Schema != 1 || ev.Outbox+ev.Op != "" {
		t.Errorf("the old owner: %+v, by %+v", old, ev)
	}
	audit := w.store.Audit()
	if a := audit[len(audit)-1]; a.Act != capability.AuditRotate || a.Ref != o.ref || a.Subject != next || a.Cursor != cut {
		t.Errorf("audited: %+v", a)
	}

	// The old one is dead, the helper lives, the new one has all there was.
	o.under(o.ref).refuse(ledger.Denied, fault.Revoked, op("put", "key", "message/m", "payload", raw(`{}`)))
	o.refuse(ledger.Denied, fault.UnknownRef, op("put", "key", "message/m", "payload", raw(`{}`))) // its maker's object
	o.under(helper).apply(op("put", "key", "message/m", "payload", raw(`{"a":1}`)))
	owner := o.under(next)
	owner.apply(op("put", "key", "message/m", "payload", raw(`{"a":2}`)))
	g := w.store.Grant(next)
	if !g.Owner || g.Rights != capability.OwnerRights || g.Label != "mine" || g.Actor != "owner" || g.Parent != w.space {
		t.Errorf("the new owner: %+v", g)
	}
	mustEqual(t, "the helper's parent", w.store.Grant(helper).Parent, next)

	// Who lost the answer asks again, through the dead one, and only for the same.
	again := w.store.Session(o.session).Cursor
	answers, _ = w.commit(rotate(o.ref, next))
	if answers[0].Err != nil || answers[0].Cut != cut || answers[0].Epoch != 1 || len(answers[0].Uses) != 0 {
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

	strange := rotate(o.ref, next)
	strange.Batch.Session = w.create().session
	answers, _ = w.commit(strange)
	mustEqual(t, "the same, asked of another session", answers[0].Err.Code, fault.UnknownRef)

	// What the new owner revokes is what it was given; the old one it may name.
	mustEqual(t, "the old one is dead", owner.apply(op("revoke", "ref", o.ref))["unchanged"], any(true))
	owner.apply(op("revoke", "ref", helper))
	o.under(helper).refuse(ledger.Denied, fault.Revoked, op("put", "key", "message/m", "payload", raw(`{}`)))
}

// What the operator may do to a space's refs: a new root in the place of those that
// live, and a ref below one of them.
func TestOperator(t *testing.T) {
	t.Parallel()
	const space = "spc_01J00000000000000000000003"
	dead := &capability.Grant{ID: "dead", Target: space, Rights: capability.SpaceRights, Revoked: 1, Actor: "was"}
	alive := &capability.Grant{ID: "alive", Target: space, Rights: capability.SpaceRights, Actor: "ann"}
	id, hash := newRef(space)
	root := &capability.Grant{ID: id, Target: space, Hash: hash, Label: "new"}
	made := *root
	made.Rights, made.Actor, made.Created = capability.SpaceRights, "ann", 777
	there := made
	c, old, err := maintain.RotateRoot([]*capability.Grant{alive, dead}, nil, root, 777)
	if err != nil || old != "alive" || !reflect.DeepEqual(c, &session.Changes{Grants: []*capability.Grant{&made}, Rotate: []session.RotatedGrant{{ID: "alive", By: id, At: 777}},
		Audit: []*capability.AuditRow{{Target: space, At: 777, Act: capability.AuditRotate, Ref: "alive", Actor: "operator", Subject: id}}}) {
		t.Errorf("rotated: %+v, %s, %v", c, old, err)
	}
	if c, old, err := maintain.RotateRoot([]*capability.Grant{dead}, nil, root, 777); err != nil || old != "" || len(c.Grants) != 1 || c.Rotate != nil || c.Audit[0].Ref != "" {
		t.Errorf("with none that lives: %+v, %s, %v", c, old, err)
	}
	if c, old, err := maintain.RotateRoot([]*capability.Grant{alive}, &there, root, 888); c != nil || old != "" || err != nil {
		t.Errorf("the same again: %+v, %s, %v", c, old, err)
	}
	another, revoked := there, there
	another.Hash[0]++
	revoked.Revoked = 1
	for _, there := range []*capability.Grant{&another, &revoked} {
		if c, _, err := maintain.RotateRoot([]*capability.Grant{alive}, there, root, 888); c != nil || fault.CodeOf(err) != fault.AlreadyExists {
			t.Errorf("to one that is there: %+v, %v", c, err)
		}
	}
	if c, _, err := maintain.RotateRoot(nil, nil, root, 888); c != nil || fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of a space that is not there: %+v, %v", c, err)
	}

	m := capability.MintRequest{ID: id, Hash: hash, Rights: capability.List}
	child := capability.Grant{ID: id, Target: space, Parent: "alive", Hash: hash, Rights: capability.List, Actor: "ann", Created: 777}
	c, err = maintain.MintUnderRoot([]*capability.Grant{dead, alive}, m, 777)
	if err != nil || !reflect.DeepEqual(c, &session.Changes{Grants: []*capability.Grant{&child},
		Audit: []*capability.AuditRow{{Target: space, At: 777, Act: capability.AuditShare, Ref: "alive", Actor: "operator", Subject: id}}}) {
		t.Errorf("minted: %+v, %v", c, err)
	}
	if c, err := maintain.MintUnderRoot([]*capability.Grant{dead}, m, 777); c != nil || fault.CodeOf(err) != fault.NotFound {
		t.Errorf("minted under none that lives: %+v, %v", c, err)
	}
	m.Rights = capability.Read
	if c, err := maintain.MintUnderRoot([]*capability.Grant{alive}, m, 777); c != nil || fault.CodeOf(err) != fault.BadArgument {
		t.Errorf("minted what is none: %+v, %v", c, err)
	}
}

// Whoever made the session may, through its space's object: it speaks for no stream
// then, and for nobody after that.
func TestItsMakerRotates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	next, _ := newRef(o.session)
	sub := rotate(o.ref, next)
	sub.Space, sub.Batch.Outbox = w.space, o.outbox
	answers, _ := w.commit(sub)
	if ev := o.last(); answers[0].Err != nil || ev.Method != session.MethodRotate || ev.Outbox != "" {
		t.Fatalf("%+v, %+v", answers[0], ev)
	}
	mustEqual(t, "its maker", w.store.Session(o.session).Creator, "")
	other, _ := newRef(o.session)
	sub.Direct.Rotate = &decide.Rotation{ID: other, Hash: session.SumOf([]byte(other))}
	answers, _ = w.commit(sub)
	mustEqual(t, "once more", answers[0].Err.Code, fault.UnknownRef)
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
		after.batch(false, op("revoke", "ref", unseen(old))), // which is read here, with what was above it
		owner.batch(false, op("put", "key", "message/m", "payload", raw(`{}`))),
		after.batch(false, op("revoke", "ref", last)),
		o.under(late).batch(false, op("put", "key", "message/m", "payload", raw(`{}`))),
	)
	for i, want := range []fault.Code{fault.None, fault.None, fault.Revoked, fault.None, fault.None, fault.Revoked, fault.None, fault.Revoked} {
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
