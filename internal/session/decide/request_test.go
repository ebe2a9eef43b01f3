package decide_test

// Requests: their states, who may do what to them, and what ends them without an op.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

func ask(id, kind string, more ...any) anOp {
	return op("ask", append([]any{"request", id, "kind", kind}, more...)...)
}

func claimRequest(id string, more ...any) anOp {
	return op("claim", append([]any{"request", id, "lease", lease}, more...)...)
}

func answer(id string, more ...any) anOp {
	return op("answer", append([]any{"request", id}, more...)...)
}

func withdraw(id string) anOp { return op("withdraw", "request", id) }

// stateOf returns a request's state, "" if there is none, and what else is said of it.
func (o *writer) stateOf(id string) (state string, said map[string]any) {
	o.w.Helper()
	if o.entryOf(session.RequestKey(id)) == nil {
		return "", nil
	}
	e := o.entryOf(session.RequestStateKey(id))
	if e == nil {
		return "open", nil
	}
	if err := json.Unmarshal(e.Payload, &said); err != nil {
		o.w.Fatalf("%s: %v", e.Payload, err)
	}
	return said["state"].(string), said
}

// is checks a request's state, and that it has a row as long as it is open or claimed.
func (o *writer) is(id, want string) {
	o.w.Helper()
	state, _ := o.stateOf(id)
	row := o.w.store.Requests(o.session)[id] != nil
	if unended := state == "open" || state == "claimed"; state != want || row != unended {
		o.w.Fatalf("request %s is %q, and has a row: %v; want it %s", id, state, row, want)
	}
}

// What was asked stays as it is, byte for byte, and says who asked, and the digest of what it asks.
func TestWhatIsAsked(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create("actor", "anna")
	payload := `{ "command" : "rm -rf \/" , "n":null}`
	o.apply(ask("r1", "permission", "payload", raw("%s", payload), "choices", raw(`[{"id":"yes","label":"Yes"}, {"id":"no"}]`), "expires_in", 60_000))
	want := fmt.Sprintf(`{"kind":"permission","digest":%q,"expires_at":%d,"by":{"ref":%q,"actor":"anna"},"at":%d,"choices":[{"id":"yes","label":"Yes"}, {"id":"no"}],"payload":%s}`,
		session.SumOf([]byte(payload)), o.w.store.Now+60_000, o.ref, o.w.store.Now, payload)
	mustEqual(t, "what was asked", string(o.entryOf("request/r1").Payload), want)
	mustEqual(t, "its event", o.last().Method+" "+o.last().Key, "put request/r1")
	o.is("r1", "open")
	o.apply(ask("r2", "todo"))
	mustEqual(t, "asked without a payload", strings.HasSuffix(string(o.entryOf("request/r2").Payload), `,"payload":{}}`), true)

	// The id is the idempotency key.
	same := ask("r1", "permission", "payload", raw("%s", payload), "choices", raw(`[{"id":"yes","label":"Yes"}, {"id":"no"}]`))
	before := o.last().Cursor
	mustEqual(t, "asked again", o.apply(same)["unchanged"], true)
	mustEqual(t, "by the same", o.last().Cursor, before)
	o.refuse(ledger.Rejected, fault.AlreadyExists, ask("r1", "permission", "payload", raw(`{}`)))
	o.refuse(ledger.Rejected, fault.AlreadyExists, ask("r1", "question", "payload", raw("%s", payload)))
	other := o.under(o.share([]string{"read", "ask"}))
	other.refuse(ledger.Rejected, fault.AlreadyExists, same)
	o.apply(answer("r1", "choice", "no", "shown", session.SumOf([]byte(payload)).String()))
	mustEqual(t, "asked again after the answer", o.apply(same)["unchanged"], true)
	o.is("r1", "answered")
}

