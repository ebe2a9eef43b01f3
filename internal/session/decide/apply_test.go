package decide_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestPutAndRemove(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	put := op("put", "key", "message/m1", "payload", raw(` { "a" : 1 } `))

	r := o.apply(put)
	mustEqual(t, "cursor", r["cursor"].(float64), 2)
	mustEqual(t, "payload, byte for byte", o.payload("message/m1"), ` { "a" : 1 } `)
	ev := o.last()
	if ev.Method != "put" || ev.Key != "message/m1" || ev.Ref != o.ref || ev.Actor != "owner" || ev.Outbox != o.outbox || ev.Op == "" || ev.Batch == "" || ev.Schema != 1 {
		t.Fatalf("event %+v", ev)
	}

	r = o.apply(put)
	if r["unchanged"] != true || r["cursor"].(float64) != 2 {
		t.Fatalf("an equal put gave %v", r)
	}
	r = o.apply(op("put", "key", "message/m1", "payload", raw(` { "a" : 1 } `), "schema_version", 2))
	mustEqual(t, "cursor after another schema", r["cursor"].(float64), 3)

	r = o.apply(op("remove", "key", "message/m1"))
	mustEqual(t, "cursor of remove", r["cursor"].(float64), 4)
	mustEqual(t, "payload", o.payload("message/m1"), "")
	r = o.apply(op("remove", "key", "message/m1"))
	mustEqual(t, "unchanged", r["unchanged"], any(true))
	r = o.apply(put)
	mustEqual(t, "cursor of the put after remove", r["cursor"].(float64), 5)
}

func TestCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create("external", "oc-1", "label", "mine", "actor", "ann")
	row := w.store.Session(o.session)
	if row.Life != session.Live || row.External != "oc-1" || row.Epoch != 1 || row.Creator != o.outbox || row.Space != capability.Target(w.space) {
		t.Fatalf("row %+v", row)
	}
	g := w.store.Grant(o.ref)
	if !g.Owner || g.Rights != capability.OwnerRights || g.Parent != w.space || g.Actor != "ann" || g.Label != "mine" {
		t.Fatalf("owner %+v", g)
	}
	if ev := o.last(); ev.Ref != w.space || strings.Contains(string(ev.Payload), sha(o.ref)) {
		t.Fatalf("create event %+v %s", ev, ev.Payload)
	}

	t.Run("again", func(t *testing.T) {
		o.refuse(ledger.Rejected, fault.AlreadyExists, op("create", "ref", o.ref, "hash", sha(o.ref)))
	})
	t.Run("external taken", func(t *testing.T) {
		p := w.newWriter()
		out := p.refuse(ledger.Rejected, fault.AlreadyExists, op("create", "ref", p.ref, "hash", sha(p.ref), "external", "oc-1"))
		if strings.Contains(out.Message, o.session) {
			t.Fatalf("the message names the other session: %s", out.Message)
		}
		p.refuse(ledger.Rejected, fault.NotFound, op("put", "key", "session", "payload", raw(`{}`)))
		p.apply(op("create", "ref", p.ref, "hash", sha(p.ref), "external", "oc-2"))
	})
	t.Run("external taken, and shared", func(t *testing.T) {
		p, q := w.newWriter(), w.newWriter()
		p.apply(op("create", "ref", p.ref, "hash", sha(p.ref), "external", "oc-1", "shared_external", true))
		q.refuse(ledger.Rejected, fault.AlreadyExists, op("create", "ref", q.ref, "hash", sha(q.ref), "external", "oc-1"))
	})
	t.Run("external taken by another maker", func(t *testing.T) {
		p := w.newWriter()
		id, hash := newRef(capability.Target(w.space))
		w.store.AddGrant(capability.Grant{ID: id, Target: capability.Target(id), Parent: w.space, Hash: hash, Rights: capability.Create})
		p.space = id
		p.apply(op("create", "ref", p.ref, "hash", sha(p.ref), "external", "oc-1"))
		again := w.newWriter()
		again.space = id
		again.refuse(ledger.Rejected, fault.AlreadyExists, op("create", "ref", again.ref, "hash", sha(again.ref), "external", "oc-1"))
	})
	t.Run("external taken in another space", func(t *testing.T) {
		p := w.newWriter()
		p.space = w.newSpace()
		p.apply(op("create", "ref", p.ref, "hash", sha(p.ref), "external", "oc-1"))
	})
	t.Run("without a space", func(t *testing.T) {
		p := o.under(o.ref)
		p.refuse(ledger.Denied, fault.MissingRight, op("create", "ref", o.ref, "hash", sha(o.ref)))
	})
	t.Run("external that was not looked for", func(t *testing.T) {
		p := w.newWriter()
		p.refuse(ledger.Rejected, fault.BadReference, op("create", "ref", p.ref, "hash", sha(p.ref), "external", unseen("oc-4")))
	})
	t.Run("external taken in the same group", func(t *testing.T) {
		making := func(p *writer, more ...anOp) decide.Submission {
			return p.batch(true, append([]anOp{op("create", "ref", p.ref, "hash", sha(p.ref), "external", "oc-3")}, more...)...)
		}
		answers, _ := w.commit(making(w.newWriter(), put("ref/x")), making(w.newWriter()), making(w.newWriter()))
		for i, want := range []fault.Code{fault.BadKey, fault.None, fault.AlreadyExists} {
			mustEqual(t, "reason", answers[i].Outcomes[0].Reason, want)
		}
	})
	t.Run("another owner ref than was asked for", func(t *testing.T) {
		p := w.newWriter()
		id, _ := newRef(p.session)
		p.refuse(ledger.Rejected, fault.BadArgument, op("create", "ref", id, "hash", sha(id)))
	})
	t.Run("another session's owner ref", func(t *testing.T) {
		p := w.newWriter()
		p.ref, _ = newRef(o.session)
		p.refuse(ledger.Rejected, fault.BadArgument, op("create", "ref", p.ref, "hash", sha(p.ref)))
	})
	t.Run("an owner ref that is there", func(t *testing.T) {
		p := w.newWriter()
		w.store.AddGrant(capability.Grant{ID: p.ref, Target: p.session, Rights: capability.Read})
		p.refuse(ledger.Rejected, fault.AlreadyExists, op("create", "ref", p.ref, "hash", sha(p.ref)))
	})
	t.Run("under another session's ref", func(t *testing.T) {
		p := o.under(w.create().ref)
		p.refuse(ledger.Denied, fault.UnknownRef, put("message/a"))
	})
	t.Run("under a space ref that may only list", func(t *testing.T) {
		id, hash := newRef(capability.Target(w.space))
		w.store.AddGrant(capability.Grant{ID: id, Target: capability.Target(w.space), Hash: hash, Rights: capability.List})
		p := w.newWriter()
		p.space = id
		p.refuse(ledger.Denied, fault.MissingRight, op("create", "ref", p.ref, "hash", sha(p.ref)))
		p.refuse(ledger.Denied, fault.MissingRight, op("put", "key", "session", "payload", raw(`{}`)))
	})
	t.Run("under a space ref that was narrowed", func(t *testing.T) {
		root := w.store.Grant(w.space)
		for _, rights := range []capability.Rights{capability.List, capability.Create} {
			narrow, err := capability.Attenuate(root, capability.MintRequest{Rights: rights, Actor: "clerk"}, 0, w.store.Now)
			if err != nil {
				t.Fatal(err)
			}
			p := w.newWriter()
			sub := p.batch(false, op("create", "ref", p.ref, "hash", sha(p.ref)))
			sub.Outer = narrow
			answers, _ := w.commit(sub)
			switch out := answers[0].Outcomes[0]; {
			case rights == capability.List:
				mustEqual(t, "to listing", out.Reason, fault.MissingRight)
			case out.Status != ledger.Applied || w.store.Grant(p.ref).Actor != "clerk/owner" || p.last().Actor != "clerk":
				t.Errorf("to making sessions: %+v, by %s", out, p.last().Actor)
			}
		}
	})
	t.Run("under an unknown space ref", func(t *testing.T) {
		p := w.newWriter()
		p.space, _ = newRef(capability.Target(w.space))
		p.refuse(ledger.Denied, fault.UnknownRef, op("create", "ref", p.ref, "hash", sha(p.ref)))
	})
}

