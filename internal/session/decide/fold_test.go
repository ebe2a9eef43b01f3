package decide_test

// The fold: from any cursor, of any log, and of what is no log.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
)

// story is a session that has seen every kind of event.
func story(t failer) *writer {
	w := newWorld(t)
	o := w.create("external", "x")
	guest := o.under(o.share(all))
	o.apply(op("put", "key", "session", "payload", raw(`{"title":"one"}`)))
	guest.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	guest.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"a"}`)))
	for i := range 5 {
		guest.apply(op("appendText", "key", "part/m/p", "offset", i+1, "text", fmt.Sprint(i)))
	}
	o.apply(op("put", "key", "model/a/b", "payload", raw(`{}`)))
	o.apply(op("remove", "key", "model/a/b"))
	o.apply(op("put", "key", "todo/1", "payload", raw(`{"state":"open", "tries":1}`)))
	guest.apply(op("patch", "key", "todo/1", "patch", raw(`{"state":"done"}`)))
	guest.apply(op("add", "key", "todo/1", "member", "tries", "by", 2))
	o.apply(op("claim", "prefix", "todo/", "lease", 30_000))
	guest.apply(op("put", "key", "todo/2", "payload", raw(`1`)))
	guest.apply(op("release", "key", "todo/2", "claim", guest.apply(op("claim", "key", "todo/2", "lease", 1000))["claim"]))
	w.store.Now += 60_000
	w.lapse(false, o.session)
	o.apply(op("claim", "key", "todo/1", "lease", 3_600_000, "worker", "w"))
	o.apply(op("begin", "message", "n", "payload", raw(`{}`)))
	guest.apply(op("put", "key", "session", "payload", raw(`{"title":"two"}`)))
	w.lapse(true, o.session)
	guest.apply(op("put", "key", "session", "payload", raw(`{"title":"two"}`))) // unchanged, and resumed
	guest.apply(op("finalize", "message", "m", "status", "completed"))
	o.apply(op("finalize", "message", "n", "status", "failed"))
	o.apply(op("put", "key", "message/n", "payload", raw(`{"leaked":1}`)))
	o.apply(op("purge", "key", "message/n"))
	o.apply(op("compact", "upto", "message/m", "summary", "message/m"))
	o.apply(op("revert", "to", "message/m"))
	o.apply(op("unrevert"))
	o.apply(op("revert", "to", "part/m/p"))
	o.apply(op("put", "key", "message/o", "payload", raw(`{}`)))
	o.apply(op("revoke", "ref", guest.ref))
	o.apply(op("bumpEpoch"))
	return o
}

func TestStoryHasEveryEvent(t *testing.T) {
	t.Parallel()
	o := story(t)
	seen := map[string]bool{}
	for _, e := range o.w.store.Events(o.session) {
		seen[e.Method] = true
	}
	if got := strings.Join(opargs.Methods(), " "); got != "add answer appendText ask begin bumpEpoch claim compact create delete finalize fork patch purge put release remove revert revoke share unrevert withdraw" {
		t.Errorf("the methods are %s", got)
	}
	for _, m := range append(opargs.Methods(), session.MethodInterrupted, session.MethodResumed, session.MethodLapse, session.MethodSettle) {
		if m != session.MethodFork && m != session.MethodDelete && !slices.Contains(putBy, m) && !seen[m] {
			t.Errorf("no %s", m)
		}
	}
}

// A snapshot at any cursor and the events after it come to the same as all events.
func TestResumeAtEveryCursor(t *testing.T) {
	t.Parallel()
	o := story(t)
	events := o.w.store.Events(o.session)
	want := o.w.folds[o.session].Hash()
	for at := 1; at <= len(events); at++ {
		f := session.NewFold(o.session)
		for _, e := range events[:at] {
			if err := f.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		if f.Revert.InForce() { // a snapshot does not have what is hidden
			continue
		}
		g := session.FoldFrom(o.session, f.Cursor, f.Epoch, f.Entries(), f.Turns())
		if g.Hash() != f.Hash() {
			t.Fatalf("a snapshot at %d differs from what it was made of", at)
		}
		for _, e := range events[at:] {
			if err := g.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		if g.Hash() != want {
			t.Fatalf("resumed at %d it comes to another state", at)
		}
	}
}

// A log of what is gone folds as well: a deleted session's, with no payload left, and
// what a reader of one message is shown, with marks for all the rest.
func TestFoldOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	o := story(t)
	f := o.w.newWriter()
	f.with = []string{o.ref}
	f.apply(op("fork", "source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref)))
	f.apply(op("begin", "message", "late", "payload", raw(`{}`)))
	one := &capability.Grant{Message: "m"}
	shown := session.NewFold(o.session)
	for _, e := range shownTo(one, o.w.store.Events(o.session), new(session.HashKey)) {
		if err := shown.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	mustEqual(t, "cursor", shown.Cursor, o.last().Cursor)
	mustEqual(t, "entries", len(shown.Entries()), 2)
	for _, d := range []*writer{o, f} {
		d.apply(op("delete"))
		gone := session.NewFold(d.session)
		for _, e := range d.w.store.Events(d.session) {
			if err := gone.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		if gone.Life != session.Deleted || len(gone.Entries())+len(gone.Turns()) > 0 {
			t.Errorf("left of it: %v, %v", gone.Entries(), gone.Turns())
		}
	}
}

func TestFoldRefusesGapsAndRepeats(t *testing.T) {
	t.Parallel()
	o := story(t)
	events := o.w.store.Events(o.session)
	f := session.NewFold(o.session)
	if err := f.Apply(events[1]); fault.CodeOf(err) != fault.Internal || err.(*fault.Error).At != 1 {
		t.Fatalf("a gap: %v", err)
	}
	if err := f.Apply(events[0]); err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(events[0]); fault.CodeOf(err) != fault.Internal {
		t.Fatalf("a repeat: %v", err)
	}
	f.Skip(2)
	if err := f.Apply(events[2]); err != nil {
		t.Fatalf("after hidden events: %v", err)
	}
	unknown := *events[3]
	unknown.Method, unknown.Key, unknown.Payload = "shine", "sun/1", []byte(`{}`)
	before := len(f.Entries())
	if err := f.Apply(&unknown); err != nil || len(f.Entries()) != before {
		t.Fatalf("a method of a later version: %v", err)
	}
	for _, broken := range []session.Event{
		{Method: session.MethodFinalize, Payload: []byte(`{"status":"odd"}`)},
		{Method: session.MethodFinalize, Payload: []byte(`[]`)},
		{Method: session.MethodFinalize, Payload: []byte(`{"status":"failed","entries":[{"key":"ref/x"}]}`)},
		{Method: session.MethodFork, Payload: []byte(`[]`)},
		{Method: session.MethodFork, Payload: []byte(`{"entries":[{"key":"ref/x"}]}`)},
		{Method: session.MethodPut, Key: "ref/x", Payload: []byte(`{}`)},
		{Method: session.MethodBegin, Key: "ref/x", Payload: []byte(`{}`)},
	} {
		broken.Cursor = f.Cursor + 1
		if err := f.Apply(&broken); fault.CodeOf(err) != fault.Internal || !strings.Contains(err.Error(), broken.Method) {
			t.Errorf("%s of %s%s: %v", broken.Method, broken.Key, broken.Payload, err)
		}
	}
	late := session.Event{Method: session.MethodAppendText, Cursor: f.Cursor + 1, Key: "part/never/seen", Payload: []byte(`{"offset":0,"text":"x"}`)}
	if err := f.Apply(&late); err != nil || f.Entry(late.Key) != nil {
		t.Errorf("a delta of what is not there: %v, %v", err, f.Entry(late.Key))
	}
}

// FuzzFold feeds the fold events that no server of ours writes.
func FuzzFold(f *testing.F) {
	o := story(f)
	for _, e := range o.w.store.Events(o.session) {
		f.Add(e.Method, e.Key, e.Payload, e.Outbox)
	}
	f.Fuzz(func(t *testing.T, method, key string, payload []byte, outbox string) {
		fold := session.NewFold(o.session)
		for _, e := range o.w.store.Events(o.session)[:8] {
			if err := fold.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		err := fold.Apply(&session.Event{Cursor: 9, Method: method, Key: key, Payload: payload, Outbox: outbox})
		if err == nil && fold.Cursor != 9 {
			t.Fatalf("at cursor %d", fold.Cursor)
		}
		if again := session.FoldFrom(o.session, fold.Cursor, fold.Epoch, fold.Entries(), fold.Turns()); err == nil && fold.Life == session.Live && !fold.Revert.InForce() && again.Hash() != fold.Hash() {
			t.Fatal("the state does not survive a snapshot")
		}
	})
}

// FuzzOp feeds ops of any method with any arguments to a session: none may
// panic, and what they leave must still be what the events say.
func FuzzOp(f *testing.F) {
	o := story(f)
	f.Add("put", "key", `"session"`, "payload", `{"a":1}`, "schema_version", `2`)
	f.Add("appendText", "key", `"part/n/p"`, "offset", `0`, "text", `"\ud83d\ude00"`)
	f.Add("finalize", "message", `"n"`, "status", `"failed"`, "parts", `[{"id":"p","payload":{"state":{"status":"running"}}}]`)
	f.Add("finalize", "message", `"n"`, "status", `"aborted"`, "payload", `{"time":[],"time":1}`)
	f.Add("begin", "message", `"n"`, "payload", ` {"text":1} `, "schema_version", `1e0`)
	f.Add("share", "ref", `"`+o.ref+`"`, "hash", `"x"`, "rights", `["read"]`)
	f.Fuzz(func(t *testing.T, method, n1, v1, n2, v2, n3, v3 string) {
		w := newWorld(t)
		o := w.create()
		o.apply(op("begin", "message", "n", "payload", raw(`{}`)))
		o.apply(op("put", "key", "part/n/p", "payload", raw(`{"text":"a","state":{"status":"pending"}}`)))
		o.try(op(method, n1, raw("%s", v1), n2, raw("%s", v2), n3, raw("%s", v3)))
		o.try(op("appendText", "key", "part/n/p", "offset", 1, "text", "b"))
		o.try(op("finalize", "message", "n", "status", "completed"))
	})
}

// putBy are the methods of ops whose events are puts.
var putBy = []string{session.MethodAsk, session.MethodAnswer, session.MethodWithdraw}