// The first answer counts, whoever is second is told which that was, and nothing is said to be open that has ended.
func TestTheFirstAnswerCounts(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	digest := session.SumOf([]byte(`{}`)).String()
	one, two := o.under(o.share([]string{"read", "answer"}, "actor", "owner/one")), o.under(o.share([]string{"read", "answer"}))
	o.apply(ask("r", "permission", "choices", raw(`[{"id":"yes"},{"id":"no"}]`)))
	one.refuse(ledger.Rejected, fault.BadArgument, answer("r", "choice", "yes"))
	one.refuse(ledger.Conflict, fault.Conflict, answer("r", "choice", "yes", "shown", strings.Repeat("0", 64)))
	one.refuse(ledger.Rejected, fault.BadArgument, answer("r", "choice", "maybe", "shown", digest))
	one.refuse(ledger.Rejected, fault.BadArgument, answer("r", "shown", digest))
	o.is("r", "open")
	one.apply(answer("r", "choice", "yes", "shown", digest, "payload", raw(`{"why": null}`)))
	at := o.last().Cursor
	mustEqual(t, "the answer", string(o.last().Payload), fmt.Sprintf(`{"state":"answered","choice":"yes","by":{"ref":%q,"actor":"owner/one"},"at":%d,"payload":{"why": null}}`, one.ref, o.w.store.Now))
	for _, who := range []*writer{one, two, o} {
		who.conflicts(at, answer("r", "choice", "no", "shown", digest))
		who.conflicts(at, claimRequest("r"))
		who.conflicts(at, op("release", "request", "r", "claim", at))
	}
	o.conflicts(at, withdraw("r"))
	o.is("r", "answered")
	o.refuse(ledger.Rejected, fault.NotFound, answer("none"))

	o.apply(ask("q", "question"))
	two.refuse(ledger.Rejected, fault.BadArgument, answer("q", "choice", "x"))
	two.apply(answer("q", "payload", raw(`"blue"`)))
	o.is("q", "answered")
}

// The table of states and ops: what each op does to a request in each state, of a question and of a prompt.
func TestRequestStates(t *testing.T) {
	t.Parallel()
	const yes, conflict, ended, none = "", "conflict", "request_ended", "not_found"
	states := []string{"none", "open", "claimed by me", "claimed by another", "a lapsed claim", "my lapsed claim", "answered", "withdrawn", "expired", "unknown"}
	table := []struct {
		op, after string
		want      []string // in each state: of a question, then of a prompt if that differs
	}{
		{"claim", "claimed", []string{none, yes, yes, conflict, yes + "/" + conflict, yes, conflict, ended, ended, ended}},
		{"release", "open", []string{none, conflict, yes, conflict, conflict, conflict + "/" + yes, conflict, ended, ended, ended}},
		{"answer", "answered", []string{none, yes, conflict, conflict, yes + "/" + conflict, yes + "/" + conflict, conflict, ended, ended, ended}},
		{"answer by claim", "answered", []string{none, conflict, yes, conflict, conflict, conflict + "/" + yes, conflict, ended, ended, ended}},
		{"end as unknown", "unknown", []string{none, conflict, yes, conflict, conflict, conflict + "/" + yes, conflict, ended, ended, ended}},
		{"withdraw", "withdrawn/unknown", []string{none, yes, conflict, conflict, yes, yes, conflict, ended, ended, ended}},
	}
	pick := func(both, kind string) string {
		question, prompt, two := strings.Cut(both, "/")
		if two && kind == "prompt" {
			return prompt
		}
		return question
	}
	for _, kind := range []string{"question", "prompt"} {
		for _, row := range table {
			for i, state := range states {
				o := newWorld(t).create()
				me := o.under(o.share([]string{"read", "ask", "answer"}))
				claim := max(o.madeSo(kind, state, me), 1)
				before := o.last().Cursor
				out := me.outcome(map[string]anOp{
					"claim": claimRequest("r"), "release": op("release", "request", "r", "claim", claim), "answer": answer("r"),
					"answer by claim": answer("r", "claim", claim), "end as unknown": answer("r", "claim", claim, "state", "unknown"), "withdraw": withdraw("r"),
				}[row.op])
				got := ""
				if out.Status != ledger.Applied {
					got = out.Reason.String()
				}
				if want := pick(row.want[i], kind); got != want {
					t.Errorf("%s, %s of a %s: %q (%s), want %q", row.op, state, kind, got, out.Message, want)
				}
				switch {
				case got != yes && o.last().Cursor != before:
					t.Errorf("%s, %s of a %s: refused, and there is an event", row.op, state, kind)
				case got == yes && (row.op != "withdraw" || strings.Contains(state, "lapsed")):
					o.is("r", pick(row.after, kind))
				}
			}
		}
	}
}

