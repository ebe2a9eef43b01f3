package decide_test

// Claims: who works on a key, until when, and that nobody else changes it meanwhile.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

const lease = 10_000 // milliseconds

// todos is a session with keys that hold values, and another writer in it.
func todos(t failer, keys ...string) (o, other *writer) {
	o = newWorld(t).create()
	for _, key := range keys {
		o.apply(op("put", "key", key, "payload", raw(`{"state":"open"}`)))
	}
	return o, o.under(o.share([]string{"read", "append"}))
}

func claim(key string, args ...any) anOp {
	return op("claim", append([]any{"key", key, "lease", lease}, args...)...)
}

func claimFirst(prefix string, args ...any) anOp {
	return op("claim", append([]any{"prefix", prefix, "lease", lease}, args...)...)
}

// claimed is the cursor of the claim that an op makes or renews.
func (o *writer) claimed(x anOp) uint64 {
	o.w.Helper()
	c, _ := o.apply(x)["claim"].(float64)
	return uint64(c)
}

// conflicts is refuse for a conflict with a cursor.
func (o *writer) conflicts(at uint64, x anOp) {
	o.w.Helper()
	if out := o.refuse(ledger.Conflict, fault.Conflict, x); out.Cursor != at || out.Result != nil {
		o.w.Fatalf("%s: a conflict with cursor %d and result %s, want %d and none", x.method, out.Cursor, out.Result, at)
	}
}

// edits are the ops that change or release todo/1, with more arguments.
func edits(more ...any) []anOp {
	list := []anOp{
		op("put", "key", "todo/1", "payload", raw(`{"by":1}`)),
		op("patch", "key", "todo/1", "patch", raw(`{"by":2}`)),
		op("add", "key", "todo/1", "member", "n", "by", 1),
		op("remove", "key", "todo/1"),
	}
	for i := range list {
		list[i].args = append(list[i].args, op("", more...).args...)
	}
	return list
}

// While a key is claimed, only the ops of its owner that name the claim change it.
func TestClaimsFence(t *testing.T) {
	t.Parallel()
	o, other := todos(t, "todo/1", "todo/2")
	for _, x := range edits("claim", 1) {
		o.conflicts(0, x) // nothing is claimed
	}
	o.conflicts(0, op("release", "key", "todo/1", "claim", 1))
	at := o.claimed(claim("todo/1"))
	mustEqual(t, "the event", o.last().Method+" "+string(o.last().Payload), fmt.Sprintf(`claim {"lease":10000,"until":%d}`, o.w.store.Now+lease))
	mustEqual(t, "its cursor", at, o.last().Cursor)
	for _, x := range edits() {
		o.conflicts(at, x) // its owner names it, too
		other.conflicts(at, x)
	}
	for _, x := range append(edits("claim", at), op("release", "key", "todo/1", "claim", at)) {
		other.conflicts(at, x) // knowing the cursor is not owning the claim
	}
	for _, x := range append(edits("claim", at+1), op("release", "key", "todo/1", "claim", at+1)) {
		o.conflicts(at, x)
	}
	other.conflicts(at, claim("todo/1"))
	o.conflicts(at, claim("todo/1", "worker", "w")) // another worker of the same stream
	other.apply(op("put", "key", "todo/2", "payload", raw(`1`)))

	for _, x := range edits("claim", at)[:3] {
		o.apply(x)
		mustEqual(t, "the claim stays", o.entryOf("todo/1").Claim.Cursor, at)
	}
	o.conflicts(o.entryOf("todo/1").Cursor, op("put", "key", "todo/1", "payload", raw(`1`), "claim", at, "expect", 1))
	o.apply(op("release", "key", "todo/1", "claim", at))
	mustEqual(t, "the release", o.last().Method+" "+string(o.last().Payload), fmt.Sprintf(`release {"claim":%d}`, at))
	for _, x := range append(edits("claim", at), op("release", "key", "todo/1", "claim", at)) {
		o.conflicts(0, x)
	}
	next := other.claimed(claim("todo/1"))
	for _, x := range edits("claim", at) {
		o.conflicts(next, x)
	}
	other.apply(op("remove", "key", "todo/1", "claim", next))
	mustEqual(t, "nothing is left", o.entryOf("todo/1") == nil, true)
	o.apply(op("put", "key", "todo/1", "payload", raw(`2`)))
	mustEqual(t, "nor comes back", o.entryOf("todo/1").Claim == nil, true)
	o.refuse(ledger.Rejected, fault.NotFound, claim("todo/3"))
}

