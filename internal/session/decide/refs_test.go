package decide_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/ledger"
)

var all = []string{"read", "append", "share", "revoke"}

func put(key string) anOp { return op("put", "key", key, "payload", raw(`{}`)) }

func TestShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create("actor", "ann")
	id, _ := newRef(o.session)
	share := op("share", "ref", id, "hash", sha(id), "rights", []string{"read", "append"}, "methods", []string{"put"},
		"expires_at", w.store.Now+1000, "from", 3, "redemptions", 2, "label", "for bob", "actor", "ann/bob")
	r := o.apply(share)
	if r["ref"] != id || r["epoch"].(float64) != 1 || r["cursor"].(float64) != 2 {
		t.Fatalf("result %v", r)
	}
	g := w.store.Grant(id)
	if g.Parent != o.ref || g.Owner || g.Epoch != 1 || g.Rights != capability.Read|capability.Append || g.Expires != w.store.Now+1000 ||
		g.VisibleFrom != 3 || g.MaxRedemptions != 2 || g.Label != "for bob" || g.Actor != "ann/bob" || !slices.Equal(g.Methods, []string{"put"}) {
		t.Fatalf("grant %+v", g)
	}
	if ev := o.last(); ev.Key != "ref/"+id || strings.Contains(string(ev.Payload), sha(id)) || !strings.Contains(string(ev.Payload), `"rights":["read","append"]`) {
		t.Fatalf("event %s %s", ev.Key, ev.Payload)
	}
	o.refuse(ledger.Rejected, fault.AlreadyExists, share)
	none, _ := newRef(o.session)
	o.refuse(ledger.Rejected, fault.BadArgument, op("share", "ref", none, "hash", sha(none), "rights", []string{"append"}, "methods", []string{}))
	foreign, _ := newRef(capability.SessionPrefix + "01ARZ3NDEKTSV4RRFFQ69G5FAV")
	o.refuse(ledger.Rejected, fault.BadArgument, op("share", "ref", foreign, "hash", sha(foreign), "rights", []string{"read"}))

	bob := o.under(id)
	bob.apply(put("message/a"))
	mustEqual(t, "actor", bob.last().Actor, "ann/bob")
	bob.refuse(ledger.Denied, fault.MissingRight, op("remove", "key", "message/a"))
	bob.refuse(ledger.Denied, fault.MissingRight, op("share", "ref", id, "hash", sha(id), "rights", []string{"read"}))
	w.store.Now += 1000
	bob.refuse(ledger.Denied, fault.Expired, put("message/b"))
}

func TestNoWideningByShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	p := o.under(o.share([]string{"read", "append", "share"}, "methods", []string{"put", "begin"}, "expires_at", w.store.Now+1000, "from", 5, "redemptions", 3))
	id, _ := newRef(o.session)
	for name, args := range map[string][]any{
		"rights":      {"rights", all},
		"methods":     {"rights", []string{"append"}, "methods", []string{"remove"}},
		"expiry":      {"rights", []string{"read"}, "expires_at", w.store.Now + 1001},
		"from":        {"rights", []string{"read"}, "from", 4},
		"redemptions": {"rights", []string{"read"}, "redemptions", 4},
		"actor":       {"rights", []string{"read"}, "actor", "somebody"},
	} {
		out := p.refuse(ledger.Rejected, fault.Widening, op("share", append([]any{"ref", id, "hash", sha(id)}, args...)...))
		if out.Message == "" {
			t.Errorf("%s: no message", name)
		}
	}
	p.apply(op("share", "ref", id, "hash", sha(id), "rights", []string{"read"}))
	if g := w.store.Grant(id); g.VisibleFrom != 5 || g.MaxRedemptions != 3 || g.Expires != w.store.Now+1000 {
		t.Fatalf("a child does not take its parent's limits: %+v", g)
	}
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	a := o.under(o.share(all))
	b := a.under(a.share(all))
	c := b.under(b.share(all))
	sibling := o.under(o.share(all))

	unknown, _ := newRef(o.session)
	o.refuse(ledger.Rejected, fault.NotFound, op("revoke", "ref", unknown))
	o.refuse(ledger.Rejected, fault.NotFound, op("revoke", "ref", w.space))
	sibling.refuse(ledger.Denied, fault.MissingRight, op("revoke", "ref", b.ref))
	c.refuse(ledger.Denied, fault.MissingRight, op("revoke", "ref", b.ref)) // not upwards
	b.refuse(ledger.Denied, fault.MissingRight, op("revoke", "ref", o.ref))

	gen := w.store.Session(o.session).AuthGen
	r := a.apply(op("revoke", "ref", b.ref))
	cut := r["cut"].(float64)
	mustEqual(t, "the cut is the event's own cursor", cut, r["cursor"].(float64))
	for _, dead := range []*writer{b, c} {
		out := dead.refuse(ledger.Denied, fault.Revoked, put("message/x"))
		if !strings.Contains(out.Message, "cursor") {
			t.Errorf("message: %s", out.Message)
		}
		if g := w.store.Grant(dead.ref); g.Cut != uint64(cut) || g.RevokedBy != a.ref {
			t.Errorf("grant %+v", g)
		}
	}
	mustEqual(t, "authority generation", w.store.Session(o.session).AuthGen, gen+1)
	a.apply(put("message/a"))
	sibling.apply(put("message/s"))

	sibling.refuse(ledger.Denied, fault.MissingRight, op("revoke", "ref", c.ref)) // dead or not
	r = o.apply(op("revoke", "ref", c.ref))                                       // dead already: its old cut, no event
	if r["unchanged"] != true || r["cut"].(float64) != cut {
		t.Fatalf("a second revoke gave %v", r)
	}
	sibling.apply(op("revoke", "ref", sibling.ref)) // itself
	sibling.refuse(ledger.Denied, fault.Revoked, put("message/s"))
}