// outcome commits an op and returns its outcome.
func (o *writer) outcome(x anOp) ledger.Outcome {
	o.w.Helper()
	answers, _ := o.w.commit(o.batch(false, x))
	if answers[0].Err != nil {
		o.w.Fatalf("%s: %v", x.method, answers[0].Err)
	}
	return answers[0].Outcomes[0]
}

// madeSo has me ask r, brings it into a state, and returns the cursor of its claim.
func (o *writer) madeSo(kind, state string, me *writer) (claim uint64) {
	o.w.Helper()
	if state == "none" {
		return 0
	}
	me.apply(ask("r", kind, "expires_in", 3*lease))
	other := o.under(o.ref)
	claims := func(who *writer) uint64 {
		c, _ := who.apply(claimRequest("r"))["claim"].(float64)
		return uint64(c)
	}
	switch state {
	case "claimed by me":
		claim = claims(me)
	case "claimed by another":
		claim = claims(other)
	case "a lapsed claim":
		claim = claims(other)
		o.w.store.Now += lease
	case "my lapsed claim":
		claim = claims(me)
		o.w.store.Now += lease
	case "answered":
		other.apply(answer("r"))
	case "withdrawn":
		other.apply(withdraw("r"))
	case "expired":
		o.w.store.Now += 3 * lease
	case "unknown":
		other.apply(answer("r", "claim", claims(other), "state", "unknown"))
	}
	return claim
}

// Each op needs its right, for the kind; append gives none of them, and a ref that is narrowed by methods gains none.
func TestRequestRights(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		rights []string
		limits []any
		may    map[string]string // op → kinds
	}{
		{[]string{"read", "append", "share", "revoke", "revert", "compact", "schema"}, nil, nil},
		{[]string{"read", "append"}, []any{"methods", []string{"put", "claim", "release"}}, nil},
		{[]string{"ask"}, nil, map[string]string{"ask": "question prompt"}},
		{[]string{"answer"}, nil, map[string]string{"claim": "question prompt", "answer": "question prompt", "release": "question prompt"}},
		{[]string{"ask", "answer"}, []any{"ask", []string{"prompt"}, "answer", []string{"question"}}, map[string]string{"ask": "prompt", "claim": "question", "answer": "question", "release": "question prompt"}},
		{[]string{"ask", "answer", "append"}, []any{"write_keys", []string{"todo/"}}, nil},
		{[]string{"ask", "answer", "append"}, []any{"write_keys", []string{"request/"}}, map[string]string{"ask": "question prompt", "claim": "question prompt", "answer": "question prompt", "release": "question prompt"}},
		{[]string{"break"}, nil, map[string]string{"release": "question prompt"}},
	} {
		for _, kind := range []string{"question", "prompt"} {
			for name, do := range map[string]anOp{"ask": ask("new", kind), "claim": claimRequest("r"), "answer": answer("r"), "release": op("release", "request", "r", "claim", 1)} {
				o := newWorld(t).create()
				o.apply(ask("r", kind))
				out := o.under(o.share(x.rights, x.limits...)).outcome(do)
				if may := slices.Contains(strings.Fields(x.may[name]), kind); may == (out.Reason == fault.MissingRight) {
					t.Errorf("%s of a %s under %v %v: %v %v", name, kind, x.rights, x.limits, out.Reason, out.Message)
				}
			}
		}
	}

	// A ref gives on at most what it has.
	o := newWorld(t).create()
	some := o.under(o.share([]string{"read", "share", "ask", "answer"}, "ask", []string{"prompt", "stop"}))
	id, _ := newRef(o.session)
	share := func(rights []string, more ...any) anOp {
		return op("share", append([]any{"ref", id, "hash", sha(id), "rights", rights}, more...)...)
	}
	some.refuse(ledger.Rejected, fault.Widening, share([]string{"ask"}, "ask", []string{"prompt", "question"}))
	for _, bad := range []anOp{share([]string{"read"}, "ask", []string{"prompt"}), share([]string{"ask"}, "ask", []string{}), share([]string{"answer"}, "answer", []string{"No kind"})} {
		some.refuse(ledger.Rejected, fault.BadArgument, bad)
	}
	some.apply(share([]string{"ask", "answer"}, "answer", []string{"permission"}))
	g := o.w.store.Grant(id)
	mustEqual(t, "it has its maker's kinds", fmt.Sprint(g.AskKinds, g.AnswerKinds), "[prompt stop] [permission]")
	live, err := capability.Attenuate(g, capability.MintRequest{Rights: capability.Ask, AskKinds: []string{"stop"}}, 1, 1)
	mustEqual(t, "a live capability is narrower", fmt.Sprint(live.AskKinds, live.AnswerKinds, err), "[stop] [] <nil>")
	_, err = capability.Attenuate(g, capability.MintRequest{Rights: capability.Ask, AskKinds: []string{"other"}}, 1, 1)
	mustEqual(t, "and not wider", err.Code, fault.Widening)
}

