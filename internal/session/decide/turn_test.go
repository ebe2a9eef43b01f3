package decide_test

// Turns: their states, their text, their lease and their end.

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestAppendText(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	delta := func(offset int, text string) anOp {
		return op("appendText", "key", "part/m/p", "offset", offset, "text", text)
	}
	o.refuse(ledger.Rejected, fault.NotFound, delta(0, "x")) // no turn
	o.apply(op("begin", "message", "m", "payload", raw(`{"role":"assistant"}`)))
	o.refuse(ledger.Rejected, fault.NotFound, delta(0, "x")) // no part
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"type":"text","text":5}`)))
	o.refuse(ledger.Rejected, fault.BadPayload, delta(0, "x"))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"type":"text"}`)))
	r := o.apply(delta(0, "Grüße, "))
	mustEqual(t, "length in bytes", r["length"].(float64), 9)
	out := o.refuse(ledger.Rejected, fault.WrongOffset, delta(7, "x"))
	mustEqual(t, "present length", out.At, 9)
	out = o.refuse(ledger.Rejected, fault.WrongOffset, delta(10, ""))
	mustEqual(t, "present length, for an empty delta", out.At, 9)
	r = o.apply(delta(9, ""))
	mustEqual(t, "an empty delta", r["unchanged"], any(true))
	o.apply(op("appendText", "key", "part/m/p", "offset", 9, "text", raw(`"\ud83d\ude00<&>\u0000\u2028"`)))
	var part struct{ Text string }
	if err := json.Unmarshal([]byte(o.payload("part/m/p")), &part); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "text", part.Text, "Grüße, 😀<&>\x00\u2028")

	// A put replaces, deltas and all; one that is equal to what stands there changes nothing.
	now := o.payload("part/m/p")
	r = o.apply(op("put", "key", "part/m/p", "payload", json.RawMessage(now)))
	mustEqual(t, "an equal put", r["unchanged"], any(true))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"ab"}`)))
	o.refuse(ledger.Rejected, fault.WrongOffset, delta(9, "c"))
	o.apply(delta(2, "c"))
	mustEqual(t, "part", o.payload("part/m/p"), `{"text":"abc"}`)
	r = o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"abd"}`)))
	mustEqual(t, "a put that is as long", r["unchanged"], nil)
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"ab"}`)))
	o.apply(delta(2, "c"))

	other := o.under(o.share([]string{"read", "append"}))
	other.refuse(ledger.Rejected, fault.NotYourTurn, delta(3, "d"))
	o.w.cfg.Limits.TextBytes = 4
	o.refuse(ledger.Rejected, fault.TooLarge, delta(3, "de"))
	o.apply(delta(3, "d"))

	o.apply(op("finalize", "message", "m", "status", "completed"))
	o.refuse(ledger.Rejected, fault.TurnEnded, delta(4, "e"))
	other.refuse(ledger.Rejected, fault.TurnEnded, delta(4, "e"))
	o.refuse(ledger.Rejected, fault.TurnEnded, op("begin", "message", "m", "payload", raw(`{}`)))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"late"}`)))
}

// Half a surrogate pair is one character, which cannot be read, and takes nothing
// that is behind it along.
func TestAppendTextBehindHalfACharacter(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	for i, text := range []string{`"\ud800"`, `"\ud800\u0041"`, `"\ud800\ud800"`, `"\ud800\u0001b"`, `"\udc00\ud83d\ude00"`} {
		key := fmt.Sprintf("part/m/p%d", i)
		o.apply(op("put", "key", key, "payload", raw(`{"text":%s}`, text)))
		var want string
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		o.apply(op("appendText", "key", key, "offset", len(want), "text", "!"))
		var part struct{ Text string }
		if err := json.Unmarshal([]byte(o.payload(key)), &part); err != nil {
			t.Fatal(err)
		}
		mustEqual(t, text, part.Text, want+"!")
	}
}

