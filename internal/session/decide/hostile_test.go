package decide_test

// What a peer with some authority may try: ids that are none, refs that it
// names and does not hold, undoing what others did.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
)

// A ref's id that is none must not get as far as the database, where it would
// fail the whole group's transaction.
func TestDirectOnNoRef(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	for _, id := range []string{"", "x", "ses_\x00", "\xff." + o.ref, o.ref + "\x00"} {
		answers, _ := w.commit(decide.Submission{Batch: ledger.Batch{Session: o.session}, Ref: o.ref, Direct: &decide.Direct{Ref: id}},
			o.batch(false, put("message/m")))
		if err := answers[0].Err; err == nil || err.Code != fault.NotFound {
			t.Errorf("%q: %+v", id, answers[0])
		}
		mustEqual(t, "its neighbour", answers[1].Outcomes[0].Status, ledger.Applied)
	}
}

// What an undone batch was the first to read stays revoked if an earlier
// submission of the group revoked it.
func TestUndoKeepsEarlierRevocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	a := o.under(o.share(all))
	b, _ := newRef(o.session)
	shared := a.batch(false, op("share", "ref", b, "hash", sha(b), "rights", []string{"read"}))
	w.commit(shared)
	parent := a.ref
	a.ref = o.ref // the same outbox, under the owner's ref
	named := ledger.Ref{Op: shared.Batch.Ops[0].OpID, Path: "ref"}
	answers, _ := w.commit(
		o.batch(false, op("revoke", "ref", parent)),
		a.batch(true, op("revoke", "ref", named), put("ref/x")),
		a.batch(false, op("revoke", "ref", named)),
	)
	mustEqual(t, "aborted", answers[1].Outcomes[0].Status, ledger.BatchAborted)
	mustEqual(t, "revoked before", string(answers[2].Outcomes[0].Result), fmt.Sprintf(`{"cursor":%d,"unchanged":true,"cut":%d}`, answers[0].Cursor, answers[0].Cursor))
}

// unseen is a ref's id as an argument that is too long to be looked at before its
// op is decided: the ref is read then, and what is above it with it.
func unseen(ref string) json.RawMessage { return raw(`%s"%s"`, strings.Repeat(" ", 5000), ref) }

// What is read as somebody's ancestor after its own was revoked is dead as well: a
// revocation of it changes nothing, and answers the cut that its row has.
func TestARevokedRefThatIsReadLaterIsDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	x := o.share(all)
	z := o.under(x).share(all)
	y := o.under(z).share(all)
	gone := o.under(x).share(all)
	cut := o.apply(op("revoke", "ref", gone))["cut"]
	beside := o.share(all)
	out := o.try(op("revoke", "ref", x), op("revoke", "ref", unseen(y)), op("revoke", "ref", unseen(z)), op("revoke", "ref", unseen(gone)), op("revoke", "ref", unseen(beside)))
	mustEqual(t, "dead before", string(out[3].Result), fmt.Sprintf(`{"cursor":%d,"unchanged":true,"cut":%v}`, out[0].Cursor, cut))
	p := o.share(all)
	c := o.under(p).share(all)
	again := o.try(op("revoke", "ref", c), op("revoke", "ref", p), op("revoke", "ref", c))
	mustEqual(t, "dead before the one above", string(again[2].Result), fmt.Sprintf(`{"cursor":%d,"unchanged":true,"cut":%d}`, again[1].Cursor, again[0].Cursor))
	mustEqual(t, "alive till now", string(out[4].Result), fmt.Sprintf(`{"cursor":%d,"cut":%d}`, out[0].Cursor+1, out[0].Cursor+1))
	for i, ref := range []string{x, y, z} {
		cut := w.store.Grant(ref).Cut
		mustEqual(t, "the cut of all", cut, out[0].Cursor)
		if i > 0 {
			mustEqual(t, "revoked again", string(out[i].Result), fmt.Sprintf(`{"cursor":%d,"unchanged":true,"cut":%d}`, cut, cut))
		}
	}
}

// What was read while something above it was revoked is alive when that is undone.
func TestUndoTakesBackWhatWasReadAsRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	x := o.share(all)
	y := o.under(x).share(all)
	answers, _ := w.commit(
		o.batch(true, op("revoke", "ref", x), op("revoke", "ref", unseen(y)), put("ref/x")),
		o.batch(false, op("revoke", "ref", unseen(y))),
	)
	mustEqual(t, "aborted", answers[0].Outcomes[0].Status, ledger.BatchAborted)
	cut := answers[1].Cursor
	mustEqual(t, "revoked", string(answers[1].Outcomes[0].Result), fmt.Sprintf(`{"cursor":%d,"cut":%d}`, cut, cut))
	mustEqual(t, "its row's cut", w.store.Grant(y).Cut, cut)
	mustEqual(t, "the one above is alive", w.store.Grant(x).Revoked, 0)
}

// The creator acts as the owner through its space object, and as nobody else:
// naming another's ref is not holding it.
func TestCreatorIsNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	bob := o.share(all, "actor", "owner/bob")
	posing := *o
	posing.ref = bob
	posing.refuse(ledger.Denied, fault.UnknownRef, put("message/m"))
	o.seq = posing.seq
	answers, _ := w.commit(decide.Submission{Batch: ledger.Batch{Session: o.session, Outbox: o.outbox}, Ref: bob, Space: w.space, Direct: &decide.Direct{Epoch: true}})
	if err := answers[0].Err; err == nil || err.Code != fault.UnknownRef {
		t.Fatalf("%+v", answers[0])
	}
	o.apply(put("message/m"))
}