// A ref with a public id is one like others, in the log too: the id is a digest, in a row of its own.
func TestPublicRef(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	id := o.share([]string{"read"}, "public", true)
	public := w.store.Public()
	if len(public) != 1 || public[0].Reader != id || public[0].Share != id || public[0].Session != o.session || public[0].Created != w.store.Now {
		t.Fatalf("public %+v", public)
	}
	if want := capability.PublicID(id, session.SumOf([]byte(id))); public[0].ID != want || !capability.IsPublicID(want) {
		t.Fatalf("the public id is %s, want %s", public[0].ID, want)
	}
	if ev := o.last(); strings.Contains(string(ev.Payload), public[0].ID) || strings.Contains(string(ev.Payload), "public") {
		t.Fatalf("the event shows it: %s", ev.Payload)
	}
	a := o.under(o.share([]string{"read", "append"}))
	other, _ := newRef(o.session)
	a.refuse(ledger.Denied, fault.MissingRight, op("share", "ref", other, "hash", sha(other), "rights", []string{"read"}, "public", true))
	o.refuse(ledger.Rejected, fault.AlreadyExists, op("share", "ref", id, "hash", sha(id), "rights", []string{"read"}, "public", true))
	mint := op("share", "ref", other, "hash", sha(other), "rights", []string{"read"}, "public", true)
	if answers, _ := w.commit(o.batch(true, mint, op("unrevert"))); answers[0].Outcomes[0].Status == ledger.Applied {
		t.Fatalf("%+v", answers[0])
	}
	o.try(mint, op("revoke", "ref", other)) // minted and ended in one transaction
	if public = w.store.Public(); len(public) != 2 || w.store.Grant(other).Revoked == 0 {
		t.Fatalf("public %+v", public)
	}
}

// What a put of a sync may do beside it takes the right to revert.
func TestSyncNeedsTheRightToRevert(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	put := op("put", "key", "message/a", "payload", raw(`{}`), "sync", true)
	o.under(o.share([]string{"read", "append"})).refuse(ledger.Denied, fault.MissingRight, put)
	o.under(o.share([]string{"revert"})).refuse(ledger.Denied, fault.MissingRight, put)
	o.under(o.share([]string{"append", "revert"})).apply(put)
}

func TestBumpEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	a := o.under(o.share(all))
	reader := o.under(o.share([]string{"read", "append"}))
	reader.refuse(ledger.Denied, fault.MissingRight, op("bumpEpoch"))
	r := o.apply(op("bumpEpoch"))
	if r["epoch"].(float64) != 2 || r["cut"] != r["cursor"] {
		t.Fatalf("result %v", r)
	}
	out := a.refuse(ledger.Denied, fault.StaleEpoch, put("message/a"))
	if !strings.Contains(out.Message, "epoch 1") || !strings.Contains(out.Message, "epoch 2") {
		t.Fatalf("message: %s", out.Message)
	}
	b := o.under(o.share(all))
	mustEqual(t, "epoch of a new share", w.store.Grant(b.ref).Epoch, 2)
	b.apply(put("message/b"))
	o.apply(put("message/o"))

	// In one group too: what comes before it is of the old epoch, and what comes after it of the new one.
	before, _ := newRef(o.session)
	after, _ := newRef(o.session)
	share := func(id string) anOp { return op("share", "ref", id, "hash", sha(id), "rights", []string{"append"}) }
	old, late := o.under(before), o.under(after)
	answers, _ := w.commit(o.batch(false, share(before), op("bumpEpoch"), share(after)), old.batch(false, put("message/b")), late.batch(false, put("message/b")))
	mustEqual(t, "shared before it", answers[1].Outcomes[0].Reason, fault.StaleEpoch)
	mustEqual(t, "shared after it", answers[2].Outcomes[0].Status, ledger.Applied)
}

