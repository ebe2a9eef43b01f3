package decide_test

// What few bytes of arguments may move: forks and ends of turns read and write
// what is there, and that is bounded for one submission and for a group.

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
)

// fork is a batch that forks o's session, by an outbox of its own.
func (o *writer) fork(args ...any) decide.Submission {
	f := o.w.newWriter()
	f.with = []string{o.ref}
	return f.batch(false, op("fork", append([]any{"source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref)}, args...)...))
}

func TestForkOfALargeSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.EventBytes = 1 << 10
	o := w.create()
	for i := range 20 {
		o.apply(op("put", "key", fmt.Sprintf("message/m%d", i), "payload", raw(`{"x":%q}`, strings.Repeat("x", 300))))
	}
	for name, sub := range map[string]decide.Submission{"now": o.fork(), "earlier": o.fork("at", 20)} {
		before := w.store.BytesRead
		answers, _ := w.commit(sub)
		if err := answers[0].Err; err == nil || err.Code != fault.NotYetKnown || answers[0].Fork == nil { // copied in pieces
			t.Errorf("%s: %+v", name, answers[0])
		}
		mustEqual(t, "bytes read", w.store.BytesRead-before, 0) // given up, not gathered
	}
	answers, _ := w.commit(o.fork("at", 3))
	mustEqual(t, "a small one", answers[0].Outcomes[0].Status, ledger.Applied)
}

func TestFinalizeOfALargeTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.EventBytes = 1 << 10
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	for i := range 20 {
		o.apply(op("put", "key", fmt.Sprintf("part/m/p%d", i), "payload", raw(`{"x":%q}`, strings.Repeat("x", 300))))
	}
	o.refuse(ledger.Rejected, fault.TooLarge, op("finalize", "message", "m", "status", "completed"))
	for i := range 15 {
		o.apply(op("remove", "key", fmt.Sprintf("part/m/p%d", i)))
	}
	o.apply(op("finalize", "message", "m", "status", "completed"))
}

// One finalize gives only so many parts: each is an entry that is written while
// the session is locked.
func TestTerminalPartsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	o.apply(op("put", "key", "part/m/00000001", "payload", raw(`{"old":true}`)))
	end := func(n int) anOp {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = fmt.Sprintf(`{"id":"%08d","payload":{}}`, i)
		}
		return op("finalize", "message", "m", "status", "completed", "parts", raw("[%s]", strings.Join(parts, ",")))
	}
	o.refuse(ledger.Rejected, fault.TooLarge, end(session.MaxTerminalParts+1))
	o.apply(end(session.MaxTerminalParts))
	mustEqual(t, "a part that was there and was given", o.payload("part/m/00000001"), `{}`)
	entries, _ := w.store.State(o.session)
	mustEqual(t, "entries", len(entries), 1+session.MaxTerminalParts)
}

// A list is read up to the first element that is none or one too many: what is
// behind it costs nothing. Not parallel, since it counts what is allocated.
func TestListsAreReadUpToTheirBound(t *testing.T) {
	const size = 1 << 18 // bytes; each element would take 120
	w := newWorld(t)
	o := w.create()
	long := func(element string) json.RawMessage {
		return raw("[%s%s]", strings.Repeat(element+",", size/(len(element)+1)-2), element)
	}
	for name, x := range map[string]anOp{
		"rights that are none":  op("share", "ref", o.ref, "hash", sha(o.ref), "rights", long("0")),
		"too many rights":       op("share", "ref", o.ref, "hash", sha(o.ref), "rights", long(`""`)),
		"too many methods":      op("share", "ref", o.ref, "hash", sha(o.ref), "rights", []string{"append"}, "methods", long(`"put"`)),
		"parts that are none":   op("finalize", "message", "m", "status", "completed", "parts", long("0")),
		"parts that are empty":  op("finalize", "message", "m", "status", "completed", "parts", long("{}")),
		"the same part":         op("finalize", "message", "m", "status", "completed", "parts", long(`{"id":"p","payload":{}}`)),
		"parts without an id":   op("finalize", "message", "m", "status", "completed", "parts", long(`{"payload":{}}`)),
		"parts of another kind": op("finalize", "message", "m", "status", "completed", "parts", long(`{"id":"p","payload":[]}`)),
	} {
		ops := o.batch(false, x).Batch.Ops
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := opargs.CheckOps(ops, w.cfg.Limits)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s pass", name)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 3*size { // the text itself is copied
			t.Errorf("%s: %d KiB allocated", name, got>>10)
		}
	}
}