// The owner of a claim is a stream and its worker. Claiming again renews the lease, and the claim stays.
func TestClaimsAreRenewed(t *testing.T) {
	t.Parallel()
	o, other := todos(t, "todo/1")
	w := o.w
	at := o.claimed(claim("todo/1", "worker", "a"))
	w.store.Now += lease - 1
	mustEqual(t, "renewed", o.claimed(claim("todo/1", "worker", "a")), at)
	mustEqual(t, "the event", string(o.last().Payload), fmt.Sprintf(`{"claim":%d,"lease":10000,"until":%d,"worker":"a"}`, at, w.store.Now+lease))
	c := o.entryOf("todo/1").Claim
	mustEqual(t, "its row", *c, session.Claim{Cursor: at, Renewed: at + 1, Until: w.store.Now + lease, Outbox: o.outbox, Worker: "a", Ref: o.ref, Actor: "owner"})
	w.store.Now += lease - 1
	other.conflicts(at, claim("todo/1"))
	o.apply(op("put", "key", "todo/1", "payload", raw(`1`), "claim", at))
	w.store.Now++
	o.conflicts(0, op("put", "key", "todo/1", "payload", raw(`2`), "claim", at)) // late, though nobody else claimed it
	mustEqual(t, "claimed anew", o.claimed(claim("todo/1", "worker", "a")), at+4)
}

// A lease that is over ends the claim: by an event of its own, just before that of the op that finds it, or
// from the sweep.
func TestClaimsLapse(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]anOp{"put": edits()[0], "patch": edits()[1], "add": edits()[2], "remove": edits()[3],
		"claim": claim("todo/1"), "claim the first": claimFirst("todo/")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, other := todos(t, "todo/1")
			at := o.claimed(claim("todo/1"))
			o.w.store.Now += lease - 1
			if name == "claim the first" {
				mustEqual(t, "none is free", fmt.Sprint(other.apply(next)), fmt.Sprintf("map[cursor:%d unchanged:true]", at))
			} else {
				other.conflicts(at, next)
			}
			mustEqual(t, "nothing to sweep", len(o.w.lapse(false, o.session).Sessions), 0)
			o.w.store.Now++
			other.apply(next)
			events := o.w.store.Events(o.session)
			lapsed := events[len(events)-2]
			mustEqual(t, "the event before", fmt.Sprint(lapsed.Method, " ", lapsed.Key, string(lapsed.Payload), lapsed.Op, lapsed.Outbox, lapsed.Ref), fmt.Sprintf(`lapse todo/1{"claim":%d}`, at))
			mustEqual(t, "its own", o.last().Method, next.method)
			for _, x := range append(edits("claim", at), op("release", "key", "todo/1", "claim", at)) {
				out := o.try(x)[0]
				mustEqual(t, "the late worker's "+x.method, out.Reason, fault.Conflict)
			}
			mustEqual(t, "nothing to sweep", len(o.w.lapse(false, o.session).Sessions), 0)
		})
	}
	o, other := todos(t, "todo/1", "todo/2", "todo/3")
	o.claimed(claim("todo/1"))
	o.claimed(claim("todo/2"))
	kept := other.claimed(op("claim", "key", "todo/3", "lease", 60_000))
	o.w.lapse(true, o.session) // a start ends no claim
	mustEqual(t, "claimed", o.entryOf("todo/1").Claim != nil, true)
	o.w.store.Now += lease
	o.apply(op("put", "key", "todo/1", "payload", raw(`{"state":"open"}`))) // which changes nothing
	mustEqual(t, "no event without another", o.last().Method, "claim")
	mustEqual(t, "swept", o.w.lapse(false, o.session).Sessions[0].Events.Len(), 2)
	mustEqual(t, "again", len(o.w.lapse(false, o.session).Sessions), 0)
	mustEqual(t, "the other's stays", o.entryOf("todo/3").Claim.Cursor, kept)
	o.refuse(ledger.Conflict, fault.Conflict, op("put", "key", "todo/1", "payload", raw(`1`), "claim", 1))

	// A put of the group that made the claim keeps it.
	sub := o.batch(false, claim("todo/1"), op("put", "key", "todo/1", "payload", raw(`2`), "claim", ledger.Ref{Path: "claim"}), op("put", "key", "todo/1", "payload", raw(`3`)))
	sub.Batch.Ops[1].Args[2].Ref.Op = sub.Batch.Ops[0].OpID
	answers, _ := o.w.commit(sub)
	mustEqual(t, "by the claim", answers[0].Outcomes[1].Status, ledger.Applied)
	mustEqual(t, "without it", answers[0].Outcomes[2].Status, ledger.Conflict)
	mustEqual(t, "the claim", o.entryOf("todo/1").Claim.Cursor, answers[0].Outcomes[0].Cursor)
}

