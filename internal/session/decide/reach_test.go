package decide_test

import (
	"context"
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

// bear makes a child of o's session.
func (o *writer) bear() *writer {
	o.w.Helper()
	c, x := o.child(o.ref)
	c.apply(x)
	c.space = "" // restored
	return c
}

// reaching is a writer in another session, under one of this one's refs.
type reaching struct {
	*writer
	narrow *capability.Grant
}

func (o *writer) reach(ref string) *reaching { return &reaching{writer: o.under(ref)} }

func (r *reaching) batch(ops ...anOp) decide.Submission {
	sub := r.writer.batch(false, ops...)
	sub.Reach, sub.Outer, sub.PassedRefs = true, r.narrow, nil
	return sub
}

// code commits an op alone, and gives what becomes of it.
func (r *reaching) code(x anOp) fault.Code {
	r.w.Helper()
	answers, _ := r.w.commit(r.batch(x))
	if answers[0].Err != nil {
		return answers[0].Err.Code
	}
	if o := answers[0].Outcomes[0]; o.Status != ledger.Applied {
		return o.Reason
	}
	return fault.None
}

func put1(key string) anOp { return op("put", "key", key, "payload", raw(`{"n":1}`)) }

// TestReachRules: what a ref may do in the sessions below its own.
func TestReachRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create("actor", "ann")
	o.space = ""
	child := o.bear()
	grand := child.bear()
	other := w.create()
	other.space = ""
	above := w.create()
	above.space = ""
	under := above.bear()
	all := []string{"read", "append", "share"}
	ref := func(rights []string, args ...any) string { return o.share(rights, args...) }
	refs := map[string]string{
		"none":            ref(all),
		"read":            ref(all, "children", []string{"read"}),
		"append":          ref(all, "children", []string{"read", "append"}),
		"some methods":    ref(all, "children", []string{"append"}, "methods", []string{"remove", "put"}),
		"revert":          ref([]string{"read", "append", "revert"}, "children", []string{"revert"}),
		"the owner's":     o.ref,
		"another's":       other.share(all, "children", []string{"append"}),
		"of a child's":    child.share(all, "children", []string{"append"}),
		"a revoked one":   ref(all, "children", []string{"append"}),
		"an expired one":  ref(all, "children", []string{"append"}, "expires_in", 5),
		"below it":        "",
		"below, no reach": "",
	}
	from := o.under(refs["append"])
	refs["below it"] = from.share([]string{"read", "append"}, "children", []string{"append"})
	refs["below, no reach"] = from.share([]string{"read", "append"})
	o.apply(op("revoke", "ref", refs["a revoked one"]))
	w.store.Now += 10
	for _, c := range []struct {
		ref  string
		in   *writer
		x    anOp
		want fault.Code
	}{
		{"append", child, put1("message/a"), 0}, {"append", grand, put1("message/a"), 0},
		{"read", child, put1("message/a"), fault.MissingRight}, {"none", child, put1("message/a"), fault.MissingRight},
		{"the owner's", child, put1("message/a"), fault.MissingRight}, // it gives what it has not
		{"another's", child, put1("message/a"), fault.NotFound}, {"append", other, put1("message/a"), fault.NotFound},
		{"append", o, put1("message/a"), fault.NotFound}, // itself is not below
		{"append", under, put1("message/a"), fault.NotFound},
		{"of a child's", grand, put1("message/a"), 0}, {"of a child's", o, put1("message/a"), fault.NotFound},
		{"some methods", child, put1("message/a"), 0}, {"some methods", child, op("begin", "message", "b", "payload", raw(`{}`)), fault.MissingRight},
		{"revert", child, op("revert", "to", "message/a"), 0}, {"append", child, op("unrevert"), fault.MissingRight},
		{"revert", child, op("unrevert"), 0}, {"revert", child, put1("message/a"), fault.MissingRight},
		{"a revoked one", child, put1("message/a"), fault.Revoked}, {"an expired one", child, put1("message/a"), fault.Expired},
		{"below it", child, put1("message/c"), 0}, {"below, no reach", child, put1("message/c"), fault.MissingRight},
		{"append", child, op("share", "ref", child.ref, "hash", sha("x"), "rights", []string{"read"}), fault.MissingRight},
		{"append", child, op("revoke", "ref", refs["append"]), fault.MissingRight},
		{"append", child, op("bumpEpoch"), fault.MissingRight}, {"append", child, op("delete"), fault.NotAnOwner},
		{"append", child, op("purge", "key", "message/a"), fault.NotAnOwner},
	} {
		if got := c.in.reach(refs[c.ref]).code(c.x); got != c.want {
			t.Errorf("%s: %s in %s: %s, want %s", c.ref, c.x.method, c.in.session, got, c.want)
		}
	}
	// what is written is said to be under the ref's own id
	child.reach(refs["append"]).code(put1("message/mine"))
	mustEqual(t, "the event's ref", child.last().Ref, refs["append"])
	mustEqual(t, "what is charged for it", w.store.Grant(refs["append"]).Bytes > 0, true)
	// nothing is shared by it: the ref itself opens no other session
	for name := range refs {
		answers, _ := w.commit(child.under(refs[name]).batch(false, put1("message/z")))
		if o := answers[0].Outcomes[0]; o.Status == ledger.Applied && name != "of a child's" {
			t.Errorf("%s is taken for one of the child", name)
		}
	}
	// a live capability with less
	live := child.reach(refs["append"])
	for _, c := range []struct {
		m    capability.MintRequest
		want fault.Code
	}{{capability.MintRequest{}, fault.MissingRight}, {capability.MintRequest{Children: capability.Read}, fault.MissingRight}, {capability.MintRequest{Children: capability.Append}, 0}} {
		narrow, err := capability.Attenuate(w.store.Grant(refs["append"]), c.m, 1, w.store.Now)
		if err != nil {
			t.Fatal(err)
		}
		live.narrow = narrow
		mustEqual(t, fmt.Sprintf("attenuated to %s in children", c.m.Children), live.code(put1("message/n")), c.want)
	}
}