// What is too much is found out once a batch, however often it asks, and the
// batch's other ops are none the worse for it.
func TestTooMuchIsCheapToRepeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.EventBytes = 1 << 10
	o := w.create()
	text := raw(`{"text":%q}`, strings.Repeat("x", 300))
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	for i := range 20 {
		o.apply(op("put", "key", fmt.Sprintf("part/m/p%d", i), "payload", text))
	}
	o.apply(op("put", "key", "message/late", "payload", raw(`{}`)))
	var again []anOp
	for range 400 {
		again = append(again, op("finalize", "message", "m", "status", "completed"))
	}
	forker := o.fork()
	fork := forker.Batch.Ops[0]
	for i := range 400 {
		fork.OpID, fork.Seq = ulid.Make().String(), uint64(i+2)
		forker.Batch.Ops = append(forker.Batch.Ops, fork)
	}
	after := op("put", "key", "message/new", "payload", raw(`{}`))
	for name, sub := range map[string]decide.Submission{"finalize": o.batch(false, append(again, after)...), "fork": forker} {
		before := w.store.Loads
		answers, _ := w.commit(sub)
		for i, out := range answers[0].Outcomes {
			switch {
			case name == "finalize" && i == len(again):
				mustEqual(t, "the put behind them", out.Status, ledger.Applied)
			case out.Status != ledger.Rejected || out.Reason != fault.TooLarge:
				t.Fatalf("%s %d: %+v", name, i, out)
			}
		}
		if n := w.store.Loads - before; n > 4 {
			t.Errorf("%s: %d loads", name, n)
		}
	}
	// What it read counts for the group, as what is read within the limit does.
	ack := decide.Submission{Batch: ledger.Batch{Session: o.session, Outbox: o.outbox, Incarnation: 1, AckedThrough: 1}, Ack: true}
	answers, _ := w.commit(o.batch(false, again[0]), o.batch(false, put("message/m2")), ack)
	if answers[2].Err != nil {
		t.Errorf("an acknowledgement, which moves nothing: %+v", answers[2])
	}
	if err := answers[1].Err; err == nil || err.Code != fault.Overloaded {
		t.Errorf("behind it: %+v", answers[1])
	}
}

// The text of a part that has grown stands behind it in the log, among all that
// came since: to walk over that is not free.
func TestOldDeltasAreNotFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.EventBytes = 1 << 10
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":""}`)))
	o.apply(op("appendText", "key", "part/m/p", "offset", 0, "text", "grown"))
	for i := range 100 {
		o.apply(op("put", "key", "message/other", "payload", raw(`{"n":%d}`, i)))
	}
	o.refuse(ledger.Rejected, fault.TooLarge, op("finalize", "message", "m", "status", "completed"))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"grown"}`))) // the way out, though it looks equal
	o.apply(op("finalize", "message", "m", "status", "completed"))
}

// Many forks of one session in one group: those beyond the bound come again.
func TestForksInAGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.EventBytes = 1 << 10
	o := w.create()
	o.apply(op("put", "key", "message/m", "payload", raw(`{"x":%q}`, strings.Repeat("x", 600))))
	var subs []decide.Submission
	for range 20 {
		subs = append(subs, o.fork())
	}
	rounds := 0
	for ; len(subs) > 0 && rounds < 10; rounds++ {
		answers, _ := w.commit(subs...)
		var left []decide.Submission
		for i, a := range answers {
			switch {
			case a.Err == nil:
				mustEqual(t, "outcome", a.Outcomes[0].Status, ledger.Applied)
			case a.Err.Code == fault.Overloaded:
				left = append(left, subs[i])
			default:
				t.Fatal(a.Err)
			}
		}
		subs = left
	}
	if len(subs) > 0 || rounds < 3 {
		t.Fatalf("%d left after %d rounds", len(subs), rounds)
	}
}