// An op that is refused ends no claim, nor does an atomic batch that is.
func TestRefusedOpsEndNoClaim(t *testing.T) {
	t.Parallel()
	o, other := todos(t, "todo/1", "todo/2")
	o.claimed(claim("todo/1"))
	two := o.claimed(claim("todo/2"))
	before := o.w.store.Session(o.session).Cursor
	answers, _ := o.w.commit(o.batch(true, op("release", "key", "todo/2", "claim", two), op("put", "key", "todo/2", "payload", raw(`1`)), op("remove", "key", "x/y/z", "expect", 7)))
	mustEqual(t, "the batch", answers[0].Outcomes[0].Status, ledger.BatchAborted)
	mustEqual(t, "the claim", o.entryOf("todo/2").Claim.Cursor, two)
	o.w.store.Now += lease
	other.refuse(ledger.Rejected, fault.BadPayload, op("patch", "key", "todo/1", "patch", raw(`{"a":1,"a":2}`)))
	other.refuse(ledger.Conflict, fault.Conflict, op("remove", "key", "todo/1", "expect", 1))
	answers, _ = o.w.commit(other.batch(true, claim("todo/1"), op("remove", "key", "x", "expect", 7)))
	mustEqual(t, "the batch", answers[0].Outcomes[0].Status, ledger.BatchAborted)
	mustEqual(t, "no event", o.w.store.Session(o.session).Cursor, before)
}

// The first free key is the first in key order that has a value and no claim: of what is stored and of what
// the same group has done.
func TestClaimTheFirstFreeKey(t *testing.T) {
	t.Parallel()
	o, other := todos(t, "todo/b", "todo/a/1", "todo/c", "todos", "note/1")
	w := o.w
	first := func(o *writer, x anOp) string { key, _ := o.apply(x)["key"].(string); return key }
	mustEqual(t, "the first", first(o, claimFirst("todo/")), "todo/a/1")
	mustEqual(t, "the next, of the same owner", first(o, claimFirst("todo/")), "todo/b")
	mustEqual(t, "below another prefix", first(other, claimFirst("note/")), "note/1")
	mustEqual(t, "none below", first(other, claimFirst("todo/a/")), "")
	mustEqual(t, "nor below what is not there", first(other, claimFirst("none/")), "")
	mustEqual(t, "the last", first(other, claimFirst("todo/")), "todo/c")
	out := other.try(claimFirst("todo/"))[0]
	mustEqual(t, "none is free", string(out.Result), fmt.Sprintf(`{"cursor":%d,"unchanged":true}`, w.store.Session(o.session).Cursor))

	// One group: what it puts, releases, removes and claims counts.
	at := other.entryOf("todo/c").Claim.Cursor
	answers, _ := w.commit(
		o.batch(false, op("put", "key", "todo/d", "payload", raw(`1`)), op("put", "key", "todo/e", "payload", raw(`1`)), claimFirst("todo/"), op("remove", "key", "todo/e")),
		other.batch(false, op("release", "key", "todo/c", "claim", at), op("put", "key", "todo/c/1", "payload", raw(`1`))),
		o.batch(false, claimFirst("todo/"), claimFirst("todo/"), claimFirst("todo/")),
		o.batch(true, op("put", "key", "todo/0", "payload", raw(`1`)), claimFirst("todo/"), op("remove", "key", "x", "expect", 7)),
		o.batch(false, claimFirst("todo/")),
	)
	var keys []string
	for _, out := range slices.Concat(answers[0].Outcomes[2:3], answers[2].Outcomes, answers[4].Outcomes) {
		_, rest, _ := strings.Cut(string(out.Result), `"key":"`)
		key, _, _ := strings.Cut(rest, `"`)
		keys = append(keys, key)
	}
	mustEqual(t, "in one group", strings.Join(keys, " "), "todo/d todo/c todo/c/1  ")
	w.store.Now += lease
	mustEqual(t, "lapsed", first(other, claimFirst("todo/")), "todo/a/1")
}