// TestReachIsGivenOn: a ref gives on at most the rights in children that it has, and an owner's all.
func TestReachIsGivenOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	all := []string{"read", "append", "share", "revoke"}
	reading := o.under(o.share(all, "children", []string{"read"}))
	plain := o.under(o.share(all))
	for _, c := range []struct {
		by   *writer
		args []any
		want fault.Code
	}{
		{o, []any{"rights", []string{"read"}, "children", []string{"read"}}, 0},
		{o, []any{"rights", []string{"read", "compact"}, "children", []string{"compact"}}, 0},
		{reading, []any{"rights", []string{"read"}, "children", []string{"read"}}, 0},
		{reading, []any{"rights", all}, 0},
		{reading, []any{"rights", []string{"read", "append"}, "children", []string{"read", "append"}}, fault.Widening},
		{plain, []any{"rights", []string{"read"}, "children", []string{"read"}}, fault.Widening},
		{o, []any{"rights", []string{"read"}, "children", []string{"append"}}, fault.BadArgument},
		{o, []any{"rights", all, "children", []string{"share"}}, fault.BadArgument},
		{o, []any{"rights", all, "children", []string{"revoke"}}, fault.BadArgument},
		{o, []any{"rights", all, "children", []string{"create"}}, fault.BadArgument},
		{o, []any{"rights", all, "children", []string{}}, fault.BadArgument},
		{o, []any{"rights", all, "children", "read"}, fault.BadArgument},
		{o, []any{"rights", all, "children", []string{"read"}, "message", "m"}, fault.BadArgument},
		{o, []any{"rights", all, "children", []string{"read"}, "from", 2}, fault.BadArgument},
		{o, []any{"rights", all, "children", []string{"read"}, "read_keys", []string{"todo/"}}, fault.BadArgument},
		{o, []any{"rights", all, "children", []string{"read"}, "write_keys", []string{"todo/"}}, fault.BadArgument},
	} {
		id, _ := newRef(o.session)
		out := c.by.try(op("share", append([]any{"ref", id, "hash", sha(id)}, c.args...)...))[0]
		if c.want == 0 != (out.Status == ledger.Applied) || out.Reason != c.want {
			t.Errorf("%v: %s (%s), want %s", c.args, out.Reason, out.Message, c.want)
		}
		if payload := string(o.last().Payload); c.want == 0 && strings.Contains(payload, `"children"`) != slices.Contains(c.args, any("children")) {
			t.Errorf("the event says %s", payload)
		}
	}
	limited := o.under(o.share(all, "from", 2))
	id, _ := newRef(o.session)
	limited.refuse(ledger.Rejected, fault.BadArgument, op("share", "ref", id, "hash", sha(id), "rights", all, "children", []string{"read"}))
}

