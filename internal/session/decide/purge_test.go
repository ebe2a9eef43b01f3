package decide_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

const leaked = "sk-leaked-4711"

// holds names the events and entries of a session in which the secret stands.
func (o *writer) holds(secret string) (found []string) {
	for _, e := range o.w.store.Events(o.session) {
		if strings.Contains(string(e.Payload), secret) {
			found = append(found, "event of "+e.Method)
		}
	}
	entries, _ := o.w.store.State(o.session)
	for _, e := range entries {
		if strings.Contains(string(e.Payload), secret) {
			found = append(found, e.Key)
		}
	}
	return found
}

func (o *writer) clean(t *testing.T, when string) {
	t.Helper()
	if found := o.holds(leaked); found != nil {
		t.Errorf("%s the secret stands in %q", when, found)
	}
}

// Every way in which a part's value comes into a log: put, put again, deltas, the
// end of its turn. The part alone goes; its turn, its message and its sibling stay.
func TestPurgePart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{"role":"a"}`)))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"%s"}`, leaked)))
	o.apply(op("put", "key", "part/m/q", "payload", raw(`{"text":"stays"}`)))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"x"}`)))
	o.apply(op("appendText", "key", "part/m/p", "offset", 1, "text", leaked))
	o.apply(op("finalize", "message", "m", "status", "completed"))
	if n := len(o.holds(leaked)); n != 4 { // put, delta, finalize, entry
		t.Fatalf("the secret stands in %q", o.holds(leaked))
	}
	before := w.store.Session(o.session).AuthGen
	if r := o.apply(op("purge", "key", "part/m/p")); r["events"] != 4.0 {
		t.Errorf("purged: %v", r)
	}
	o.clean(t, "after the purge")
	var note struct{ Events []struct{ Cursor int } }
	if err := json.Unmarshal(o.last().Payload, &note); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "events named", fmt.Sprint(note.Events), "[{3} {5} {6} {7}]")
	if o.payload("part/m/p") != "" || o.payload("part/m/q") != `{"text":"stays"}` || o.payload("message/m") == "" || o.turn("m") != session.Completed {
		t.Errorf("the purge left %q, %q, %q and a turn %s", o.payload("part/m/p"), o.payload("part/m/q"), o.payload("message/m"), o.turn("m"))
	}
	if w.store.Session(o.session).AuthGen == before {
		t.Error("who holds events in memory is not told")
	}
	audit := w.store.Audit()
	if last := audit[len(audit)-1]; last.Act != capability.AuditPurge || last.Subject != "part/m/p" || last.Cursor != o.last().Cursor {
		t.Errorf("audited: %+v", last)
	}

	// The same again changes nothing; a put is there as ever, until it is purged too.
	if r := o.apply(op("purge", "key", "part/m/p")); r["unchanged"] != true {
		t.Errorf("again: %v", r)
	}
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"%s again"}`, leaked)))
	if o.payload("part/m/p") != `{"text":"`+leaked+` again"}` {
		t.Errorf("put after the purge: %q", o.payload("part/m/p"))
	}
	if r := o.apply(op("purge", "key", "part/m/p")); r["events"] != 1.0 {
		t.Errorf("purged again: %v", r)
	}
	o.clean(t, "after the second purge")

	// The finalize event that was cut once is cut again.
	if r := o.apply(op("purge", "key", "message/m")); r["events"] != 2.0 {
		t.Errorf("the message purged: %v", r)
	}
	if o.payload("message/m") != "" || o.turn("m") != session.Completed {
		t.Error("the message is there, or its turn is not")
	}
}