// What ends a request without an op of its own: an event says so, and before the cut where there is one.
func TestWhatEndsRequests(t *testing.T) {
	t.Parallel()
	type rig struct {
		o, guest, below *writer
	}
	begin := func(o *writer) {
		o.apply(op("put", "key", "message/first", "payload", raw(`{}`)))
		o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	}
	for name, x := range map[string]struct {
		do   func(r rig)
		left string // what is open afterwards, of those below
		why  string
	}{
		"a revoke of the ref":                {func(r rig) { r.o.apply(op("revoke", "ref", r.guest.ref)) }, "owners claimed stop", "the ref that it was asked under was revoked"},
		"a revoke of a ref made from it":     {func(r rig) { r.o.apply(op("revoke", "ref", r.below.ref)) }, "claimed guests owners stop", "the ref that it was asked under was revoked"},
		"another epoch":                      {func(r rig) { r.o.apply(op("bumpEpoch")) }, "owners claimed stop", "the ref that it was asked under was revoked"},
		"a rotation of the owner's ref":      {func(r rig) { r.o.rotate(r.o.ref) }, "below claimed guests", "the ref that it was asked under was replaced"},
		"a revert of what it is about":       {func(r rig) { r.o.apply(op("revert", "to", "message/m")) }, "below claimed guests owners", "what it is about was reverted"},
		"a revert of the end of its turn":    {func(r rig) { r.o.apply(op("revert", "to", "message/first")) }, "below claimed guests owners", "what it is about was reverted"},
		"the end of its turn":                {func(r rig) { r.o.apply(op("finalize", "message", "m", "status", "completed")) }, "below claimed guests owners", "the turn that it is about has ended"},
		"its purge":                          {func(r rig) { r.o.apply(op("purge", "key", "request/owners")) }, "below claimed guests stop", "what it asked was purged"},
		"nothing: the purge of another key":  {func(r rig) { r.o.apply(op("purge", "key", "message/first")) }, "below claimed guests owners stop", ""},
		"its expiry":                         {func(r rig) { r.o.w.store.Now += 60_000; r.o.w.lapse(false, r.o.session) }, "below claimed owners stop", ""},
		"its ref's expiry":                   {func(r rig) { r.o.w.store.Now += 90_000; r.o.w.lapse(false, r.o.session) }, "claimed owners stop", ""},
		"nothing: a lapse before the expiry": {func(r rig) { r.o.w.store.Now += 59_999; r.o.w.lapse(false, r.o.session) }, "below claimed guests owners stop", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newWorld(t).create()
			begin(o)
			guest := o.under(o.share([]string{"read", "share", "ask", "answer"}))
			below := guest.under(guest.share([]string{"ask"}, "expires_in", 90_000))
			guest.apply(ask("guests", "prompt", "expires_in", 60_000))
			guest.apply(ask("claimed", "prompt"))
			below.apply(ask("below", "question"))
			o.apply(ask("owners", "prompt", "message", "m"))
			o.apply(ask("stop", "stop", "message", "m"))
			o.apply(op("claim", "request", "claimed", "lease", 3_600_000))
			if name == "a revert of what it is about" || strings.HasPrefix(name, "a revert of the end") {
				o.apply(withdraw("owners"))
				o.apply(ask("again", "prompt"))
			}
			x.do(rig{o, guest, below})
			var left []string
			for id := range o.w.store.Requests(o.session) {
				if id == "again" {
					id = "owners"
				}
				left = append(left, id)
			}
			slices.Sort(left)
			want := strings.Fields(x.left)
			slices.Sort(want)
			mustEqual(t, "left", strings.Join(left, " "), strings.Join(want, " "))
			cut := uint64(0)
			for _, e := range o.w.store.Events(o.session) {
				if e.Method == "revoke" || e.Method == "bumpEpoch" {
					cut = e.Cursor
				}
			}
			for _, id := range []string{"guests", "below", "owners", "stop"} {
				state, said := o.stateOf(id)
				if slices.Contains(want, id) || state == "" || state == "withdrawn" && said["reason"] == nil {
					continue
				}
				why := x.why
				if strings.HasPrefix(name, "a revert") && id == "stop" {
					why = "the turn that it is about has ended" // a revert ends it first
				}
				if x.why == "" {
					mustEqual(t, id, state, "expired")
				} else {
					mustEqual(t, id, state+": "+fmt.Sprint(said["reason"]), "withdrawn: "+why)
				}
				if at := o.entryOf(session.RequestStateKey(id)).Cursor; cut != 0 && at >= cut {
					t.Errorf("%s ends at %d, after the cut %d", id, at, cut)
				}
			}
			if o.w.store.Session(o.session).Life == session.Live {
				o.refuseAny(withdraw("none"))
			}
		})
	}
}