// All in one transaction: what one submission revokes the next one lacks, down
// to refs minted in the same group or not read before.
func TestRevokeInsideAGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	a := o.under(o.share(all))
	b := a.under(a.share(all))
	minted, _ := newRef(o.session)
	m := b.under(minted)
	answers, published := w.commit(
		b.batch(false, put("message/1"), op("share", "ref", minted, "hash", sha(minted), "rights", []string{"append"})),
		m.batch(false, put("message/2")),
		o.batch(false, put("message/3"), op("revoke", "ref", a.ref), put("message/4")),
		b.batch(false, put("message/5")),
		m.batch(false, put("message/6")),
		a.batch(true, put("message/7"), put("message/8")),
	)
	var got []ledger.Status
	for _, a := range answers {
		for _, o := range a.Outcomes {
			got = append(got, o.Status)
		}
	}
	want := []ledger.Status{1, 1, 1, 1, 1, 1, ledger.Denied, ledger.Denied, ledger.BatchAborted, ledger.BatchAborted}
	if !slices.Equal(got, want) {
		t.Fatalf("statuses %v, want %v", got, want)
	}
	for _, id := range []string{a.ref, b.ref, minted} {
		if g := w.store.Grant(id); g.Revoked == 0 || g.RevokedBy != o.ref {
			t.Fatalf("%+v", g)
		}
	}
	denials := 0
	for _, row := range w.store.Audit() {
		if row.Act == capability.AuditDenial {
			denials++
			if row.Reason != fault.Revoked || row.Op == "" || row.Actor == "" {
				t.Fatalf("audit %+v", row)
			}
		}
	}
	mustEqual(t, "denials audited", denials, 3)
	mustEqual(t, "the cursor for the owner", answers[2].Cursor, published.Sessions[0].Row.Cursor)
	mustEqual(t, "the cursor for the dead", answers[5].Cursor, 0)
}

// An atomic batch that revokes and fails has revoked nothing.
func TestUndoneRevoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	a := o.under(o.share(all))
	b := a.under(a.share(all))
	answers, _ := w.commit(
		o.batch(true, op("revoke", "ref", a.ref), op("bumpEpoch"), put("ref/x")),
		b.batch(false, put("message/b")),
		o.batch(false, op("revoke", "ref", b.ref)),
		a.batch(false, put("message/a")),
		b.batch(false, put("message/c")),
	)
	for i, want := range []ledger.Status{ledger.BatchAborted, ledger.Applied, ledger.Applied, ledger.Applied, ledger.Denied} {
		if got := answers[i].Outcomes[0].Status; got != want {
			t.Errorf("submission %d: %d (%s), want %d", i, got, answers[i].Outcomes[0].Message, want)
		}
	}
}