// Many claims of a group, and more claimed keys than one search passes over.
func TestClaimManyKeys(t *testing.T) {
	t.Parallel()
	o, other := todos(t)
	var puts, ops []anOp
	for i := range 101 {
		puts = append(puts, op("put", "key", fmt.Sprintf("todo/%05d", i), "payload", raw(`1`)))
		ops = append(ops, claimFirst("todo/"))
	}
	o.try(puts[:100]...)
	outs := other.try(ops...)
	for i, out := range outs[:100] {
		if !strings.Contains(string(out.Result), fmt.Sprintf(`"key":"todo/%05d"`, i)) {
			t.Fatalf("claim %d: %s", i, out.Result)
		}
	}
	mustEqual(t, "beyond the last", strings.Contains(string(outs[100].Result), `"unchanged":true`), true)

	o.apply(puts[100])
	o.w.store.MaxPassed = 100
	answers, _ := o.w.commit(o.batch(false, claimFirst("todo/")))
	if answers[0].Err == nil || answers[0].Err.Code != fault.Overloaded {
		t.Fatalf("behind so many: %+v", answers[0])
	}
	o.seq--
	o.w.store.MaxPassed = 101
	mustEqual(t, "behind fewer", o.apply(claimFirst("todo/"))["key"], any("todo/00100"))
}