// refuseAny checks that an op does not apply.
func (o *writer) refuseAny(x anOp) {
	o.w.Helper()
	if out := o.outcome(x); out.Status == ledger.Applied {
		o.w.Fatalf("%s applied", x.method)
	}
}

// rotate replaces the owner's ref.
func (o *writer) rotate(old string) {
	o.w.Helper()
	id, hash := newRef(o.session)
	sub := o.batch(false)
	sub.Batch.Ops, sub.Direct = nil, &decide.Direct{Rotate: &decide.Rotation{ID: id, Hash: hash, Old: old}}
	answers, _ := o.w.commit(sub)
	if answers[0].Err != nil {
		o.w.Fatalf("rotate: %v", answers[0].Err)
	}
	o.ref = id
}

// The claim of a question opens it again when its lease is over; that of a prompt stays.
func TestClaimsOfRequestsLapse(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.apply(ask("q", "question"))
	o.apply(ask("p", "prompt"))
	o.apply(claimRequest("q", "worker", "w"))
	at := o.last().Cursor
	mustEqual(t, "the claim", string(o.last().Payload), fmt.Sprintf(`{"state":"claimed","claim":%d,"outbox":%q,"worker":"w","until":%d,"by":{"ref":%q,"actor":"owner"},"at":%d}`, at, o.outbox, o.w.store.Now+lease, o.ref, o.w.store.Now))
	o.apply(claimRequest("p"))
	o.w.store.Now += lease - 1
	renewed := o.apply(claimRequest("q", "worker", "w"))["claim"]
	mustEqual(t, "renewed", renewed, any(float64(at)))
	o.conflicts(at, claimRequest("q"))
	o.w.store.Now += lease
	o.w.lapse(false, o.session)
	o.is("q", "open")
	o.is("p", "claimed")
	before := o.last().Cursor
	o.w.lapse(false, o.session)
	mustEqual(t, "lapsed once", o.last().Cursor, before)
	o.apply(answer("q"))
}

