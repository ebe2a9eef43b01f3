package decide_test

// State of any kind: keys of one's own kinds, edits of their values, and what readers need for them.

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// valueOf is the value of a key, "" if it has none.
func (o *writer) valueOf(key string) string {
	if e := o.entryOf(key); e != nil {
		return string(e.Payload)
	}
	return ""
}

func (o *writer) entryOf(key string) *session.Entry {
	entries, _ := o.w.store.State(o.session)
	for _, e := range entries {
		if e.Key == key {
			return e
		}
	}
	return nil
}

// cursorOf is the cursor of an op's event.
func (o *writer) cursorOf(x anOp) uint64 {
	o.w.Helper()
	out := o.try(x)[0]
	if out.Status != ledger.Applied {
		o.w.Fatalf("%s: %+v", x.method, out)
	}
	return out.Cursor
}

// lastEvent is the session's last event.
func (o *writer) lastEvent() *session.Event {
	events := o.w.store.Events(o.session)
	return events[len(events)-1]
}

// Values of one's own kinds are any JSON, byte for byte, spaces included.
func TestOwnValuesAreKeptByteForByte(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	for _, value := range []string{`null`, `true`, `7`, `-0.50e1`, `"é\u00e9"`, ` [ 1 , {"a":1,"a":2} ] `, `{"a" : null}`, `{}`} {
		o.apply(op("put", "key", "plan", "payload", raw("%s", value)))
		mustEqual(t, "the value", o.valueOf("plan"), value)
		mustEqual(t, "the event's", string(o.lastEvent().Payload), value)
		mustEqual(t, "again", o.apply(op("put", "key", "plan", "payload", raw("%s", value)))["unchanged"], any(true))
	}
	o.apply(op("remove", "key", "plan"))
	mustEqual(t, "removed", o.valueOf("plan"), "")
}

// Two writers patch different members of one value and both win; on one member the later does.
func TestPatchesOfDifferentMembersBothWin(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	other := o.under(o.share([]string{"read", "append"}))
	o.apply(op("put", "key", "todo/1", "payload", raw(`{"a": 1, "b": {"c": 1}}`)))
	o.apply(op("patch", "key", "todo/1", "patch", raw(`{"a":2}`)))
	other.apply(op("patch", "key", "todo/1", "patch", raw(`{"b":{"d":3}}`)))
	mustEqual(t, "both", o.valueOf("todo/1"), `{"a": 2, "b": {"c": 1,"d":3}}`)
	other.apply(op("patch", "key", "todo/1", "patch", raw(`{"a":4,"b":null}`)))
	mustEqual(t, "the later", o.valueOf("todo/1"), `{"a": 4}`)
	mustEqual(t, "the event has the change alone", string(o.lastEvent().Payload), `{"a":4,"b":null}`)
	mustEqual(t, "its method", o.lastEvent().Method, "patch")

	o.apply(op("patch", "key", "todo/2", "patch", raw(`{"a":null,"b":1}`)))
	mustEqual(t, "of nothing", o.valueOf("todo/2")+o.lastEvent().Method, `{"b":1}put`)
	o.apply(op("patch", "key", "todo/2", "patch", raw(` [1]`)))
	mustEqual(t, "by no object", o.valueOf("todo/2")+o.lastEvent().Method, ` [1]put`)
	o.apply(op("patch", "key", "todo/2", "patch", raw(`{"x":1}`), "schema_version", 3))
	mustEqual(t, "of no object", o.valueOf("todo/2")+o.lastEvent().Method, `{"x":1}put`)
	before := o.w.store.Session(o.session).Cursor
	for _, same := range []anOp{
		op("patch", "key", "todo/2", "patch", raw(`{}`)),
		op("patch", "key", "todo/2", "patch", raw(`{"x":1,"y":null}`)),
		op("add", "key", "todo/2", "member", "x", "by", 0),
	} {
		o.apply(same)
	}
	mustEqual(t, "nothing changed", o.w.store.Session(o.session).Cursor, before)
	mustEqual(t, "the schema stays", o.entryOf("todo/2").Schema, uint32(3))
	o.apply(op("patch", "key", "todo/2", "patch", raw(`{}`), "schema_version", 4))
	mustEqual(t, "unless it is given", o.entryOf("todo/2").Schema, uint32(4))
}