func TestDirect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	a := o.under(o.share(all))
	reader := a.share([]string{"read"})
	direct := func(ref string, d decide.Direct) decide.Answer {
		answers, _ := w.commit(decide.Submission{Batch: ledger.Batch{Session: o.session}, Ref: ref, Direct: &d})
		if a := answers[0]; (a.Err == nil) != (a.Cursor != 0) || (a.Err == nil) != (len(a.Uses) == 1) {
			t.Errorf("%+v", a)
		}
		return answers[0]
	}
	if ans := direct(reader, decide.Direct{Ref: reader}); ans.Err == nil || ans.Err.Code != fault.MissingRight {
		t.Fatalf("%+v", ans)
	}
	if ans := direct(a.ref, decide.Direct{Ref: o.ref}); ans.Err == nil || ans.Err.Code != fault.MissingRight {
		t.Fatalf("%+v", ans)
	}
	ans := direct(a.ref, decide.Direct{Ref: reader})
	ev := o.last()
	if ans.Err != nil || ans.Cut != ev.Cursor || ans.Epoch != 1 || ev.Method != "revoke" || ev.Op != "" || ev.Outbox != "" || ev.Ref != a.ref {
		t.Fatalf("%+v %+v", ans, ev)
	}
	again := direct(a.ref, decide.Direct{Ref: reader})
	if again.Err != nil || again.Cut != ans.Cut || again.Cursor != ans.Cursor {
		t.Fatalf("%+v", again)
	}
	ans = direct(o.ref, decide.Direct{Epoch: true})
	if ans.Err != nil || ans.Cut != o.last().Cursor || ans.Epoch != 2 {
		t.Fatalf("%+v", ans)
	}
	if ans := direct(a.ref, decide.Direct{Epoch: true}); ans.Err == nil || ans.Err.Code != fault.StaleEpoch {
		t.Fatalf("%+v", ans)
	}
	// The one who made the session acts through its space object, once it has proven its outbox.
	sub := decide.Submission{Batch: ledger.Batch{Session: o.session, Outbox: o.outbox}, Ref: o.ref, Space: w.space, Direct: &decide.Direct{Epoch: true}}
	answers, _ := w.commit(sub)
	if answers[0].Err != nil || answers[0].Epoch != 3 || o.last().Outbox != "" {
		t.Fatalf("%+v, %+v", answers[0], o.last())
	}
	mustEqual(t, "its use", answers[0].Uses[0], decide.Use{Ref: o.ref, Actor: "owner", Method: "bumpEpoch", Count: 1})
	acts := map[capability.AuditAct]int{}
	for _, row := range w.store.Audit() {
		acts[row.Act]++
	}
	if acts[capability.AuditDenial] != 3 || acts[capability.AuditRevoke] != 1 || acts[capability.AuditBump] != 2 || acts[capability.AuditShare] != 3 {
		t.Fatalf("audit %v", acts)
	}
}

// Session.share is the op, but that the same again changes nothing.
func TestDirectShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	one := o.share(all, "message", "m")
	id, hash := newRef(o.session)
	share := func(ref string, change func(m *capability.MintRequest)) decide.Answer {
		m := capability.MintRequest{ID: id, Hash: hash, Rights: capability.Append, Methods: []string{"put"}, Label: "x"}
		if change != nil {
			change(&m)
		}
		answers, _ := w.commit(decide.Submission{Batch: ledger.Batch{Session: o.session}, Ref: ref, Direct: &decide.Direct{Share: &m}})
		return answers[0]
	}
	foreign, _ := newRef(w.create().session)
	for name, c := range map[string]struct {
		ref    string
		change func(m *capability.MintRequest)
		code   fault.Code
	}{
		"for another session":        {o.ref, func(m *capability.MintRequest) { m.ID = foreign }, fault.BadArgument},
		"with a method that is none": {o.ref, func(m *capability.MintRequest) { m.Methods = []string{"share"} }, fault.BadArgument},
		"for more than one message":  {one, func(m *capability.MintRequest) { m.Message = "n" }, fault.Widening},
	} {
		if a := share(c.ref, c.change); a.Err == nil || a.Err.Code != c.code {
			t.Errorf("%s: %+v", name, a)
		}
	}
	a := share(o.ref, nil)
	ev := o.last()
	if a.Err != nil || a.Epoch != 1 || a.Cut != 0 || ev.Key != "ref/"+id || ev.Op != "" || w.store.Grant(id).Label != "x" {
		t.Fatalf("%+v, %+v", a, ev)
	}
	if a := share(o.ref, nil); a.Err != nil || a.Cursor != ev.Cursor {
		t.Errorf("again: %+v", a)
	}
	if a := share(o.ref, func(m *capability.MintRequest) { m.Label = "y" }); a.Err == nil || a.Err.Code != fault.AlreadyExists {
		t.Errorf("again, with another label: %+v", a)
	}
	// A ref for one message may hand on and revoke what it covers, and nothing of the session.
	for _, d := range []decide.Direct{{Epoch: true}, {Ref: o.ref}} {
		answers, _ := w.commit(decide.Submission{Batch: ledger.Batch{Session: o.session}, Ref: one, Direct: &d})
		if err := answers[0].Err; err == nil || err.Code != fault.MissingRight {
			t.Errorf("%+v: %+v", d, answers[0])
		}
	}
}