// A ref and those made from it have at most 32 requests open, an owner's as many as the session: what is beyond waits.
func TestRequestBounds(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	guest := o.under(o.share([]string{"read", "share", "ask"}))
	below := guest.under(guest.share([]string{"ask"}))
	for i := range decide.MaxRefRequests {
		[]*writer{guest, below}[i%2].apply(ask(fmt.Sprint("g", i), "own"))
	}
	waits := func(who *writer, id string) {
		t.Helper()
		sub := who.batch(false, ask(id, "own"))
		answers, _ := o.w.commit(sub)
		if answers[0].Err == nil || answers[0].Err.Code != fault.Overloaded {
			t.Fatalf("ask %s: %+v", id, answers[0])
		}
		who.seq--
	}
	waits(guest, "more")
	waits(below, "more")
	for i := decide.MaxRefRequests; i < decide.MaxSessionRequests; i++ {
		o.apply(ask(fmt.Sprint("o", i), "own"))
	}
	waits(o, "more")
	o.apply(withdraw("o40"))
	waits(guest, "more")
	guest.apply(withdraw("g1"))
	below.apply(ask("more", "own"))
	o.apply(ask("last", "own"))
}

// Nobody is asked twice: a fork has no requests.
func TestAForkHasNoRequests(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.apply(op("put", "key", "message/m", "payload", raw(`{}`)))
	o.apply(ask("r", "prompt"))
	o.apply(ask("s", "prompt"))
	o.apply(withdraw("s"))
	f := o.w.newWriter()
	f.with = []string{o.ref}
	f.apply(op("fork", "source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref)))
	entries, _ := f.w.store.State(f.session)
	mustEqual(t, "entries", len(entries), 1)
	f.refuse(ledger.Rejected, fault.NotFound, answer("r"))
	f.apply(ask("r", "prompt"))
}

// The ends of a ref that reaches children, and of a space's ref, withdraw what was asked under it there.
func TestCutsElsewhereWithdraw(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	parent := w.create()
	child := w.newWriter()
	child.with = []string{parent.ref}
	child.apply(op("create", "ref", child.ref, "hash", sha(child.ref), "parent", parent.session, "via", parent.ref))
	reaching := parent.share([]string{"read", "ask"}, "children", []string{"read", "ask"})
	asks := func(ref, id string) {
		t.Helper()
		me := child.under(ref)
		sub := me.batch(false, ask(id, "own"))
		sub.Reach = true
		answers, _ := w.commit(sub)
		if answers[0].Err != nil || answers[0].Outcomes[0].Status != ledger.Applied {
			t.Fatalf("ask in the child: %+v", answers[0])
		}
	}
	asks(reaching, "one")
	asks(parent.share([]string{"ask"}, "children", []string{"ask"}), "two")
	child.apply(ask("own", "own"))
	parent.apply(op("revoke", "ref", reaching))
	child.is("one", "withdrawn")
	child.is("two", "open")
	parent.apply(op("bumpEpoch"))
	child.is("two", "withdrawn")
	child.is("own", "open")
}

// Whatever is done, each request ends at most once, nothing is asked or answered under a dead ref, and the rows are those of
// the states (world.check).
func TestRequestsUnderAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := newWorld(t).create()
		o.apply(op("put", "key", "message/m0", "payload", raw(`{}`)))
		who := []*writer{o}
		for range 3 {
			by := rapid.SampledFrom(who[:1+len(who)/2]).Draw(t, "by")
			who = append(who, by.under(by.share([]string{"read", "append", "share", "revoke", "ask", "answer"})))
		}
		claims := map[string]uint64{}
		turns := 0
		for range 40 {
			me, id := rapid.SampledFrom(who).Draw(t, "who"), rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "id")
			if rapid.IntRange(0, 3).Draw(t, "later") == 0 {
				id += "2"
			}
			kind := map[bool]string{true: "prompt", false: "question"}[id < "c"]
			var x anOp
			switch rapid.IntRange(0, 12).Draw(t, "op") {
			case 0, 1, 2:
				x = ask(id, kind, "message", "m0", "expires_in", 4*lease)
			case 3, 4:
				x = claimRequest(id)
			case 5:
				x = answer(id, "claim", claims[id])
			case 6:
				x = answer(id)
			case 7:
				x = withdraw(id)
			case 8:
				x = op("release", "request", id, "claim", claims[id])
			case 9:
				x = op("revoke", "ref", rapid.SampledFrom(who[1:]).Draw(t, "dead").ref)
			case 10:
				x = op("revert", "to", "message/m0")
				if rapid.Bool().Draw(t, "back") {
					x = op("unrevert")
				}
			case 11:
				o.w.store.Now += int64(rapid.IntRange(1, 2*lease).Draw(t, "ms"))
				o.w.lapse(false, o.session)
				continue
			case 12:
				turns++
				x = op("begin", "message", fmt.Sprint("t", turns), "payload", raw(`{}`))
			}
			before, _ := o.stateOf(id)
			out := me.outcome(x)
			if out.Status == ledger.Applied && x.method == "claim" {
				var r struct{ Claim uint64 }
				if json.Unmarshal(out.Result, &r) == nil {
					claims[id] = r.Claim
				}
			}
			after, _ := o.stateOf(id)
			if slices.Contains([]string{"answered", "withdrawn", "expired", "unknown"}, before) && after != before && after != "" {
				t.Fatalf("request %s was %s and is %s after %s", id, before, after, x.method)
			}
			if g := o.w.store.Grant(me.ref); g.Revoked != 0 && out.Status == ledger.Applied && x.method != "revoke" {
				t.Fatalf("%s applied under a dead ref", x.method)
			}
		}
	})
}

