package session_test

// What few bytes of arguments may move: forks and ends of turns read and write
// what is there, and that is bounded for one submission and for a group.

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// fork is a batch that forks o's session, by an outbox of its own.
func (o *writer) fork(args ...any) session.Submission {
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
	for name, sub := range map[string]session.Submission{"now": o.fork(), "earlier": o.fork("at", 20)} {
		before := w.store.Read
		answers, _ := w.commit(sub)
		if out := answers[0].Outcomes[0]; out.Status != ledger.Rejected || out.Reason != fault.TooLarge {
			t.Errorf("%s: %+v", name, out)
		}
		mustEqual(t, "bytes read", w.store.Read-before, 0) // given up, not gathered
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

// Many forks of one session in one group: those beyond the bound come again.
func TestForksInAGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.EventBytes = 1 << 10
	o := w.create()
	o.apply(op("put", "key", "message/m", "payload", raw(`{"x":%q}`, strings.Repeat("x", 600))))
	var subs []session.Submission
	for range 20 {
		subs = append(subs, o.fork())
	}
	rounds := 0
	for ; len(subs) > 0 && rounds < 10; rounds++ {
		answers, _ := w.commit(subs...)
		var left []session.Submission
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

// Every event of a stream looks at its open turns, and every op renews them: so
// there may only be so many.
func TestOpenTurnsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	begin := func(i int) anOp { return op("begin", "message", fmt.Sprintf("m%d", i), "payload", raw(`{}`)) }
	var ops []anOp
	for i := range session.MaxOpenTurns {
		ops = append(ops, begin(i))
	}
	for _, out := range o.try(ops...) {
		mustEqual(t, "begun", out.Status, ledger.Applied)
	}
	o.refuse(ledger.Rejected, fault.TooLarge, begin(session.MaxOpenTurns))
	other := o.under(o.share(all))
	other.apply(begin(session.MaxOpenTurns)) // its own are counted, and no other's
	o.apply(op("finalize", "message", "m0", "status", "completed"))
	o.apply(begin(session.MaxOpenTurns + 1))
}