// TestReachEnds: what ends a ref that reaches children is a cut in each, and nothing else is.
func TestReachEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		end      func(o *writer, ref, parent string) map[string]any
		want     fault.Code
		cut      string // the ref that the children's events name: "ref", "parent" or "session"; "" for no event
		inParent bool
	}{
		{"a revoke", func(o *writer, ref, _ string) map[string]any { return o.apply(op("revoke", "ref", ref)) }, fault.Revoked, "ref", true},
		{"a revoke of the one above", func(o *writer, _, parent string) map[string]any { return o.apply(op("revoke", "ref", parent)) }, fault.Revoked, "parent", true},
		{"another epoch", func(o *writer, _, _ string) map[string]any { return o.apply(op("bumpEpoch")) }, fault.StaleEpoch, "session", true},
		{"the session's end", func(o *writer, _, _ string) map[string]any { return o.apply(op("delete")) }, fault.SessionDeleted, "session", false},
		{"its expiry", func(o *writer, _, _ string) map[string]any { o.w.store.Now += 1 << 30; return nil }, fault.Expired, "", false},
		{"a revoke of another", func(o *writer, _, _ string) map[string]any {
			return o.apply(op("revoke", "ref", o.share([]string{"read"})))
		}, fault.None, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			o := w.create()
			o.space = ""
			parent := o.share([]string{"read", "append", "share"}, "children", []string{"read", "append"})
			ref := o.under(parent).share([]string{"read", "append"}, "children", []string{"append"}, "expires_in", 1<<29)
			var below []*writer
			for range 2 {
				below = append(below, o.bear())
			}
			below = append(below, below[0].bear())
			stranger := w.create()
			gone := o.bear()
			gone.apply(op("delete"))
			cursors := map[string]uint64{}
			for _, b := range append(below, stranger, gone) {
				if b != stranger && b != gone {
					mustEqual(t, "before", b.reach(ref).code(put1("message/a")), fault.None)
				}
				cursors[b.session] = w.store.Session(b.session).Cursor
			}
			gens := w.store.Session(below[0].session).AuthGen
			result := c.end(o, ref, parent)
			ended := map[string]string{"ref": ref, "parent": parent, "session": o.session}[c.cut]
			for _, b := range below {
				row := w.store.Session(b.session)
				if c.cut == "" {
					mustEqual(t, "no event", row.Cursor, cursors[b.session])
				} else if e := b.last(); row.Cursor != cursors[b.session]+1 || e.Method != session.MethodRevoke || e.Key != "ref/"+ended || e.Ref != o.ref {
					t.Errorf("the child at cursor %d, after %d, has %s of %s", row.Cursor, cursors[b.session], e.Method, e.Key)
				}
				got := b.reach(ref).code(put1("message/a"))
				mustEqual(t, "after", got, c.want)
				w.check(b.session)
			}
			if c.cut != "" {
				mustEqual(t, "authority is read again", w.store.Session(below[0].session).AuthGen, gens+1)
			}
			mustEqual(t, "another session", w.store.Session(stranger.session).Cursor, cursors[stranger.session])
			mustEqual(t, "a deleted child", w.store.Session(gone.session).Cursor, cursors[gone.session])
			if cuts, _ := result["children"].([]any); c.inParent {
				mustEqual(t, "the cuts", len(cuts), len(below))
				mustEqual(t, "how many", result["children_count"], any(float64(len(below))))
				first := cuts[0].(map[string]any)
				mustEqual(t, "a cut", uint64(first["cut"].(float64)), cursors[first["session"].(string)]+1)
			} else if cuts != nil {
				t.Errorf("cuts are listed: %v", result)
			}
			var audited int
			for _, row := range w.store.Audit() {
				if row.Act == capability.AuditRevoke && row.Subject == ended && row.Target != o.session {
					audited++
				}
			}
			if want := len(below); c.cut != "" {
				mustEqual(t, "rows of the children's audits", audited, want)
			}
			if c.inParent { // again changes nothing
				at := w.store.Session(below[0].session).Cursor
				c.end(o, ref, parent)
				mustEqual(t, "again", w.store.Session(below[0].session).Cursor, at)
			}
		})
	}
}