// A message whose turn is open: the turn stays open and can be ended with a payload.
func TestPurgeWithinTurn(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.apply(op("begin", "message", "m", "payload", raw(`{"key":"%s"}`, leaked)))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"%s"}`, leaked)))
	o.apply(op("purge", "key", "message/m"))
	o.apply(op("purge", "key", "part/m/p"))
	o.clean(t, "after the purge")
	if o.turn("m") != session.Streaming {
		t.Fatalf("the turn is %s", o.turn("m"))
	}
	o.refuse(ledger.Rejected, fault.NotFound, op("appendText", "key", "part/m/p", "offset", 0, "text", "x"))
	o.refuse(ledger.Rejected, fault.NotFound, op("finalize", "message", "m", "status", "completed"))
	o.apply(op("finalize", "message", "m", "status", "completed", "payload", raw(`{"role":"a"}`)))
}

// What is purged in the transaction that writes it is neither written nor published.
func TestPurgeInOneGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "message/b", "payload", raw(`{"a":"%s"}`, leaked)))
	_, published := w.commit(o.batch(false,
		op("put", "key", "message/a", "payload", raw(`{"a":"%s"}`, leaked)),
		op("purge", "key", "message/a"),
		op("purge", "key", "message/a"),
		op("purge", "key", "message/b"),
		op("purge", "key", "message/b"),
		op("put", "key", "message/a", "payload", raw(`{"a":2}`)),
	))
	for _, e := range eventsOf(published.Sessions[0]) {
		if strings.Contains(string(e.Payload), leaked) {
			t.Errorf("published with the secret: %s", e.Method)
		}
	}
	if !published.Sessions[0].AuthChanged || len(eventsOf(published.Sessions[0])) != 4 {
		t.Errorf("published: %+v", published.Sessions[0])
	}
	o.clean(t, "after the group")
	if o.payload("message/a") != `{"a":2}` {
		t.Errorf("put after the purge: %q", o.payload("message/a"))
	}
	// One that is taken back has purged nothing.
	before := w.store.Session(o.session).Cursor
	w.commit(o.batch(true, op("put", "key", "session", "payload", raw(`{}`)), op("purge", "key", "message/a"), put("ref/x")))
	if o.payload("message/a") != `{"a":2}` || w.store.Session(o.session).Cursor != before {
		t.Error("a purge that was taken back has purged")
	}
}

// One event that holds several values loses each to its own purge, also where these
// are of one group, and keeps those whose purge was taken back.
func TestPurgesOfOneEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{"m":"%s"}`, leaked)))
	o.apply(op("finalize", "message", "m", "status", "completed", "completed", 9,
		"parts", raw(`[{"id":"a","payload":{"a":"%s"}},{"id":"b","payload":{"b":1}},{"id":"c","payload":{"c":1}}]`, leaked)))
	at := w.store.Session(o.session).Cursor
	purge := func(keys ...string) (ops []anOp) {
		for _, key := range keys {
			ops = append(ops, op("purge", "key", key))
		}
		return ops
	}
	answers, _ := w.commit(
		o.batch(true, append(purge("part/m/b"), put("ref/x"))...),
		o.batch(false, purge("part/m/a")...),
		o.batch(true, append(purge("part/m/c", "part/m/b"), put("ref/x"))...),
		o.batch(false, purge("message/m", "part/m/a")...),
	)
	for i, want := range []string{"", `{"cursor":4,"events":1}`, "", `{"cursor":5,"events":2}`} {
		mustEqual(t, "purged", string(answers[i].Outcomes[0].Result), want)
	}
	mustEqual(t, "purged again", string(answers[3].Outcomes[1].Result), `{"cursor":5,"unchanged":true,"events":0}`)
	mustEqual(t, "left", string(w.store.Events(o.session)[at-1].Payload),
		`{"status":"completed","entries":[{"key":"part/m/b","schema_version":1,"payload":"{\"b\":1}","since":3},{"key":"part/m/c","schema_version":1,"payload":"{\"c\":1}","since":3}],"purged":[0,1]}`)
	o.clean(t, "after the purges")

	// An event of this very group has all of it back.
	_, published := w.commit(o.batch(false, op("put", "key", "message/n", "payload", raw(`{"n":1}`))), o.batch(true, append(purge("message/n"), put("ref/x"))...))
	mustEqual(t, "published", string(eventsOf(published.Sessions[0])[0].Payload), `{"n":1}`)
	mustEqual(t, "there", o.payload("message/n"), `{"n":1}`)
}