func TestFinalize(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"completed", "failed", "aborted"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			o := w.create()
			o.refuse(ledger.Rejected, fault.NotFound, op("finalize", "message", "m", "status", status))
			o.apply(op("begin", "message", "m", "payload", raw(`{"role":"assistant", "time":{"created":1}}`)))
			o.refuse(ledger.Rejected, fault.TurnOpen, op("begin", "message", "m", "payload", raw(`{}`)))
			o.refuse(ledger.Rejected, fault.TurnOpen, op("remove", "key", "message/m"))
			o.apply(op("put", "key", "part/m/text", "payload", raw(`{"text":"a", "time":{"start":5}}`)))
			o.apply(op("appendText", "key", "part/m/text", "offset", 1, "text", "bc"))
			o.apply(op("put", "key", "part/m/tool1", "payload", raw(`{"state":{"status":"pending","input":{}}}`)))
			o.apply(op("put", "key", "part/m/tool2", "payload", raw(`{"state":{"status":"running","time":{"start":7}}}`)))
			o.apply(op("put", "key", "part/m/tool3", "payload", raw(`{"state":{"status":"completed"}}`)))
			o.apply(op("put", "key", "part/m2/tool", "payload", raw(`{"state":{"status":"running"}}`)))
			done := op("finalize", "message", "m", "status", status, "usage", raw(`{"input":3}`), "error", raw(`{"name":"x"}`),
				"parts", raw(`[{"id":"step","payload":{"type":"step-finish"},"schema_version":2},{"id":"tool3","payload":{"state":{"status":"running"}}}]`))
			before := w.store.Session(o.session).Cursor
			r := o.apply(done)
			mustEqual(t, "one event", r["cursor"].(float64), float64(before+1))
			mustEqual(t, "state", o.turn("m").String(), status)
			now := w.store.Now
			for key, want := range map[string]string{
				"message/m":    fmt.Sprintf(`{"role":"assistant", "time":{"created":1,"completed":%d},"tokens":{"input":3},"error":{"name":"x"}}`, now),
				"part/m/text":  fmt.Sprintf(`{"text":"abc", "time":{"start":5,"end":%d}}`, now),
				"part/m/tool1": `{"state":{"status":"error","input":{},"error":"turn ` + status + `"}}`,
				"part/m/tool2": fmt.Sprintf(`{"state":{"status":"error","time":{"start":7,"end":%d},"error":"turn `+status+`"}}`, now),
				"part/m/tool3": `{"state":{"status":"error","error":"turn ` + status + `"}}`,
				"part/m/step":  `{"type":"step-finish"}`,
				"part/m2/tool": `{"state":{"status":"running"}}`,
			} {
				mustEqual(t, key, o.payload(key), want)
			}

			w.store.Now += 5000
			r = o.apply(done) // an equal second one
			if r["unchanged"] != true || r["status"] != status {
				t.Fatalf("the equal second finalize gave %v", r)
			}
			o.refuse(ledger.Rejected, fault.TurnEnded, op("finalize", "message", "m", "status", status))
			o.refuse(ledger.Rejected, fault.TurnEnded, op("finalize", "message", "m", "status", "failed", "completed", 9))
			o.apply(op("remove", "key", "message/m"))
			o.refuse(ledger.Rejected, fault.TurnEnded, op("begin", "message", "m", "payload", raw(`{}`)))
		})
	}
}

func TestFinalizeGivenValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{"time":{"completed":4}}`)))
	o.apply(op("finalize", "message", "m", "status", "completed"))
	mustEqual(t, "a time that was there stays", o.payload("message/m"), `{"time":{"completed":4}}`)

	o.apply(op("begin", "message", "n", "payload", raw(`{"time":{"completed":4}}`)))
	o.apply(op("finalize", "message", "n", "status", "completed", "completed", 77, "payload", raw(` {"v":2, "time": 3} `), "schema_version", 2))
	mustEqual(t, "a time of another shape stays", o.payload("message/n"), `{"v":2, "time": 3}`)

	o.apply(op("begin", "message", "l", "payload", raw(`{"time":{"completed":4}}`)))
	for part, payload := range map[string]string{
		"as/it/is": `{"text":"a","time":{"start":5}}`, "grown": `{"text":"a","time":{}}`, "grown/closed": `{"text":"a","time":{"start":5,"end":6}}`,
		"call": `{"state":{"status":"running","time":{"start":5,"end":6}}}`, "waiting": `{"state":{"status":"pending","time":{}}}`,
	} {
		key := "part/l/" + strings.ReplaceAll(part, "/", ".")
		o.apply(op("put", "key", key, "payload", json.RawMessage(payload)))
		if strings.HasPrefix(part, "grown") {
			o.apply(op("appendText", "key", key, "offset", 1, "text", "b"))
		}
	}
	o.apply(op("finalize", "message", "l", "status", "completed", "completed", 5))
	for key, want := range map[string]string{
		"message/l": `{"time":{"completed":5}}`, "part/l/as.it.is": `{"text":"a","time":{"start":5}}`, "part/l/grown": `{"text":"ab","time":{}}`,
		"part/l/grown.closed": `{"text":"ab","time":{"start":5,"end":6}}`,
		"part/l/call":         `{"state":{"status":"error","time":{"start":5,"end":6},"error":"turn completed"}}`,
		"part/l/waiting":      `{"state":{"status":"error","time":{},"error":"turn completed"}}`,
	} {
		mustEqual(t, key, o.payload(key), want)
	}

	o.apply(op("begin", "message", "k", "payload", raw(`{}`)))
	o.apply(op("finalize", "message", "k", "status", "failed", "completed", 77))
	mustEqual(t, "a time that was given", o.payload("message/k"), `{"time":{"completed":77}}`)
	r := o.apply(op("finalize", "completed", 77, "status", "failed", "message", "k"))
	mustEqual(t, "the same in another order", r["unchanged"], any(true))
	o.refuse(ledger.Rejected, fault.TurnEnded, op("finalize", "message", "k", "status", "failed", "completed", 78))

	w.cfg.Limits.EventBytes = 200
	o.apply(op("begin", "message", "big", "payload", raw(`{}`)))
	o.refuse(ledger.Rejected, fault.TooLarge, op("finalize", "message", "big", "status", "completed", "payload", raw(`{"x":"%0200d"}`, 0)))
	o.apply(op("finalize", "message", "big", "status", "completed"))
}

// The end of a turn is one event with all that it changes: the message, then parts by
// key, each once; given ones as they are given, and at the time that is given.
func TestFinalizeWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{"b":1}`)))
	for _, part := range []string{`b","time":{"start":5},"text":"t`, `c`, `d`, `e`} {
		o.apply(op("put", "key", "part/m/"+part[:1], "payload", raw(`{"id":"%s"}`, part)))
	}
	o.apply(op("appendText", "key", "part/m/b", "offset", 1, "text", "x"))
	end := op("finalize", "message", "m", "status", "completed", "completed", 77, "payload", raw(`{"p":2}`), "schema_version", 4,
		"parts", raw(`[{"id":"e","payload":{"id":"e"},"schema_version":3},{"id":"a","payload":{"id":"a"},"schema_version":2},{"id":"d","payload":{"id":"d"}}]`))
	want := `{"status":"completed","entries":[{"key":"message/m","schema_version":4,"payload":"{\"p\":2,\"time\":{\"completed\":77}}","since":8},` +
		`{"key":"part/m/a","schema_version":2,"payload":"{\"id\":\"a\"}","since":8},` +
		`{"key":"part/m/b","schema_version":1,"payload":"{\"id\":\"b\",\"time\":{\"start\":5,\"end\":77},\"text\":\"tx\"}","since":3},` +
		`{"key":"part/m/e","schema_version":3,"payload":"{\"id\":\"e\"}","since":8}],"salt":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`
	w.cfg.Limits.EventBytes = len(want) - 1
	o.refuse(ledger.Rejected, fault.TooLarge, end)
	w.cfg.Limits.EventBytes++
	o.apply(end)
	mustEqual(t, "event", salts.ReplaceAllString(string(o.last().Payload), `"salt":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"`), want)
	entries, _ := w.store.State(o.session)
	for _, e := range entries { // as whoever puts the same again finds
		r := o.apply(op("put", "key", e.Key, "payload", json.RawMessage(e.Payload), "schema_version", e.Schema))
		mustEqual(t, e.Key+" as it is", r["unchanged"], any(true))
	}
	mustEqual(t, "entries", len(entries), 6)
}