// TestChildsOwnEpoch: an epoch of a child ends the reach into that child, also of refs that are made later, and
// into no other.
func TestChildsOwnEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.space = ""
	a, b := o.bear(), o.bear()
	below := a.bear()
	ref := o.share([]string{"read", "append"}, "children", []string{"append"})
	a.apply(op("bumpEpoch"))
	later := o.share([]string{"read", "append"}, "children", []string{"append"})
	for _, r := range []string{ref, later} {
		mustEqual(t, "into it", a.reach(r).code(put1("message/a")), fault.StaleEpoch)
		mustEqual(t, "into another", b.reach(r).code(put1("message/a")), fault.None)
		mustEqual(t, "into what is below it", below.reach(r).code(put1("message/a")), fault.None)
	}
}

// TestReachInOneGroup: a group that makes a ref, writes under it in a child and revokes it has each in its order,
// although its first read has found no ref that reaches children.
func TestReachInOneGroup(t *testing.T) {
	t.Parallel()
	for _, atomic := range []bool{false, true} {
		w := newWorld(t)
		o := w.create()
		o.space = ""
		c := o.bear()
		ref, _ := newRef(o.session)
		guest := c.reach(ref)
		share := op("share", "ref", ref, "hash", sha(ref), "rights", []string{"read", "append"}, "children", []string{"append"})
		answers, _ := w.commit(guest.batch(put1("message/a")), o.batch(false, share), guest.batch(put1("message/a")), o.batch(atomic, op("revoke", "ref", ref)), guest.batch(put1("message/b")))
		var got []fault.Code
		for _, a := range answers {
			got = append(got, a.Outcomes[0].Reason)
		}
		if !slices.Equal(got, []fault.Code{fault.UnknownRef, 0, 0, 0, fault.Revoked}) {
			t.Errorf("reasons %v", got)
		}
		mustEqual(t, "the cut", c.last().Method, session.MethodRevoke)
		w.check(c.session)

		ref, _ = newRef(o.session) // of one batch, that is taken back with it
		share = op("share", "ref", ref, "hash", sha(ref), "rights", []string{"read"}, "children", []string{"read"})
		at := w.store.Session(c.session).Cursor
		w.commit(o.batch(true, share, op("revoke", "ref", ref), op("revoke", "ref", "nonsense")))
		mustEqual(t, "a cut that was taken back", w.store.Session(c.session).Cursor, at)
		mustEqual(t, "its audit", slices.ContainsFunc(w.store.Audit(), func(r *capability.AuditRow) bool { return r.Subject == ref }), false)
		w.commit(o.batch(true, share, op("revoke", "ref", ref)))
		mustEqual(t, "the cut of a ref of the same batch", w.store.Session(c.session).Cursor, at+1)
	}
}

// TestTurnsUnderReach: a turn that was begun in a child counts for the ref and those above it that reach, and no
// more once it is dead.
func TestTurnsUnderReach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.space = ""
	c := o.bear()
	parent := o.share([]string{"read", "append", "share"}, "children", []string{"append"})
	ref := o.under(parent).share([]string{"read", "append"}, "children", []string{"append"})
	var batch []anOp
	for i := range session.MaxOpenTurns {
		batch = append(batch, op("begin", "message", fmt.Sprint("m", i), "payload", raw(`{}`)))
	}
	answers, _ := w.commit(c.reach(ref).batch(batch...))
	mustEqual(t, "begun", answers[0].Outcomes[len(batch)-1].Status, ledger.Applied)
	more := op("begin", "message", "more", "payload", raw(`{}`))
	mustEqual(t, "under the ref", c.reach(ref).code(more), fault.Overloaded)
	mustEqual(t, "under the one above", c.reach(parent).code(more), fault.Overloaded)
	o.apply(op("bumpEpoch"))
	fresh := o.share([]string{"read", "append"}, "children", []string{"append"})
	mustEqual(t, "once they are dead", c.reach(fresh).code(more), fault.None)
	c.apply(put1("todo/1"))
	mustEqual(t, "a claim", c.reach(fresh).code(op("claim", "key", "todo/1", "lease", 60000)), fault.None)
	o.apply(op("delete"))
	c.apply(op("begin", "message", "last", "payload", raw(`{}`)))
	_, turns := w.store.State(c.session)
	for _, turn := range turns {
		if turn.Orphan != (turn.Message != "last") {
			t.Errorf("the turn of %s is left without a ref: %t", turn.Message, turn.Orphan)
		}
	}
}