// A space's ref dies with all below it: sessions that lose a ref get an event of it,
// deleted ones a row in their audit, and what is beside it stays.
func TestRevokeTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := w.store.Grant(w.space)
	clerk, hash := newRef(root.Target)
	w.store.AddGrant(capability.Grant{ID: clerk, Target: root.Target, Parent: root.ID, Hash: hash, Rights: capability.Create, Actor: "clerk"})
	var made []*writer
	for range 3 {
		o := w.newWriter()
		o.space = clerk
		o.apply(op("create", "ref", o.ref, "hash", sha(o.ref)))
		made = append(made, o)
	}
	guest := made[0].share([]string{"read"})
	made[2].apply(op("delete"))
	beside := w.create()
	by := &capability.Grant{ID: root.ID, Target: root.Target, Actor: "ann"}
	revoke := func(ref string) (refs uint64, published *session.Published, audit []string) {
		before := len(w.store.Audit())
		err := w.store.Update(t.Context(), func(tx session.Tx) error {
			rows, err := tx.Load(t.Context(), &session.ReadSet{ExclusiveSpaces: []string{root.Target}, Trees: []string{ref}})
			if err == nil {
				refs, published, err = maintain.RevokeTree(t.Context(), tx, by, ref, rows.Trees[ref], "192.0.2.7")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range w.store.Audit()[before:] {
			audit = append(audit, fmt.Sprintf("%s %d", a.Target, a.Cursor))
			if a.Act != capability.AuditRevoke || a.Ref != by.ID || a.Actor != "ann" || a.Subject != ref || a.Peer != "192.0.2.7" || a.At != w.store.Now {
				t.Errorf("audited: %+v", a)
			}
		}
		return refs, published, audit
	}

	refs, published, audit := revoke(guest)
	g := w.store.Grant(guest)
	if refs != 1 || len(published.Sessions) != 1 || !slices.Equal(audit, []string{made[0].session + " 3"}) || g.Revoked != w.store.Now || g.Cut != 3 || g.RevokedBy != by.ID {
		t.Errorf("a session's ref: %d, %+v, %q, %+v", refs, published, audit, g)
	}
	if refs, published, audit := revoke(guest); refs != 0 || len(published.Sessions) != 0 || audit != nil {
		t.Errorf("again: %d, %+v, %q", refs, published, audit)
	}

	w.store.Now += 5
	refs, published, audit = revoke(clerk)
	want := []string{made[0].session + " 4", made[1].session + " 2", made[2].session + " 2", root.Target + " 0"}
	if refs != 4 || len(published.Sessions) != 2 || !slices.Equal(audit, want) {
		t.Errorf("a space's ref: %d, %+v, %q, want %q", refs, published, audit, want)
	}
	for i, p := range published.Sessions {
		ev := eventsOf(p)[0]
		if p.Row.ID != made[i].session || !p.AuthChanged || p.Events.Len() != 1 || ev.Method != session.MethodRevoke || ev.Key != "ref/"+clerk || ev.Schema != 1 ||
			string(ev.Payload) != `{"ref":"`+clerk+`"}` || ev.Ref != by.ID || ev.Actor != "ann" || ev.At != w.store.Now {
			t.Errorf("published %+v", ev)
		}
		made[i].refuse(ledger.Denied, fault.Revoked, put("message/m"))
		mustEqual(t, "its cut", w.store.Grant(made[i].ref).Cut, ev.Cursor)
	}
	if g := w.store.Grant(clerk); g.Revoked != w.store.Now || g.Cut != 0 {
		t.Errorf("the ref itself: %+v", g)
	}
	beside.apply(put("message/m"))

	for n := range 2 {
		calls := n
		err := w.store.Update(t.Context(), func(tx session.Tx) error {
			_, _, err := maintain.RevokeTree(t.Context(), failing{tx, &calls}, by, beside.ref, map[string]uint64{beside.session: 1}, "")
			return err
		})
		if !errors.Is(err, errAway) {
			t.Errorf("call %d fails: %v", n+1, err)
		}
	}
	beside.apply(put("message/n"))
}

// A space's root ref names nobody; what is done under it names its owner.
func TestRevokeBySpaceNamesItsActor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	ref := o.share([]string{"read"})
	root := w.store.Grant(w.space)
	err := w.store.Update(context.Background(), func(tx session.Tx) error {
		rows, err := tx.Load(context.Background(), &session.ReadSet{ExclusiveSpaces: []string{root.Target}, Trees: []string{ref}})
		if err != nil {
			return err
		}
		_, _, err = maintain.RevokeTree(context.Background(), tx, root, ref, rows.Trees[ref], "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if e := o.last(); e.Method != session.MethodRevoke || e.Ref != root.ID || e.Actor != capability.DefaultOwnerActor {
		t.Errorf("event %+v", e)
	}
	audit := w.store.Audit()
	mustEqual(t, "the audit's actor", audit[len(audit)-1].Actor, capability.DefaultOwnerActor)
}
