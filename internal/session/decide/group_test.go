package decide_test

// What the ops of one batch, and the batches of one group, see of each other.

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestOneBatchCreatesSharesAndAppends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.newWriter()
	guest, _ := newRef(o.session)
	create := op("create", "ref", o.ref, "hash", sha(o.ref))
	sub := o.batch(true, create,
		op("put", "key", "message/m", "payload", raw(`{}`)),
		op("share", "ref", guest, "hash", sha(guest), "rights", []string{"read"}))
	sub.Batch.Ops[1].Expected = ledger.Expect{}
	last := op("revoke", "ref", ledger.Ref{Op: sub.Batch.Ops[2].OpID, Path: "ref"})
	sub2 := o.batch(false, last)
	answers, published := w.commit(sub, sub2)
	for _, a := range answers {
		for _, out := range a.Outcomes {
			if out.Status != ledger.Applied {
				t.Fatalf("%s: %s", out.Reason, out.Message)
			}
		}
	}
	if g := w.store.Grant(guest); g.Revoked == 0 || g.Cut != 4 {
		t.Fatalf("guest %+v", g)
	}
	if len(published.Sessions) != 1 || len(eventsOf(published.Sessions[0])) != 4 || !published.Sessions[0].AuthChanged {
		t.Fatalf("published %+v", published)
	}
}