func TestFinalizeRights(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	begin := func(m string) { o.apply(op("begin", "message", m, "payload", raw(`{}`))) }
	end := func(m, status string) anOp { return op("finalize", "message", m, "status", status) }
	writer := o.under(o.share([]string{"read", "append"}))
	moderator := o.under(o.share([]string{"read", "revoke"}))

	begin("a")
	writer.refuse(ledger.Rejected, fault.NotYourTurn, end("a", "completed"))
	writer.refuse(ledger.Rejected, fault.NotYourTurn, end("a", "aborted"))
	moderator.refuse(ledger.Denied, fault.MissingRight, end("a", "failed"))
	moderator.refuse(ledger.Denied, fault.MissingRight, op("put", "key", "session", "payload", raw(`{}`)))
	moderator.refuse(ledger.Denied, fault.MissingRight, op("put", "key", "session", "payload", raw(`{}`), "status", "aborted"))

	// Who may only revoke ends the turn and writes nothing of its own into it.
	o.apply(op("put", "key", "part/a/tool", "payload", raw(`{"state":{"status":"running"}}`)))
	limited := o.under(o.share([]string{"read", "append", "revoke"}, "methods", []string{"put"}))
	for name, content := range map[string]any{
		"payload": raw(`{"forged":true}`), "parts": raw(`[{"id":"new","payload":{"text":"forged"}}]`),
		"usage": raw(`{"input":1}`), "error": raw(`{"name":"x"}`), "completed": 1,
	} {
		forged := end("a", "aborted")
		forged.args = append(forged.args, op("", name, content).args...)
		moderator.refuse(ledger.Denied, fault.MissingRight, forged)
		limited.refuse(ledger.Denied, fault.MissingRight, forged)
	}
	moderator.apply(end("a", "aborted"))
	mustEqual(t, "state", o.turn("a"), session.Aborted)
	mustEqual(t, "message", o.payload("message/a"), fmt.Sprintf(`{"time":{"completed":%d}}`, o.w.store.Now))
	mustEqual(t, "tool", o.payload("part/a/tool"), `{"state":{"status":"error","error":"turn aborted"}}`)
	mustEqual(t, "forged part", o.payload("part/a/new"), "")

	// Revoke and append are rights of their own: neither takes read.
	begin("c")
	o.under(o.share([]string{"revoke"})).apply(end("c", "aborted"))
	mute := o.under(o.share([]string{"append"}))
	mute.apply(op("begin", "message", "d", "payload", raw(`{}`)))
	mute.apply(op("finalize", "message", "d", "status", "completed", "payload", raw(`{"mine":1}`)))

	// The owner too ends another's turn only as aborted.
	writer.apply(op("begin", "message", "b", "payload", raw(`{}`)))
	o.refuse(ledger.Rejected, fault.NotYourTurn, end("b", "completed"))
	o.apply(end("b", "aborted"))
	writer.refuse(ledger.Rejected, fault.TurnEnded, end("b", "completed"))
}

func TestLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	other := o.under(o.share([]string{"read", "append"}))
	second := int64(1000)
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	o.apply(op("begin", "message", "n", "payload", raw(`{}`)))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{}`)))
	cursor := func() uint64 { return w.store.Session(o.session).Cursor }

	// Renewed by any op, a refused one too; by no one else's.
	w.store.Now += 20 * second
	o.refuse(ledger.Rejected, fault.BadKey, op("put", "key", "ref/x", "payload", raw(`{}`)))
	w.store.Now += 20 * second
	other.apply(op("put", "key", "message/other", "payload", raw(`{}`)))
	if p := w.lapse(false, o.session); len(p.Sessions) != 0 {
		t.Fatalf("interrupted before the lease ran out: %+v", p)
	}
	at := cursor()
	w.store.Now += 10 * second
	p := w.lapse(false, o.session)
	if len(p.Sessions) != 1 || len(eventsOf(p.Sessions[0])) != 2 || cursor() != at+2 {
		t.Fatalf("lapse published %+v", p)
	}
	for i, m := range []string{"m", "n"} {
		ev := eventsOf(p.Sessions[0])[i]
		mustEqual(t, "state of "+m, o.turn(m), session.Interrupted)
		if ev.Method != session.MethodInterrupted || ev.Key != "message/"+m || ev.Op != "" || ev.Outbox != "" || ev.Ref != "" {
			t.Fatalf("event %+v", ev)
		}
	}
	if p := w.lapse(false, o.session, o.session); len(p.Sessions) != 0 {
		t.Fatalf("interrupted twice: %+v", p)
	}

	// Another stream's op leaves it so; its own next op takes it back. Each turn's
	// own event says so, before the op's, which goes on from there.
	other.apply(op("put", "key", "message/other", "payload", raw(`{"x":1}`)))
	mustEqual(t, "state", o.turn("m"), session.Interrupted)
	at = cursor()
	r := o.apply(op("appendText", "key", "part/m/p", "offset", 0, "text", "late"))
	mustEqual(t, "cursor of the op", r["cursor"].(float64), float64(at+3))
	mustEqual(t, "cursor", cursor(), at+3)
	mustEqual(t, "state of m", o.turn("m"), session.Streaming)
	mustEqual(t, "state of n", o.turn("n"), session.Streaming)
	for i, m := range []string{"m", "n"} {
		if ev := w.store.Events(o.session)[int(at)+i]; ev.Method != session.MethodResumed || ev.Key != "message/"+m || ev.Op != "" || ev.Outbox != "" || ev.Ref != "" {
			t.Fatalf("event %+v", ev)
		}
	}

	// So does an op that makes no event, or is refused, or is undone with its batch.
	for name, ops := range map[string][]anOp{
		"unchanged": {op("put", "key", "message/other", "payload", raw(`{"x":1}`))},
		"refused":   {put("ref/x")},
		"undone":    {put("message/undone"), put("ref/x")},
	} {
		w.store.Now += 31 * second
		w.lapse(false, o.session)
		at = cursor()
		w.commit(o.batch(true, ops...))
		if cursor() != at+2 || o.last().Method != session.MethodResumed || o.turn("m") != session.Streaming {
			t.Fatalf("%s: cursor %d after %d, %s", name, cursor(), at, o.last().Method)
		}
	}

	// On a start every streaming turn is interrupted; it can be ended from there.
	w.lapse(true, o.session)
	mustEqual(t, "state", o.turn("m"), session.Interrupted)
	o.apply(op("finalize", "message", "m", "status", "completed"))
	mustEqual(t, "state", o.turn("m"), session.Completed)
	mustEqual(t, "state of the other", o.turn("n"), session.Streaming)
}

// A lease is there from begin on, ends at its very moment, and is written anew once a
// tenth of it is over.
func TestLeaseBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	lease := func() int64 {
		_, turns := w.store.State(o.session)
		return turns[0].Lease - w.store.Now
	}
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	mustEqual(t, "lease", lease(), 30_000)
	for _, step := range []struct{ later, left int64 }{{2999, 30_000 - 2999}, {1, 30_000}, {3001, 30_000}} {
		w.store.Now += step.later
		o.apply(put("message/other"))
		mustEqual(t, "lease", lease(), step.left)
	}
	w.store.Now += 29_999
	w.lapse(false, o.session)
	mustEqual(t, "a moment before its end", o.turn("m"), session.Streaming)
	w.store.Now++
	p := w.lapse(false, o.session)
	mustEqual(t, "at its end", o.turn("m"), session.Interrupted)
	mustEqual(t, "why", string(eventsOf(p.Sessions[0])[0].Payload), `{"reason":"its lease lapsed"}`)
	mustEqual(t, "schema", eventsOf(p.Sessions[0])[0].Schema, 1)
	o.apply(put("message/other"))
	events := w.store.Events(o.session)
	resumed := events[len(events)-1]
	mustEqual(t, "resumed", fmt.Sprint(resumed.Method, string(resumed.Payload), resumed.Schema), "resumed{}1")
	mustEqual(t, "lease", lease(), 30_000)
	p = w.lapse(true, o.session)
	mustEqual(t, "why, on a start", string(eventsOf(p.Sessions[0])[0].Payload), `{"reason":"the server started"}`)

	// What was taken back has changed the row's time no more than its cursor.
	before := w.store.Session(o.session)
	w.store.Now += 7
	w.commit(o.batch(true, op("put", "key", "message/x", "payload", raw(`{}`)), put("ref/x")))
	after := w.store.Session(o.session)
	mustEqual(t, "events", after.Cursor, before.Cursor+1) // resumed
	mustEqual(t, "updated", after.Updated, w.store.Now)
	w.store.Now += 7
	w.commit(o.batch(true, op("put", "key", "message/x", "payload", raw(`{}`)), put("ref/x")))
	mustEqual(t, "updated by nothing", *w.store.Session(o.session), *after)
}

// Whoever sees a turn sees that it goes on, whatever its stream goes on with.
func TestAReaderOfOneMessageSeesItResumed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	reader := o.share([]string{"read"}, "message", "m")
	w.lapse(true, o.session)
	o.apply(op("put", "key", "session", "payload", raw(`{"a":1}`)))
	f := session.NewFold(o.session)
	for _, e := range shownTo(w.store.Grant(reader), w.store.Events(o.session), new(session.HashKey)) {
		if err := f.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	mustEqual(t, "the turn as it is", o.turn("m"), session.Streaming)
	mustEqual(t, "the turn as it is seen", f.Turns()[0].Status, session.Streaming)
}

// A stream that expects the session where its own op has left it does so too when
// that op took an interruption back.
func TestResumingDoesNotBreakExpectations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	w.lapse(true, o.session)
	at := w.store.Session(o.session).Cursor
	first := o.batch(false, put("message/a").expecting(at))
	next := put("message/b")
	next.expect = ledger.Expect{Set: true, Ref: &ledger.Ref{Op: first.Batch.Ops[0].OpID, Path: "cursor"}}
	answers, _ := w.commit(first, o.batch(false, next))
	for i, a := range answers {
		if out := a.Outcomes[0]; out.Status != ledger.Applied {
			t.Errorf("op %d: %s %s", i+1, out.Status, out.Message)
		}
	}
}

// What a dead ref sends is recorded as denied and moves nothing, leases neither.
func TestDeniedOpsDoNotResume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	ref := o.share([]string{"read", "append"})
	g := o.under(ref)
	g.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	o.apply(op("revoke", "ref", ref))
	w.store.Now += time.Minute.Milliseconds()
	w.lapse(false, o.session)
	g.refuse(ledger.Denied, fault.Revoked, op("put", "key", "message/x", "payload", raw(`{}`)))
	out := g.try(op("void"))
	mustEqual(t, "a dead ref's void", out[0].Status, ledger.Denied)
	mustEqual(t, "state", o.turn("m"), session.Interrupted)
	o.apply(op("finalize", "message", "m", "status", "aborted"))
}

// The cost of a delta is its own: flat from the first to the last.
func TestDeltaCostIsFlat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"%0100000d"}`, 0)))
	length := 100_000
	var loads, read, written int
	for i := range 300 {
		before := [...]int{w.store.Loads, w.store.BytesRead, w.store.BytesWritten}
		sub := o.batch(false, op("appendText", "key", "part/m/p", "offset", length, "text", "0123456789"))
		o.acked = o.seq
		err := w.store.Update(context.Background(), func(tx session.Tx) error {
			answers, _, err := decide.Commit(context.Background(), tx, []decide.Submission{sub}, w.cfg)
			if err == nil && answers[0].Outcomes[0].Status != ledger.Applied {
				t.Errorf("delta %d: %s", i, answers[0].Outcomes[0].Message)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		length += 10
		loads, read, written = w.store.Loads-before[0], w.store.BytesRead-before[1], w.store.BytesWritten-before[2]
		if loads != 1 || read != 0 || written > 60 {
			t.Fatalf("delta %d took %d loads, %d bytes read, %d written", i, loads, read, written)
		}
	}
	mustEqual(t, "records kept", w.store.Records(o.session, o.outbox), 1)
	w.check(o.session)
}

// What ends a turn repeats what the message and its parts hold. A ref that shows
// the log from a later cursor on must not get it said again that way.
func TestTheEndOfATurnShowsNothingFromBeforeTheFirstCursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	set := func(key, payload string) anOp { return op("put", "key", key, "payload", json.RawMessage(payload)) }
	begin := func(m string) anOp { return op("begin", "message", m, "payload", raw(`{}`)) }
	end := func(m, status string, more ...any) anOp {
		return op("finalize", append([]any{"message", m, "status", status}, more...)...)
	}
	delta := func(key string, offset int) anOp {
		return op("appendText", "key", key, "offset", offset, "text", "!")
	}
	for _, x := range []anOp{
		op("begin", "message", "a", "payload", raw(`{"text":"hidden"}`)),
		set("part/b/p", `{"text":"hidden"}`), set("part/b/q", `{"hidden":1,"state":{"status":"running"}}`),
	} {
		o.apply(x)
	}
	from := w.store.Session(o.session).Cursor + 1
	guest := o.under(o.share([]string{"read", "append", "revoke"}, "from", from))
	guest.refuse(ledger.Denied, fault.MissingRight, end("a", "aborted"))
	guest.apply(begin("b"))
	guest.refuse(ledger.Denied, fault.MissingRight, delta("part/b/p", 6))
	guest.refuse(ledger.Denied, fault.MissingRight, end("b", "completed"))
	first := o.under(o.share([]string{"append"}, "from", o.apply(set("part/f/p", `{"text":""}`))["cursor"]))
	first.apply(begin("f"))
	first.apply(delta("part/f/p", 0)) // what is at the first cursor is shown
	guest.apply(set("part/b/r", `{"text":""}`))
	guest.apply(delta("part/b/r", 0))
	guest.apply(end("b", "completed", "parts", raw(`[{"id":"q","payload":{"state":{"status":"completed"}}}]`)))
	for _, e := range w.store.Events(o.session) {
		if e.Cursor >= from && strings.Contains(string(e.Payload), "hidden") {
			t.Errorf("event %d (%s) shows %s", e.Cursor, e.Method, e.Payload)
		}
	}
	o.apply(end("a", "aborted")) // whoever sees it may
}