// Naming an owner ref to the space is not holding it.
func TestSpaceObjectOfAnotherOutbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "session", "payload", raw(`{}`))) // the creating outbox goes on under its space object

	thief := o.under(o.ref)
	thief.space = w.space
	thief.refuse(ledger.Denied, fault.UnknownRef, op("put", "key", "session", "payload", raw(`{"x":1}`)))
	thief.refuse(ledger.Rejected, fault.AlreadyExists, op("create", "ref", o.ref, "hash", sha(o.ref)))
	answers, _ := w.commit(decide.Submission{Batch: ledger.Batch{Session: o.session}, Ref: o.ref, Space: w.space, Direct: &decide.Direct{Epoch: true}})
	if answers[0].Err == nil || answers[0].Err.Code != fault.UnknownRef {
		t.Fatalf("direct revoke through the space: %v", answers[0].Err)
	}
}

func TestExpectedCursor(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{}`)).expecting(1))
	out := o.refuse(ledger.Conflict, fault.Conflict, op("put", "key", "message/b", "payload", raw(`{}`)).expecting(1))
	mustEqual(t, "cursor of the conflict", out.Cursor, 2)
}

// A fork up to a message leaves out the messages that come after it in the session's order.
func TestForkUpToAMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, order := range []string{"", "time"} {
		source := w.create("order", order)
		message := func(id string, created int) anOp {
			return op("put", "key", "message/"+id, "payload", raw(`{"time":{"created":%d}}`, created))
		}
		part := func(key string) anOp { return op("put", "key", "part/"+key, "payload", raw(`{"text":"x"}`)) }
		// By the log: c, a, b; by time: a, b, c. The part of a comes last, one of d has no message.
		for _, x := range []anOp{message("c", 3), part("c/p"), message("a", 1), part("d/p"), message("b", 2), part("b/p"), part("a/p"),
			op("put", "key", "session", "payload", raw(`{"title":"T"}`)), op("put", "key", "todo/1", "payload", 1)} {
			source.apply(x)
		}
		last := source.w.store.Session(source.session).Cursor
		guest := source.share([]string{"read"}, "message", "b")
		forked := func(via string, args ...any) (p *writer, x anOp) {
			p = w.newWriter()
			p.with = []string{via}
			return p, op("fork", append([]any{"source", source.session, "via", via, "ref", p.ref, "hash", sha(p.ref)}, args...)...)
		}
		want := map[string]string{
			"c": "message/c part/c/p", "a": "message/c part/c/p message/a part/a/p", "b": "message/c part/c/p message/a part/d/p message/b part/b/p part/a/p",
		}
		if order == "time" {
			want = map[string]string{"a": "message/a part/a/p", "b": "message/a message/b part/b/p part/a/p", "c": "message/a message/b message/c part/c/p part/b/p part/a/p"}
		}
		for id, keys := range want {
			p, x := forked(source.ref, "message", id)
			r := p.apply(x)
			var got []string
			for _, e := range w.folds[p.session].Entries() {
				if session.KindOf(e.Key) == "message" || session.KindOf(e.Key) == "part" {
					got = append(got, e.Key)
				}
			}
			slices.Sort(got)
			sorted := strings.Fields(keys)
			slices.Sort(sorted)
			mustEqual(t, order+" up to "+id, strings.Join(got, " "), strings.Join(sorted, " "))
			mustEqual(t, "the title", p.payload("session"), `{"title":"T"}`)
			mustEqual(t, "the rest", p.payload("todo/1"), "1")
			mustEqual(t, "the source's cursor", r["at"], any(float64(last+1))) // the share's
			mustEqual(t, "what it was forked from", w.store.Session(p.session).Origin, session.Origin{Session: source.session, Cursor: last + 1, Message: id})
			if !strings.Contains(string(p.last().Payload), `,"message":"`+id+`",`) {
				t.Errorf("the event does not name the message: %s", p.last().Payload)
			}
		}
		p, x := forked(source.ref, "message", "a", "at", 4)
		p.apply(x)
		mustEqual(t, "as of a cursor, without the part of later on", p.payload("part/a/p")+p.payload("session"), "")
		p, x = forked(guest, "message", "b")
		p.apply(x)
		mustEqual(t, "the one that a ref shows", p.payload("message/b")+p.payload("message/a"), `{"time":{"created":2}}`)
		for _, bad := range []struct {
			via  string
			args []any
			code fault.Code
		}{
			{source.ref, []any{"message", "none"}, fault.NotFound},
			{source.ref, []any{"message", "b", "at", 3}, fault.NotFound}, // it came later
			{guest, []any{"message", "a"}, fault.NotFound},               // it is not shown
			{source.ref, []any{"message", "a/b"}, fault.BadKey},
			{source.ref, []any{"message", 7}, fault.BadArgument},
		} {
			p, x := forked(bad.via, bad.args...)
			p.refuse(ledger.Rejected, bad.code, x)
		}
	}
}

func TestFork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{ "n": 1 }`)))
	o.apply(op("begin", "message", "b", "payload", raw(`{}`)))
	o.apply(op("put", "key", "part/b/p", "payload", raw(`{"text":"x"}`), "schema_version", 3))
	o.apply(op("appendText", "key", "part/b/p", "offset", 1, "text", "yz"))
	o.apply(op("put", "key", "message/a", "payload", raw(`{"n":2}`)))
	reader := o.share([]string{"read"})
	late := o.share([]string{"read"}, "from", 4)
	mute := o.share([]string{"append"})
	one := o.share([]string{"read"}, "message", "b")

	fork := func(via string, args ...any) (*writer, anOp) {
		p := w.newWriter()
		p.with = []string{via}
		return p, op("fork", append([]any{"source", o.session, "via", via, "ref", p.ref, "hash", sha(p.ref)}, args...)...)
	}
	t.Run("now", func(t *testing.T) {
		p, x := fork(reader)
		r := p.apply(x)
		if r["session"] != p.session || r["source"] != o.session || r["at"].(float64) != 10 || r["cursor"].(float64) != 1 {
			t.Fatalf("result %v", r)
		}
		ev := p.last()
		mustEqual(t, "event", string(ev.Payload), `{"ref":"`+p.ref+`","actor":"owner","source":"`+o.session+`","at":10,"entries":[`+
			`{"key":"message/a","schema_version":1,"payload":"{\"n\":2}"},{"key":"message/b","schema_version":1,"payload":"{}"},`+
			`{"key":"part/b/p","schema_version":3,"payload":"{\"text\":\"xyz\"}"}]}`)
		p.refuse(ledger.Rejected, fault.AlreadyExists, x)
		mustEqual(t, "ref", r["ref"], any(p.ref))
		mustEqual(t, "message", p.payload("message/a"), `{"n":2}`)
		mustEqual(t, "text", p.payload("part/b/p"), `{"text":"xyz"}`)
		mustEqual(t, "turn", p.turn("b"), 0)
		for _, key := range []string{"message/a", "message/b"} {
			mustEqual(t, key+" as it is", p.apply(op("put", "key", key, "payload", raw("%s", p.payload(key))))["unchanged"], any(true))
		}
		p.apply(op("begin", "message", "b", "payload", raw(`{}`)))
		p.apply(op("appendText", "key", "part/b/p", "offset", 3, "text", "!"))
		mustEqual(t, "text", p.payload("part/b/p"), `{"text":"xyz!"}`)
		mustEqual(t, "the source's text", o.payload("part/b/p"), `{"text":"xyz"}`)
	})
	t.Run("at an earlier cursor", func(t *testing.T) {
		p, x := fork(reader, "at", 4)
		p.apply(x)
		mustEqual(t, "message", p.payload("message/a"), `{ "n": 1 }`)
		mustEqual(t, "text", p.payload("part/b/p"), `{"text":"x"}`)
	})
	t.Run("at a cursor of its own group", func(t *testing.T) {
		at := w.store.Session(o.session).Cursor + 1
		p, x := fork(o.ref, "at", at)
		n := func(n int) anOp { return op("put", "key", "message/group", "payload", raw(`{"n":%d}`, n)) }
		w.commit(o.batch(false, n(1), n(2), op("remove", "key", "message/group")), p.batch(false, x))
		mustEqual(t, "message", p.payload("message/group"), `{"n":1}`)
	})
	t.Run("through a ref that sees the late part only", func(t *testing.T) {
		p, x := fork(late)
		p.apply(x)
		mustEqual(t, "hidden", p.payload("message/b"), "")
		mustEqual(t, "shown", p.payload("message/a"), `{"n":2}`)
		mustEqual(t, "shown, as the first", p.payload("part/b/p"), `{"text":"xyz"}`)
	})
	t.Run("through a ref that is for one message", func(t *testing.T) {
		p, x := fork(one)
		p.apply(x)
		mustEqual(t, "hidden", p.payload("message/a"), "")
		mustEqual(t, "shown", p.payload("part/b/p"), `{"text":"xyz"}`)
	})
	t.Run("at its very cursor", func(t *testing.T) {
		at := w.store.Session(o.session).Cursor
		p, x := fork(reader, "at", at+1)
		p.refuse(ledger.Rejected, fault.BadArgument, x)
		p, x = fork(reader, "at", at)
		p.apply(x)
	})
	t.Run("at a cursor with its event's hash", func(t *testing.T) {
		events := w.store.Events(o.session)
		for _, e := range []*session.Event{events[3], events[len(events)-1]} { // of the log, and of the present state
			p, x := fork(reader, "at", e.Cursor, "at_hash", session.Hash{1}.String())
			p.refuse(ledger.Rejected, fault.BadArgument, x)
			p, x = fork(reader, "at", e.Cursor, "at_hash", e.Hash.String()[1:])
			p.refuse(ledger.Rejected, fault.BadArgument, x)
			p, x = fork(reader, "at", e.Cursor, "at_hash", e.Hash.String())
			p.apply(x)
		}
		p, x := fork(one, "at", 4, "at_hash", session.Hash{1}.String()) // which is shown hashes of its own
		p.apply(x)
	})
	t.Run("of one that is not there, or no more", func(t *testing.T) {
		absent, gone := w.newWriter(), w.create()
		w.store.AddGrant(capability.Grant{ID: absent.ref, Target: absent.session, Owner: true, Rights: capability.Read})
		gone.apply(op("delete"))
		for source, code := range map[*writer]fault.Code{absent: fault.NotFound, gone: fault.SessionDeleted} {
			p := w.newWriter()
			p.with = []string{source.ref}
			p.refuse(ledger.Rejected, code, op("fork", "source", source.session, "via", source.ref, "ref", p.ref, "hash", sha(p.ref)))
		}
	})
	t.Run("of one that the op does not name", func(t *testing.T) {
		other := w.create()
		p := w.newWriter()
		p.with = []string{reader, other.ref}
		p.refuse(ledger.Denied, fault.UnknownRef, op("fork", "source", o.session, "via", other.ref, "ref", p.ref, "hash", sha(p.ref)))
		p.refuse(ledger.Rejected, fault.BadReference, op("fork", "source", unseen(o.session), "via", reader, "ref", p.ref, "hash", sha(p.ref)))
	})
	t.Run("of a trimmed log", func(t *testing.T) {
		source := w.create()
		source.apply(put("message/a"))
		source.apply(put("message/b"))
		row := w.store.Session(source.session)
		row.Base = 1
		err := w.store.Update(t.Context(), func(tx session.Tx) error {
			return tx.Save(t.Context(), &session.Changes{Sessions: []*session.Row{row}})
		})
		if err != nil {
			t.Fatal(err)
		}
		p := w.newWriter()
		p.with = []string{source.ref}
		x := op("fork", "source", source.session, "via", source.ref, "ref", p.ref, "hash", sha(p.ref), "at", 2)
		if out := p.refuse(ledger.Rejected, fault.CursorExpired, x); !strings.Contains(out.Message, "after cursor 1") {
			t.Errorf("says %s", out.Message)
		}
		x = op("fork", "source", source.session, "via", source.ref, "ref", p.ref, "hash", sha(p.ref), "at", 3)
		p.apply(x)
	})
	t.Run("no larger than an event may be", func(t *testing.T) {
		limit := w.cfg.Limits.EventBytes
		defer func() { w.cfg.Limits.EventBytes = limit }()
		id, _ := newRef(o.session)
		copied := len(`{"external":"oc-0","ref":"` + id + `","label":"mine","actor":"ann","source":"` + o.session + `","at":10,"entries":[{"key":"message/b","schema_version":1,"payload":"{}"},` +
			`{"key":"part/b/p","schema_version":3,"payload":"{\"text\":\"xyz\"}"}]}`)
		for less, want := range []fault.Code{fault.None, fault.NotYetKnown} {
			w.cfg.Limits.EventBytes = copied - less
			p, x := fork(one, "external", fmt.Sprintf("oc-%d", 2+less), "label", "mine", "actor", "ann")
			if want == fault.None {
				p.apply(x)
				continue
			}
			answers, _ := w.commit(p.batch(false, x))
			mustEqual(t, "that it is copied in pieces", answers[0].Fork != nil, true)
			w.cfg.Features = func() session.Features { return session.AllFeatures &^ session.FeatureLargeForks }
			p, x = fork(one, "external", "oc-3", "label", "mine", "actor", "ann")
			answers, _ = w.commit(p.batch(false, x))
			mustEqual(t, "where a server does not know that yet", answers[0].Err.Code, fault.Unsupported)
			w.cfg.Features = nil
		}
	})
	t.Run("refusals", func(t *testing.T) {
		p, x := fork(reader, "at", 100)
		p.refuse(ledger.Rejected, fault.BadArgument, x)
		p, x = fork(mute)
		p.refuse(ledger.Denied, fault.MissingRight, x)
		p, x = fork(reader)
		p.with = nil
		p.refuse(ledger.Denied, fault.UnknownRef, x)
		unknown, _ := newRef(o.session)
		p, x = fork(unknown)
		p.refuse(ledger.Denied, fault.UnknownRef, x)
		o.apply(op("revoke", "ref", reader))
		p, x = fork(reader)
		p.refuse(ledger.Denied, fault.Revoked, x)
	})
}

func TestDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create("external", "x")
	g := o.under(o.share([]string{"read", "append", "share", "revoke"}))
	o.apply(op("put", "key", "message/a", "payload", raw(`{"secret":1}`)))
	g.refuse(ledger.Denied, fault.NotAnOwner, op("delete"))
	o.apply(op("delete"))
	row := w.store.Session(o.session)
	if row.Life != session.Deleted || row.Cursor != 4 {
		t.Fatalf("row %+v", row)
	}
	for _, e := range w.store.Events(o.session) {
		if e.Payload != nil {
			t.Fatalf("event %d still has its payload", e.Cursor)
		}
	}
	o.refuse(ledger.Rejected, fault.SessionDeleted, op("put", "key", "message/a", "payload", raw(`{}`)))
	o.refuse(ledger.Rejected, fault.SessionDeleted, op("delete"))
	o.refuse(ledger.Rejected, fault.SessionDeleted, op("create", "ref", o.ref, "hash", sha(o.ref)))
	w.create("external", "x") // the external id is free again
}

func TestResultsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	id := o.share([]string{"read"})
	for _, e := range w.store.Events(o.session) {
		if strings.Contains(string(e.Payload), sha(id)) || strings.Contains(string(e.Payload), sha(o.ref)) {
			t.Fatalf("event %d holds a hash: %s", e.Cursor, e.Payload)
		}
		if !json.Valid(e.Payload) {
			t.Fatalf("event %d is not JSON", e.Cursor)
		}
	}
}