func TestAtomic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"a"}`)))
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	guest, _ := newRef(o.session)
	before, _ := w.store.State(o.session)
	answers, published := w.commit(o.batch(true,
		op("appendText", "key", "part/m/p", "offset", 1, "text", "b"),
		op("put", "key", "message/n", "payload", raw(`{}`)),
		op("remove", "key", "part/m/p"),
		op("share", "ref", guest, "hash", sha(guest), "rights", []string{"read"}),
		op("bumpEpoch"),
		op("finalize", "message", "m", "status", "completed"),
		op("delete"),
		op("put", "key", "ref/x", "payload", raw(`{}`))))
	for i, out := range answers[0].Outcomes {
		if out.Status != ledger.BatchAborted || out.Cause != answers[0].Outcomes[7].OpID || out.Reason != fault.SessionDeleted && out.Reason != fault.BadKey {
			t.Fatalf("op %d: %+v", i, out)
		}
	}
	after, _ := w.store.State(o.session)
	if len(before) != len(after) || string(after[1].Payload) != string(before[1].Payload) || w.store.Grant(guest) != nil ||
		w.store.Session(o.session).Epoch != 1 || len(published.Sessions) != 0 {
		t.Fatalf("an aborted batch left something: %v", after)
	}
	// The place of the aborted batch is used up; what follows sees none of it.
	o.apply(op("appendText", "key", "part/m/p", "offset", 1, "text", "c"))
	mustEqual(t, "text", o.payload("part/m/p"), `{"text":"ac"}`)
}

// What is undone gives back what the same group had done before it, and leaves nothing
// that it alone was the first to know.
func TestUndoGivesBackTheGroupsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	a := func(n int) anOp { return op("put", "key", "message/a", "payload", raw(`{"n":%d}`, n)) }
	answers, _ := w.commit(o.batch(false, a(1)), o.batch(true, a(2), op("remove", "key", "message/a"), put("ref/x")), o.batch(false, a(1)))
	mustEqual(t, "put again", string(answers[2].Outcomes[0].Result), `{"cursor":2,"unchanged":true}`)
	mustEqual(t, "left", o.payload("message/a"), `{"n":1}`)

	f := w.newWriter()
	f.with = []string{o.ref}
	fork := op("fork", "source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref))
	answers, _ = w.commit(f.batch(true, fork, op("begin", "message", "m", "payload", raw(`{}`)), put("ref/x")),
		f.batch(false, op("create", "ref", f.ref, "hash", sha(f.ref)), op("begin", "message", "m", "payload", raw(`{}`))))
	mustEqual(t, "undone", answers[0].Outcomes[0].Status, ledger.BatchAborted)
	mustEqual(t, "begun", string(answers[1].Outcomes[1].Result), `{"cursor":2}`)
	mustEqual(t, "left of the fork", f.payload("message/a"), "")

	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	answers, _ = w.commit(o.batch(false, a(3)), o.batch(true, op("delete"), put("ref/x")), o.batch(false, a(3), op("finalize", "message", "m", "status", "completed")))
	mustEqual(t, "there as before", string(answers[2].Outcomes[0].Result), `{"cursor":4,"unchanged":true}`)
	mustEqual(t, "ended", string(answers[2].Outcomes[1].Result), `{"cursor":5,"status":"completed"}`)
	mustEqual(t, "left", o.payload("message/a"), `{"n":3}`)
}

// Text grows within a group as it does over many: on what the database has of it, on
// what the group has put, and on what it has added.
func TestTextGrowsWithinAGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	delta := func(key string, offset int, text string) anOp {
		return op("appendText", "key", key, "offset", offset, "text", text)
	}
	end := func(m string) anOp { return op("finalize", "message", m, "status", "completed") }
	for _, m := range []string{"m", "n"} {
		o.apply(op("begin", "message", m, "payload", raw(`{}`)))
	}
	o.apply(op("put", "key", "part/m/old", "payload", raw(`{"text":"a"}`)))
	o.apply(delta("part/m/old", 1, "b"))
	w.commit(o.batch(false, op("put", "key", "part/m/new", "payload", raw(`{"text":"x"}`)), delta("part/m/new", 1, "y"), delta("part/m/new", 2, "z"),
		op("put", "key", "part/n/p", "payload", raw(`{"text":"1"}`))), o.batch(false, delta("part/n/p", 1, "2")))
	mustEqual(t, "before the end", o.payload("part/m/new")+o.payload("part/n/p"), `{"text":"xyz"}{"text":"12"}`)
	w.commit(o.batch(false, op("put", "key", "part/m/old", "payload", raw(`{"text":"ab"}`)), delta("part/m/old", 2, "c"), delta("part/m/old", 3, "d"), end("m")), o.batch(false, delta("part/n/p", 2, "3"), end("n")))
	for key, want := range map[string]string{"part/m/old": "abcd", "part/m/new": "xyz", "part/n/p": "123"} {
		mustEqual(t, key, o.payload(key), `{"text":"`+want+`"}`)
	}
}

// What one op has read is no answer for what another asks, in one batch.
func TestReadSetOfOneOp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	running := raw(`{"state":{"status":"running"}}`)
	for _, m := range []string{"m", "n"} {
		o.apply(op("begin", "message", m, "payload", raw(`{}`)))
		o.apply(op("put", "key", "part/"+m+"/tool", "payload", running))
	}
	o.apply(op("put", "key", "message/x", "payload", raw(`{"x":1}`)))
	end := func(m string) anOp { return op("finalize", "message", m, "status", "completed") }
	outs := o.try(op("put", "key", "part/n/late", "payload", running), end("m"), op("put", "key", unseen("message/x"), "payload", raw(`{"x":1}`)), end("n"))
	mustEqual(t, "the same again", string(outs[2].Result), `{"cursor":8,"unchanged":true}`)
	for i, want := range map[uint64][]string{8: {"message/m", "part/m/tool"}, 9: {"message/n", "part/n/late", "part/n/tool"}} {
		var p struct{ Entries []struct{ Key string } }
		if err := json.Unmarshal(w.store.Events(o.session)[i-1].Payload, &p); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, e := range p.Entries {
			keys = append(keys, e.Key)
		}
		if !slices.Equal(keys, want) {
			t.Errorf("event %d writes %q, want %q", i, keys, want)
		}
	}
}

func TestNotAtomicKeepsSiblings(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	outs := o.try(op("put", "key", "message/a", "payload", raw(`{}`)), op("put", "key", "ref/x", "payload", raw(`{}`)), op("put", "key", "message/b", "payload", raw(`{}`)))
	if outs[0].Status != ledger.Applied || outs[1].Status != ledger.Rejected || outs[2].Status != ledger.Applied || outs[2].Cursor != 3 {
		t.Fatalf("%+v", outs)
	}
}