func TestAdd(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.apply(op("add", "key", "n", "member", "a", "by", -3))
	mustEqual(t, "of nothing", o.valueOf("n")+o.lastEvent().Method, `{"a":-3}put`)
	o.apply(op("add", "key", "n", "member", "a", "by", 5))
	o.apply(op("add", "key", "n", "member", `b"`, "by", 1))
	mustEqual(t, "the sum", o.valueOf("n")+o.lastEvent().Method, `{"a":2,"b\"":1}add`)
	mustEqual(t, "the event", string(o.lastEvent().Payload), `{"member":"b\"","by":1}`)
	o.apply(op("put", "key", "n", "payload", raw(`{"a":9007199254740991,"t":"1","h":1.0}`)))
	for _, member := range []string{"a", "t", "h"} {
		o.refuse(ledger.Rejected, fault.BadPayload, op("add", "key", "n", "member", member, "by", 1))
	}
	o.apply(op("put", "key", "n", "payload", raw(`[]`)))
	o.refuse(ledger.Rejected, fault.BadPayload, op("add", "key", "n", "member", "a", "by", 1))
	o.apply(op("put", "key", "n", "payload", raw(`{"a":1,"a":2}`)))
	o.refuse(ledger.Rejected, fault.BadPayload, op("patch", "key", "n", "patch", raw(`{"b":1}`)))
	o.refuse(ledger.Rejected, fault.BadPayload, op("add", "key", "n", "member", "a", "by", 1))
	mustEqual(t, "unchanged", o.valueOf("n"), `{"a":1,"a":2}`)
}

// A value grows by patches only up to what a put may have.
func TestPatchedValuesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.PayloadBytes = 100
	o := w.create()
	o.apply(op("put", "key", "n", "payload", raw(`{"a":%q}`, strings.Repeat("x", 80))))
	o.refuse(ledger.Rejected, fault.TooLarge, op("patch", "key", "n", "patch", raw(`{"b":"0123456789"}`)))
	o.apply(op("patch", "key", "n", "patch", raw(`{"a":"0123456789"}`)))
}