// Without an outbox, as over HTTP, the request's id is what makes a repetition harmless.
func TestRequestsWithoutAnOutbox(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	guest := o.under(o.share([]string{"read", "ask", "answer"}))
	owner := o.under(o.ref)
	at := uint64(0) // of the last answer
	direct := func(who *writer, x anOp) *fault.Error {
		t.Helper()
		sub := who.batch(false, x)
		who.seq--
		sub.Batch.Outbox, sub.Batch.Ops[0].Seq, sub.Direct = "", 0, &decide.Direct{Ops: true}
		answers, _ := o.w.commit(sub)
		at = answers[0].At
		return answers[0].Err
	}
	ok := func(who *writer, x anOp) {
		t.Helper()
		if err := direct(who, x); err != nil {
			t.Fatalf("%s: %v", x.method, err)
		}
	}
	for range 2 {
		ok(guest, ask("r", "question"))
	}
	mustEqual(t, "another", direct(owner, ask("r", "question")).Code, fault.AlreadyExists)
	for range 2 {
		ok(guest, answer("r", "payload", raw(`{"a": 1}`)))
		mustEqual(t, "the answer's cursor", at, o.entryOf("request/r/state").Cursor)
		ok(guest, ask("r", "question"))
		mustEqual(t, "the question's cursor", at, o.entryOf("request/r").Cursor)
	}
	mustEqual(t, "answered once", o.last().Cursor, o.entryOf("request/r/state").Cursor)
	for _, x := range []anOp{answer("r", "payload", raw(`{"a":1}`)), answer("r"), answer("r", "choice", "x", "payload", raw(`{"a": 1}`))} {
		mustEqual(t, "another answer", direct(guest, x).Code, fault.Conflict)
	}
	mustEqual(t, "another's answer", direct(owner, answer("r", "payload", raw(`{"a": 1}`))).Code, fault.Conflict)
	ok(guest, ask("w", "question"))
	ok(guest, withdraw("w"))
	mustEqual(t, "withdrawn twice", direct(guest, withdraw("w")).Code, fault.RequestEnded)
}