// TestReachThatHasEnded: the end of a ref that reaches nothing any more is no cut, nor is that of one session's in
// the children of another, nor in a child that is deleted in the same group.
func TestReachThatHasEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, p := w.create(), w.create()
	o.space, p.space = "", ""
	a, gone, b := o.bear(), o.bear(), p.bear()
	all := []string{"read", "append"}
	expiring := o.share(all, "children", all, "expires_in", 5)
	o.share(all, "children", all, "expires_in", 5)
	w.store.Now += 10
	p.share(all, "children", all)
	before := []uint64{w.store.Session(a.session).Cursor, w.store.Session(b.session).Cursor}
	w.commit(p.batch(false, op("bumpEpoch")), o.batch(false, op("revoke", "ref", expiring)), o.batch(false, op("bumpEpoch")))
	mustEqual(t, "of an expired one", w.store.Session(a.session).Cursor, before[0])
	mustEqual(t, "of a living one", w.store.Session(b.session).Cursor, before[1]+1)

	ref := o.share(all, "children", all)
	answers, _ := w.commit(gone.batch(false, op("delete")), o.batch(false, op("revoke", "ref", ref)))
	if got := string(answers[1].Outcomes[0].Result); !strings.Contains(got, `"children_count":1`) {
		t.Errorf("with a deleted child: %s", got)
	}
}

// TestReachDirect: calls without an outbox make and end refs that reach children as ops do, and the removal of an old
// session ends them.
func TestReachDirect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.space = ""
	c := o.bear()
	ref, _ := newRef(o.session)
	direct := func(d *decide.Direct) decide.Submission {
		return decide.Submission{Batch: ledger.Batch{Session: o.session}, Ref: o.ref, Direct: d}
	}
	mint := &capability.MintRequest{ID: ref, Hash: [32]byte{1}, Rights: capability.Read, Children: capability.Read}
	answers, published := w.commit(direct(&decide.Direct{Share: mint}), direct(&decide.Direct{Ref: ref}))
	if answers[0].Err != nil || answers[1].Err != nil || answers[1].ChildrenCount != 1 || answers[1].Children[0] != (decide.ChildCut{Session: c.session, Cut: c.last().Cursor}) {
		t.Errorf("%+v", answers)
	}
	mustEqual(t, "published", len(published.Sessions), 2)
	mint.ID, _ = newRef(o.session)
	answers, _ = w.commit(direct(&decide.Direct{Share: mint}), direct(&decide.Direct{Epoch: true}))
	mustEqual(t, "of an epoch", answers[1].ChildrenCount, 1)
	mint.ID, _ = newRef(o.session)
	w.commit(direct(&decide.Direct{Share: mint}))
	at := c.last().Cursor
	old := direct(&decide.Direct{Older: &session.OlderRemoval{Method: session.MethodDelete, Before: 1 << 50}})
	old.Ref, old.Manage = w.space, true
	answers, _ = w.commit(old)
	if answers[0].Err != nil || c.last().Cursor != at+1 || c.last().Key != "ref/"+o.session {
		t.Errorf("%+v, and the child's last event is of %s", answers[0].Err, c.last().Key)
	}
}

// TestRevokeTreeReaches: the end of a space's ref is a cut in the children of sessions whose refs were made below.
func TestRevokeTreeReaches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.space = ""
	c := o.bear()
	ref := o.share([]string{"read", "append"}, "children", []string{"append"})
	var died uint64
	err := w.store.Update(context.Background(), func(tx session.Tx) error {
		rows, err := tx.Load(context.Background(), &session.ReadSet{Trees: []string{ref}, Lineages: []string{w.space}})
		if err == nil {
			died, _, err = maintain.RevokeTree(context.Background(), tx, rows.Grants[w.space], ref, rows.Trees[ref], "")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "refs", died, 1)
	mustEqual(t, "the cut", c.last().Method, session.MethodRevoke)
	mustEqual(t, "in the ref's row", w.store.Grant(ref).Cut, w.store.Session(o.session).Cursor)
	mustEqual(t, "after", c.reach(ref).code(put1("message/a")), fault.Revoked)
	late := o.share([]string{"read"}, "children", []string{"read"})
	err = w.store.Update(context.Background(), func(tx session.Tx) error {
		rows, err := tx.Load(context.Background(), &session.ReadSet{Lineages: []string{w.space}})
		if err == nil { // as if it had been made after the first look at the tree
			_, _, err = maintain.RevokeTree(context.Background(), tx, rows.Grants[w.space], late, map[string]uint64{o.session: 1}, "")
		}
		return err
	})
	mustEqual(t, "a child that is not locked", err, maintain.ErrMoreChildren)
}