// Ids marked as a server's are made by servers alone: in what comes over a stream
// they name what is there already.
func TestClientsMakeNoServersIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	id := capability.FixedID(o.session, "some end")
	share := op("share", "ref", id, "hash", sha(id), "rights", []string{"read"})
	o.refuse(ledger.Rejected, fault.BadArgument, share)
	made := w.newWriter()
	made.ref = capability.ServerID(made.session, ulid.Make())
	create := op("create", "ref", made.ref, "hash", sha(made.ref))
	made.refuse(ledger.Rejected, fault.BadArgument, create)
	for _, x := range []anOp{share, create} {
		if _, err := opargs.CheckOps(o.batch(false, x).Batch.Ops, w.cfg.Limits); err == nil || err.Code != fault.BadArgument {
			t.Errorf("%s passes at the client: %v", x.method, err)
		}
		o.seq--
	}
	// A server's own are made without an outbox.
	sub := made.plain(made.ref, create)
	sub.Space = w.space
	answers, _ := w.commit(sub, decide.Submission{Batch: ledger.Batch{Session: o.session}, Ref: o.ref,
		Direct: &decide.Direct{Share: &capability.MintRequest{ID: id, Hash: session.SumOf([]byte(id)), Rights: capability.Read}}})
	for i, a := range answers {
		if a.Err != nil {
			t.Errorf("the server's own, %d: %v", i, a.Err)
		}
	}
}

// A long line of refs, each minted from the one before, is cut at many places
// in one group.
func TestRevokeInALongLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	line := []string{o.ref}
	for range 300 {
		id, hash := newRef(o.session)
		w.store.AddGrant(capability.Grant{ID: id, Target: o.session, Parent: line[len(line)-1], Hash: hash, Epoch: 1, Rights: capability.SessionRights})
		line = append(line, id)
	}
	var subs []decide.Submission
	for i := range 20 {
		subs = append(subs, o.batch(false, op("revoke", "ref", line[len(line)-1-i*10])))
	}
	last := o.under(line[len(line)-1])
	answers, _ := w.commit(append(subs, last.batch(false, put("message/m")))...)
	for _, a := range answers[:20] {
		mustEqual(t, "revoke", a.Outcomes[0].Status, ledger.Applied)
	}
	mustEqual(t, "the first to go", answers[20].Outcomes[0].Reason, fault.Revoked)
	for i, id := range line {
		if dead := w.store.Grant(id).Revoked != 0; dead != (i >= len(line)-1-190) {
			t.Fatalf("ref %d of the line: dead %v", i, dead)
		}
	}
}

// A batch that refers to more ops than anybody looks for is refused op by op and
// in the same way whatever else is in its group; and none is looked for.
func TestTooManyReferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	bad := o.batch(false, put("ref/x"))
	late := put("message/m")
	late.depends = []string{bad.Batch.Ops[0].OpID}
	for range 999 {
		late.depends = append(late.depends, ulid.Make().String())
	}
	more := put("message/n")
	more.depends = []string{ulid.Make().String()}
	two := o.batch(false, late, more)
	answers, _ := w.commit(bad, two)
	for _, out := range answers[1].Outcomes {
		if out.Status != ledger.Rejected || out.Reason != fault.TooLarge {
			t.Errorf("%s %s", out.Reason, out.Message)
		}
	}
	o.refuse(ledger.Skipped, fault.BadKey, late) // alone it is not too much
}

// An argument that is no text must not get as far as the database either, nor be
// taken for another one that is none.
func TestExternalIsNoText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	for _, external := range []string{"\"\xff\"", "\"a\xc3\"", "\"\xed\xa0\x80\"", `"\u0000"`, `"\ud800"`, `"a\udfffb"`, "\"\uFFFD\""} {
		p := w.newWriter()
		answers, _ := w.commit(p.batch(false, op("create", "ref", p.ref, "hash", sha(p.ref), "external", raw("%s", external))), o.batch(false, put("message/m")))
		out := answers[0].Outcomes[0]
		if want := fault.BadArgument; out.Status != ledger.Rejected || out.Reason != want && utf8.ValidString(external) {
			t.Errorf("%q: %+v", external, out)
		}
		mustEqual(t, "its neighbour", answers[1].Outcomes[0].Status, ledger.Applied)
	}
}

// Who may only make sessions learns that one is there, and not how far it is.
func TestCreateTellsNoCursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(put("message/m"))
	at := w.store.Session(o.session).Cursor
	create := op("create", "ref", o.ref, "hash", sha(o.ref))
	for _, space := range []string{w.space, w.newSpace()} { // its own, and another
		stranger := o.under(o.ref)
		stranger.space = space
		for _, x := range []anOp{create, create.expecting(0), create.expecting(at), create.expecting(at + 1), put("message/x"), put("message/x").expecting(at)} {
			answers, _ := w.commit(stranger.batch(false, x))
			out := answers[0].Outcomes[0]
			if answers[0].Cursor != 0 || out.Cursor != 0 || out.Status == ledger.Applied {
				t.Errorf("%s expecting %d: the session's cursor is %d: %+v", x.method, x.expect.Cursor, answers[0].Cursor, out)
			}
			if conflict := out.Status == ledger.Conflict; x.method == "create" && conflict != (x.expect.Cursor != 0) {
				t.Errorf("expecting %d, which is told by %s", x.expect.Cursor, out.Reason)
			}
		}
	}
	// Its maker acts there, and is told.
	answers, _ := w.commit(o.batch(false, create.expecting(at+1)))
	if out := answers[0].Outcomes[0]; answers[0].Cursor != at || out.Cursor != at || out.Status != ledger.Conflict {
		t.Errorf("the maker's create: %+v", answers[0])
	}
}