// What is in the log alone is purged, and so is what is in the state alone, as after
// its event was trimmed.
func TestPurgeOfWhatIsInOnePlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{"a":"%s"}`, leaked)))
	o.apply(op("remove", "key", "message/a"))
	mustEqual(t, "events", o.apply(op("purge", "key", "message/a"))["events"], any(1.0))
	o.clean(t, "after the purge")

	text := []byte(`{"a":"` + leaked + `"}`)
	rows := &session.Changes{Entries: []*session.Entry{{Session: o.session, Key: "message/b", Cursor: 1, Schema: 1, Sum: session.SumOf(text), Payload: text}}}
	sub := o.batch(false, op("purge", "key", "message/b"))
	for _, do := range []func(tx session.Tx) error{
		func(tx session.Tx) error { return tx.Save(t.Context(), rows) },
		func(tx session.Tx) error {
			answers, _, err := decide.Commit(t.Context(), tx, []decide.Submission{sub}, w.cfg)
			mustEqual(t, "purged", string(answers[0].Outcomes[0].Result), `{"cursor":5,"events":0}`)
			return err
		},
	} {
		if err := w.store.Update(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	o.clean(t, "after the purge of what was trimmed")
}

// A fork is a log of its own: what it copied is purged there, and a fork of an
// earlier cursor gets what a purge has left, even in the same transaction.
func TestPurgeAndForks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{"a":"%s"}`, leaked)))
	o.apply(op("put", "key", "message/b", "payload", raw(`{"b":1}`)))
	at := w.store.Session(o.session).Cursor
	f := w.newWriter()
	f.with = []string{o.ref}
	fork := func(f *writer, args ...any) decide.Submission {
		return f.batch(false, op("fork", append([]any{"source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref)}, args...)...))
	}
	w.commit(fork(f))
	late := w.newWriter()
	late.with = []string{o.ref}
	answers, _ := w.commit(o.batch(false, op("purge", "key", "message/a")), fork(late, "at", at))
	if answers[1].Outcomes[0].Status != ledger.Applied {
		t.Fatalf("fork: %+v", answers[1])
	}
	o.clean(t, "in the source")
	late.clean(t, "in the later fork")
	if late.payload("message/b") != `{"b":1}` {
		t.Errorf("the later fork has %q", late.payload("message/b"))
	}
	if found := f.holds(leaked); len(found) != 2 {
		t.Errorf("the earlier fork has the secret in %q, of which its owner decides", found)
	}
	if r := f.apply(op("purge", "key", "message/a")); r["events"] != 1.0 {
		t.Errorf("purged in the fork: %v", r)
	}
	f.clean(t, "in the fork")
	mustEqual(t, "left of the fork", string(w.store.Events(f.session)[0].Payload), `{"ref":"`+f.ref+`","actor":"owner","source":"`+o.session+
		`","at":3,"entries":[{"key":"message/b","schema_version":1,"payload":"{\"b\":1}"}],"purged":[0]}`)
	f.apply(op("put", "key", "message/c", "payload", raw(`{}`)))
	mustEqual(t, "events that held what was not forked", f.apply(op("purge", "key", "message/c"))["events"], any(1.0))
	if f.payload("message/b") != `{"b":1}` {
		t.Errorf("the purge took %q too", f.payload("message/b"))
	}
}

func TestPurgeRefused(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{}`)))
	guest := o.under(o.share(all))
	guest.refuse(ledger.Denied, fault.NotAnOwner, op("purge", "key", "message/a"))
	o.refuse(ledger.Rejected, fault.BadKey, op("purge", "key", "messages/"))
	o.refuse(ledger.Rejected, fault.BadArgument, op("purge", "key", "message/a", "why", "x"))
	if r := o.apply(op("purge", "key", "message/never")); r["unchanged"] != true {
		t.Errorf("of what never was: %v", r)
	}
	o.apply(op("delete"))
	o.refuse(ledger.Rejected, fault.SessionDeleted, op("purge", "key", "message/a"))
}

// More than one submission may read is refused, and purges nothing.
func TestPurgeIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{"a":"%s"}`, leaked)))
	for i := range 40 {
		o.apply(op("put", "key", "message/a", "payload", raw(`{"a":%d}`, i)))
	}
	w.cfg.Limits.EventBytes = 500 // 2,000 bytes read: 31 events
	out := o.refuse(ledger.Rejected, fault.TooLarge, op("purge", "key", "message/a"))
	if !strings.Contains(out.Message, "trim old events first (serve --keep-log), or delete the session") {
		t.Errorf("the advice is %s", out.Message)
	}
	if len(o.holds(leaked)) != 1 {
		t.Error("a refused purge has purged")
	}

	// To go through the log is not free, though nothing is found there.
	none := op("purge", "key", "message/never")
	mustEqual(t, "once", o.try(none)[0].Status, ledger.Applied)
	outs := o.try(none, none)
	if outs[0].Status != ledger.Applied || outs[1].Reason != fault.TooLarge || !strings.Contains(outs[1].Message, "in a batch of its own") {
		t.Errorf("twice in a batch: %+v", outs)
	}
	answers, _ := w.commit(o.batch(false, none), o.batch(false, none))
	for i, a := range answers {
		if a.Err != nil || a.Outcomes[0].Status != ledger.Applied {
			t.Errorf("submission %d of a group: %+v", i+1, a)
		}
	}
}

// What was written with a value that is purged keeps its place: the log says the same of
// it as the rows, in the end of a turn and in a fork.
func TestPurgeLeavesOthersTheirPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	o.apply(op("finalize", "message", "m", "status", "completed", "parts", raw(`[{"id":"a","payload":{}},{"id":"b","payload":{}},{"id":"c","payload":{}},{"id":"d","payload":{}}]`)))
	f := w.newWriter()
	f.with = []string{o.ref}
	f.apply(op("fork", "source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref)))
	for _, o := range []*writer{o, f} {
		w.commit(o.batch(false, op("purge", "key", "part/m/c"), op("purge", "key", "part/m/a")))
		o.apply(op("purge", "key", "message/m"))
		fold := session.NewFold(o.session)
		for _, e := range w.store.Events(o.session) {
			if err := fold.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		entries, _ := w.store.State(o.session)
		if len(entries) != 2 {
			t.Fatalf("%d entries are left", len(entries))
		}
		for _, e := range entries {
			if got := fold.Entry(e.Key); got == nil || got.Ord != e.Ord || e.Ord.Index == 0 {
				t.Errorf("%s stands at %v, and the log says %+v", e.Key, e.Ord, got)
			}
		}
	}
}

// A session that is deleted holds its events without payloads, whatever was purged in the
// same transaction.
func TestPurgeAndDeleteInOneGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{"a":1}`)))
	w.commit(o.batch(false, op("purge", "key", "message/a"), op("delete")))
	if row := w.store.Session(o.session); row.Bytes != int64(row.Cursor)*session.EventCost {
		t.Errorf("%d events hold %d bytes", row.Cursor, row.Bytes)
	}
}