// A purge and a delete end a claim, and a fork begins without any.
func TestWhatEndsClaims(t *testing.T) {
	t.Parallel()
	o, other := todos(t, "todo/1")
	at := other.claimed(claim("todo/1"))
	f := o.w.newWriter()
	f.with = []string{o.ref}
	f.apply(op("fork", "source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref)))
	f.apply(op("put", "key", "todo/1", "payload", raw(`2`)))
	o.apply(op("purge", "key", "todo/1"))
	other.conflicts(0, op("put", "key", "todo/1", "payload", raw(`1`), "claim", at))
	o.apply(op("put", "key", "todo/1", "payload", raw(`1`)))
	other.claimed(claim("todo/1"))
	// In one group, where the stored row is replaced and not removed.
	o.w.commit(o.batch(false, op("purge", "key", "todo/1"), op("put", "key", "todo/1", "payload", raw(`3`))))
	mustEqual(t, "its claim", o.entryOf("todo/1").Claim == nil, true)
	at = other.claimed(claim("todo/1"))
	other.w.commit(other.batch(false, op("remove", "key", "todo/1", "claim", at), op("put", "key", "todo/1", "payload", raw(`4`)), claim("todo/1"), op("put", "key", "todo/1", "payload", raw(`5`))))
	mustEqual(t, "claimed anew", o.entryOf("todo/1").Claim.Cursor, at+3)

	// The end of the ref that it was claimed under leaves the claim until its lease is over.
	o.apply(op("revoke", "ref", other.ref))
	o.conflicts(at+3, op("put", "key", "todo/1", "payload", raw(`6`)))
	o.apply(op("delete"))
	o.w.store.Now += lease
	mustEqual(t, "of a deleted session", len(o.w.lapse(false, o.session).Sessions), 0)
}

// TestBreakIsARightOfItsOwn: append does not include it, an owner's ref does; keys limit it, methods do not. It
// ends the claim that is named by its cursor, and no other, and the event says who did it.
func TestBreakIsARightOfItsOwn(t *testing.T) {
	t.Parallel()
	o, other := todos(t, "todo/1", "todo/2")
	w := o.w
	id, hash := newRef(o.session) // as a server of the previous version made them
	w.store.AddGrant(capability.Grant{ID: id, Target: o.session, Parent: o.ref, Hash: hash, Epoch: 1, Rights: capability.SessionRights})
	breaking := func(at uint64) anOp { return op("release", "key", "todo/1", "claim", at) }
	at := other.claimed(claim("todo/1", "worker", "w"))
	for name, guest := range map[string]*writer{
		"append":               o.under(o.share([]string{"read", "append", "share", "revoke", "schema"})),
		"append, from before":  o.under(id),
		"append with a method": o.under(o.share([]string{"append"}, "methods", []string{"release"})),
	} {
		if out := guest.refuse(ledger.Conflict, fault.Conflict, breaking(at)); out.Cursor != at || !strings.Contains(out.Message, "the right break") {
			t.Errorf("%s: %+v", name, out)
		}
	}
	for name, guest := range map[string]*writer{
		"read":                 o.under(o.share([]string{"read", "share", "revoke"})),
		"append of other ops":  o.under(o.share([]string{"append"}, "methods", []string{"put", "claim"})),
		"append of other keys": o.under(o.share([]string{"append"}, "write_keys", []string{"todo/2"})),
		"break of other keys":  o.under(o.share([]string{"append", "break"}, "write_keys", []string{"todo/2"})),
		"break of one message": o.under(o.share([]string{"append", "break"}, "message", "m")),
	} {
		if out := guest.refuse(ledger.Denied, fault.MissingRight, breaking(at)); strings.Contains(out.Message, "needs break") {
			t.Errorf("%s: %s, and append would do for a claim of one's own", name, out.Message)
		}
	}
	for _, method := range []string{"release", "put"} { // a live capability for methods
		live := o.under(o.ref)
		sub := live.batch(false, breaking(at))
		sub.Attenuated, _ = capability.Attenuate(w.store.Grant(o.ref), capability.MintRequest{Methods: []string{method}}, 1, w.store.Now)
		answers, _ := w.commit(sub)
		if out := answers[0].Outcomes[0]; out.Status != map[string]ledger.Status{"release": ledger.Conflict, "put": ledger.Denied}[method] {
			t.Errorf("narrowed to %s: %+v", method, out)
		}
	}
	alone := o.under(o.share([]string{"break"}, "write_keys", []string{"todo/"}))
	for _, wrong := range []uint64{0, at - 1, at + 1} {
		alone.conflicts(at, breaking(wrong))
		o.conflicts(at, breaking(wrong))
	}
	alone.conflicts(0, op("release", "key", "todo/2", "claim", at))
	for _, x := range append(edits("claim", at), claim("todo/2"), claimFirst("todo/")) {
		alone.refuse(ledger.Denied, fault.MissingRight, x)
		if x.method != "claim" {
			o.conflicts(at, x) // whoever may break a claim does not change its key
		}
	}
	for _, bad := range []anOp{op("release", "key", "todo/1"), op("release", "claim", at), op("release", "key", "todo/1", "claim", -1), op("release", "key", "todo/1", "claim", "1"),
		op("release", "key", "message/m", "claim", at), op("release", "key", "todo/", "claim", at), op("release", "key", "todo/1", "claim", at, "worker", "w")} {
		for _, guest := range []*writer{alone, o} {
			if out := guest.try(bad)[0]; out.Status != ledger.Rejected && out.Status != ledger.Denied || out.Message == "" {
				t.Errorf("%v: %+v", bad.args, out)
			}
		}
	}
	mustEqual(t, "the claim", o.entryOf("todo/1").Claim.Cursor, at)

	for i, breaker := range []*writer{alone, o, o.under(o.share([]string{"append", "break"}, "methods", []string{"put"})), other.under(o.ref)} {
		breaker.apply(breaking(at))
		e := breaker.last()
		mustEqual(t, "the event", e.Method+" "+string(e.Payload), fmt.Sprintf(`release {"claim":%d,"broken":true}`, at))
		mustEqual(t, "who broke it", e.Ref+e.Outbox, breaker.ref+breaker.outbox)
		mustEqual(t, "its claim", o.entryOf("todo/1").Claim == nil, true)
		for _, x := range append(edits("claim", at), breaking(at)) {
			other.conflicts(0, x) // the broken worker's
		}
		breaker.conflicts(0, breaking(at)) // which is over
		at = other.claimed(claim("todo/1", "worker", fmt.Sprint(i)))
	}
	w.store.Now += lease
	alone.conflicts(0, breaking(at)) // its lease is over

	// A ref with append alone shares no more than it has.
	guest := o.under(o.share([]string{"read", "append", "share"}))
	more, _ := newRef(o.session)
	guest.refuse(ledger.Rejected, fault.Widening, op("share", "ref", more, "hash", sha(more), "rights", []string{"break"}))
}

// What a ref may claim, and what it is shown of claims.
func TestLimitedClaims(t *testing.T) {
	t.Parallel()
	o, _ := todos(t, "todo/1", "todo/mine/1", "todo/old", "note/1")
	w := o.w
	key := o.under(o.share([]string{"read", "append"}, "write_keys", raw(`["todo/mine/"]`)))
	key.apply(claimFirst("todo/mine/"))
	mine := uint64(key.last().Cursor)
	key.refuse(ledger.Denied, fault.MissingRight, claimFirst("todo/"))
	key.refuse(ledger.Denied, fault.MissingRight, claim("todo/1"))
	key.refuse(ledger.Denied, fault.MissingRight, op("release", "key", "todo/1", "claim", 7))
	blind := o.under(o.share([]string{"append"}))
	blind.refuse(ledger.Denied, fault.MissingRight, claimFirst("todo/"))
	blind.apply(claim("todo/1"))
	some := o.under(o.share([]string{"read", "append"}, "read_keys", raw(`["note/"]`)))
	some.refuse(ledger.Denied, fault.MissingRight, claimFirst("todo/"))
	some.apply(claimFirst("note/"))
	message := o.under(o.share([]string{"read", "append"}, "message", "m"))
	message.refuse(ledger.Denied, fault.MissingRight, claim("todo/1"))
	only := o.under(o.share([]string{"read", "append"}, "methods", raw(`["claim"]`)))
	only.refuse(ledger.Denied, fault.MissingRight, op("release", "key", "todo/mine/1", "claim", mine))

	// A ref with a first cursor claims what it is shown, and is shown claims from there on.
	from := w.store.Session(o.session).Cursor + 1
	late := o.under(o.share([]string{"read", "append"}, "from", from))
	mustEqual(t, "nothing is shown", late.apply(claimFirst("todo/"))["key"], any(nil))
	key.apply(op("put", "key", "todo/mine/1", "payload", raw(`1`), "claim", mine))
	o.apply(op("put", "key", "todo/mine/2", "payload", raw(`1`)))
	shown := func() string {
		g := w.store.Grant(late.ref)
		f := session.NewFold(o.session)
		f.Skip(from - 1)
		for _, e := range shownTo(g, w.store.Events(o.session)[from-1:], new(session.HashKey)) {
			if err := f.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		entries, _ := w.store.State(o.session)
		page := session.NewUnscoped(&session.StateRange{Access: session.Access{Row: w.store.Session(o.session)}, Entries: entries}).Shown(g)
		mustEqual(t, "the log comes to the state that is shown", session.StateHash(f.Cursor, f.Epoch, f.Life, page.Entries, nil), f.Hash())
		text := ""
		for _, e := range page.Entries {
			if text += " " + e.Key; e.Claim != nil {
				text += fmt.Sprint(" ", e.Claim.Cursor)
			}
		}
		return text
	}
	mustEqual(t, "shown", shown(), " todo/mine/1 todo/mine/2")
	key.apply(claim("todo/mine/1")) // renewed
	mustEqual(t, "shown", shown(), fmt.Sprint(" todo/mine/1 ", mine, " todo/mine/2"))
	mustEqual(t, "free", late.apply(claimFirst("todo/"))["key"], any("todo/mine/2"))
}