// expect is compared with the cursor of the key's last change, deltas included, when the op's turn
// comes; other keys may change meanwhile.
func TestExpect(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	conflict := func(at uint64, x anOp) {
		t.Helper()
		out := o.try(x)[0]
		if out.Status != ledger.Conflict || out.Reason != fault.Conflict || out.Cursor != at || out.Message == "" || out.Result != nil {
			t.Errorf("%s: %+v, want a conflict with cursor %d", x.method, out, at)
		}
	}
	put := func(expect any) anOp { return op("put", "key", "todo/1", "payload", raw(`{"n":1}`), "expect", expect) }
	conflict(0, put(1))
	conflict(0, op("remove", "key", "todo/1", "expect", 7))
	at := o.cursorOf(put(0))
	conflict(at, put(0)) // though it is the same
	o.apply(op("put", "key", "todo/2", "payload", raw(`1`)))
	conflict(at, op("patch", "key", "todo/1", "patch", raw(`{"n":2}`), "expect", at+1))
	next := o.cursorOf(op("patch", "key", "todo/1", "patch", raw(`{"n":2}`), "expect", at))
	conflict(next, op("add", "key", "todo/1", "member", "n", "by", 1, "expect", at))
	last := o.cursorOf(op("add", "key", "todo/1", "member", "n", "by", 1, "expect", next))
	conflict(last, op("remove", "key", "todo/1", "expect", next))
	o.apply(op("remove", "key", "todo/1", "expect", last))
	mustEqual(t, "the value", o.valueOf("todo/1"), "")

	// Within a batch an op may expect what one before it has done.
	outs := o.try(put(0), op("patch", "key", "todo/1", "patch", raw(`{"x":1}`), "expect", 0))
	if outs[0].Status != ledger.Applied || outs[1].Status != ledger.Conflict || outs[1].Cursor != outs[0].Cursor {
		t.Errorf("%+v", outs)
	}

	// A part's last change may be a delta.
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":""}`)))
	grown := o.cursorOf(op("appendText", "key", "part/m/p", "offset", 0, "text", "a"))
	conflict(grown, op("put", "key", "part/m/p", "payload", raw(`{}`), "expect", grown-1))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{}`), "expect", grown))
}

// A follower whose ref hides what a value was patched from is not shown the value until it is put
// whole, though it is shown the patches as events.
func TestPatchedValuesOfHiddenOrigin(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	at := o.cursorOf(op("put", "key", "todo/1", "payload", raw(`{"secret":1}`)))
	o.apply(op("patch", "key", "todo/1", "patch", raw(`{"b":2}`)))
	g := &capability.Grant{VisibleFrom: at + 1}
	if e := o.entryOf("todo/1"); session.ShowsEntry(g, e) || e.Since != at {
		t.Errorf("%+v is shown", e)
	}
	f := session.FoldFrom(o.session, at, 1, nil, nil)
	for _, e := range shownTo(g, o.w.store.Events(o.session)[at:], new(session.HashKey)) {
		if err := f.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if e := f.Entry("todo/1"); e != nil {
		t.Errorf("folded from the patch alone: %s", e.Payload)
	}
	o.apply(op("put", "key", "todo/1", "payload", raw(`{"secret":0}`)))
	if e := o.entryOf("todo/1"); !session.ShowsEntry(g, e) {
		t.Error("put whole, and hidden")
	}
}

// A purge removes what patches and puts have of a key, and a later patch begins anew.
func TestPurgeOfPatchedValues(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.apply(op("put", "key", "todo/1", "payload", raw(`{"a":"leaked"}`)))
	o.apply(op("patch", "key", "todo/1", "patch", raw(`{"b":"leaked"}`)))
	o.apply(op("add", "key", "todo/1", "member", "n", "by", 1))
	mustEqual(t, "purged", o.apply(op("purge", "key", "todo/1"))["events"], any(float64(3)))
	for _, e := range o.w.store.Events(o.session) {
		if strings.Contains(string(e.Payload), "leaked") {
			t.Errorf("event %d: %s", e.Cursor, e.Payload)
		}
	}
	o.apply(op("patch", "key", "todo/1", "patch", raw(`{"c":1}`)))
	mustEqual(t, "afterwards", o.valueOf("todo/1"), `{"c":1}`)
}

// A session's readers need the feature from its first event of the kind on, and those of a fork of it
// from its first.
func TestReadersNeedKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "message/m", "payload", raw(`{}`), "expect", 0))
	o.apply(op("put", "key", "model/a/b", "payload", raw(`{}`)))
	row := w.store.Session(o.session)
	mustEqual(t, "what Mooring knows needs", row.Needs, session.Features(0))
	before := row.AuthGen
	o.apply(op("put", "key", "todo/1", "payload", raw(`{}`)))
	row = w.store.Session(o.session)
	mustEqual(t, "its readers need", strings.Join(row.Needs.Names(), " "), "keys")
	mustEqual(t, "they are checked anew", row.AuthGen, before+1)
	o.apply(op("put", "key", "todo/2", "payload", raw(`{}`)))
	mustEqual(t, "once", w.store.Session(o.session).AuthGen, before+1)

	all := &capability.Grant{}
	if why := row.CheckReader(all, 0); why == nil || why.Code != fault.Incompatible {
		t.Errorf("an older reader: %v", why)
	}
	for what, why := range map[string]*fault.Error{
		"a reader of this version":         row.CheckReader(all, session.AllFeatures),
		"an older reader of one message":   row.CheckReader(&capability.Grant{Message: "m"}, 0),
		"an older reader of what it knows": (&session.Row{}).CheckReader(all, 0),
	} {
		if why != nil {
			t.Errorf("%s: %v", what, why)
		}
	}

	f := w.newWriter()
	f.with = []string{o.ref}
	f.apply(op("fork", "source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref)))
	mustEqual(t, "a fork's readers need", w.store.Session(f.session).Needs, session.FeatureKeys)
	g := w.newWriter()
	g.with = []string{o.ref}
	g.apply(op("fork", "source", o.session, "via", o.ref, "ref", g.ref, "hash", sha(g.ref), "at", row.Cursor-1))
	mustEqual(t, "of one before it", w.store.Session(g.session).Needs, session.Features(0))
}

// While some server does not know a feature, ops that need it are answered and not recorded, and
// what else a batch has is not either; they apply when it is in use.
func TestOpsWaitForTheirFeature(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	inUse := session.Features(0)
	w.cfg.Features = func() session.Features { return inUse }
	o := w.create()
	guest := o.under(o.share([]string{"append"}))
	id, _ := newRef(o.session)
	var subs []decide.Submission
	for name, x := range map[string]anOp{
		"put":             op("put", "key", "todo/1", "payload", raw(`{}`)),
		"put, escaped":    op("put", "key", raw(`"\u0074odo/1"`), "payload", raw(`{}`)),
		"remove":          op("remove", "key", "todo/1"),
		"purge":           op("purge", "key", "plan"),
		"patch":           op("patch", "key", "todo/1", "patch", raw(`{}`)),
		"add":             op("add", "key", "todo/1", "member", "n", "by", 1),
		"expect":          op("put", "key", "message/m", "payload", raw(`{}`), "expect", 0),
		"share of keys":   op("share", "ref", id, "hash", sha(id), "rights", []string{"read"}, "read_keys", []string{"todo/"}),
		"share for patch": op("share", "ref", id, "hash", sha(id), "rights", []string{"append"}, "methods", []string{"put", "patch"}),
		"share a right":   op("share", "ref", id, "hash", sha(id), "rights", []string{"read", "schema"}),
		"share another":   op("share", "ref", id, "hash", sha(id), "rights", []string{"break"}),
		"share reverts":   op("share", "ref", id, "hash", sha(id), "rights", []string{"revert"}),
		"revert":          op("revert", "to", "message/before"),
		"unrevert":        op("unrevert"),
	} {
		seq := o.seq
		sub := o.batch(false, op("put", "key", "message/before", "payload", raw(`{}`)), x)
		answers, _ := w.commit(sub)
		if why := answers[0].Err; why == nil || why.Code != fault.Unsupported || !why.Code.Transient() {
			t.Errorf("%s: %+v", name, answers[0])
		}
		o.seq = seq
		subs = append(subs, sub)
	}
	mustEqual(t, "the cursor", w.store.Session(o.session).Cursor, 2)
	mustEqual(t, "not of those that may not", guest.try(op("purge", "key", "plan"))[0].Status, ledger.Denied)
	mustEqual(t, "nor of what is as before", o.try(op("put", "key", "message/m", "payload", raw(`{}`)))[0].Status, ledger.Applied)
	f := w.newWriter()
	f.with = []string{o.ref}
	fork := f.batch(false, op("fork", "source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref), "message", "m"))
	if answers, _ := w.commit(fork); answers[0].Err == nil || answers[0].Err.Code != fault.Unsupported {
		t.Errorf("a fork up to a message: %+v", answers[0])
	}
	child := w.newWriter()
	child.with = []string{o.ref}
	create := child.batch(false, op("create", "parent", o.session, "via", o.ref, "ref", child.ref, "hash", sha(child.ref)))
	if answers, _ := w.commit(create); answers[0].Err == nil || answers[0].Err.Code != fault.Unsupported {
		t.Errorf("a child: %+v", answers[0])
	}
	inUse = session.FeatureKeys | session.FeatureFork | session.FeatureChildren
	if answers, _ := w.commit(create); answers[0].Err != nil || answers[0].Outcomes[0].Status != ledger.Applied {
		t.Errorf("a child, in use: %+v", answers[0])
	}
	if answers, _ := w.commit(fork); answers[0].Err != nil || answers[0].Outcomes[0].Status != ledger.Applied {
		t.Errorf("a fork up to a message, in use: %+v", answers[0])
	}
	inUse = session.AllFeatures
	last := subs[len(subs)-1]
	for i := range last.Batch.Ops {
		last.Batch.Ops[i].Seq++ // behind what was sent meanwhile
	}
	if answers, _ := w.commit(last); answers[0].Err != nil {
		t.Errorf("in use: %v", answers[0].Err)
	}
}

// In a session ordered by time the values of one's own kinds have no time of their own: what they
// contain means nothing to Mooring.
func TestOwnKeysAreInTheLogsOrder(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create("order", "time")
	o.apply(op("put", "key", "todo/b", "payload", raw(`{"time":{"created":5}}`)))
	o.apply(op("put", "key", "todo/a_0193c0ffee00", "payload", raw(`1`)))
	first, second := o.entryOf("todo/b"), o.entryOf("todo/a_0193c0ffee00")
	if first.Ord.At < 1000 || first.Ord.Compare(second.Ord) >= 0 {
		t.Errorf("%+v, %+v", first.Ord, second.Ord)
	}
}
