package decide_test

// revert, unrevert and what settles a revert: each rule of docs/design.md is a row.

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

// reverting is a session of three messages with parts, and one turn that is streaming.
func reverting(t failer) *writer {
	o := newWorld(t).create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{"role":"user"}`)))
	o.apply(op("put", "key", "part/a/1", "payload", raw(`{"text":"one"}`)))
	o.apply(op("put", "key", "todo/1", "payload", raw(`7`)))
	o.apply(op("begin", "message", "b", "payload", raw(`{"role":"assistant"}`)))
	o.apply(op("put", "key", "part/b/1", "payload", raw(`{"text":"x"}`)))
	o.apply(op("appendText", "key", "part/b/1", "offset", 1, "text", "y"))
	o.apply(op("put", "key", "part/b/2", "payload", raw(`{"text":"z"}`)))
	o.apply(op("put", "key", "message/c", "payload", raw(`{"role":"user"}`)))
	o.apply(op("put", "key", "part/a/2", "payload", raw(`{"text":"a late part of the first message"}`)))
	return o
}

// shown lists the keys of the state, and the turns with what became of them.
func (o *writer) shown() string {
	entries, turns := o.w.store.State(o.session)
	var list []string
	for _, e := range entries {
		list = append(list, e.Key)
	}
	for _, t := range turns {
		list = append(list, t.Message+"="+t.Status.String())
	}
	return strings.Join(list, " ")
}

func TestReverts(t *testing.T) {
	t.Parallel()
	const all = "message/a message/b message/c part/a/1 part/a/2 part/b/1 part/b/2 todo/1"
	for _, c := range []struct {
		what string
		ops  []anOp
		say  string // the outcomes' reasons
		want string
	}{
		{"to a message: it and what comes after is hidden, with late parts of it, not those of messages before", []anOp{op("revert", "to", "message/b")},
			"none", "message/a part/a/1 part/a/2 todo/1"},
		{"to the first", []anOp{op("revert", "to", "message/a")}, "none", "todo/1"},
		{"to the last: a turn before it goes on", []anOp{op("revert", "to", "message/c"), op("appendText", "key", "part/b/1", "offset", 2, "text", "z")},
			"none none", "message/a message/b part/a/1 part/a/2 part/b/1 part/b/2 todo/1 b=streaming"},
		{"to a part: the message stays, its turn ends", []anOp{op("revert", "to", "part/b/2"), op("appendText", "key", "part/b/1", "offset", 2, "text", "z")},
			"none turn_ended", "message/a message/b part/a/1 part/a/2 part/b/1 todo/1 b=aborted"},
		{"to a cursor: the first message that was put after it", []anOp{op("revert", "cursor", 5)}, "none", "message/a message/b part/a/1 part/a/2 part/b/1 part/b/2 todo/1 b=streaming"},
		{"to a cursor behind the last message", []anOp{op("revert", "cursor", 9)}, "not_found", all + " b=streaming"},
		{"to a message that is not there", []anOp{op("revert", "to", "message/x")}, "not_found", all + " b=streaming"},
		{"to a part whose message is not there", []anOp{op("put", "key", "part/x/1", "payload", raw(`{}`)), op("revert", "to", "part/x/1")}, "none not_found", all[:len(all)-6] + "part/x/1 todo/1 b=streaming"},
		{"to what is no message", []anOp{op("revert", "to", "todo/1")}, "bad_key", all + " b=streaming"},
		{"twice the same", []anOp{op("revert", "to", "message/c"), op("revert", "to", "message/c")}, "none none", "message/a message/b part/a/1 part/a/2 part/b/1 part/b/2 todo/1 b=streaming"},
		{"again, to an earlier message", []anOp{op("revert", "to", "message/c"), op("revert", "to", "message/b")}, "none none", "message/a part/a/1 part/a/2 todo/1"},
		{"again, to a hidden message", []anOp{op("revert", "to", "message/b"), op("revert", "to", "message/c")}, "none none", "message/a message/b part/a/1 part/a/2 part/b/1 part/b/2 todo/1 b=aborted"},
		{"and back: the turn stays ended", []anOp{op("revert", "to", "message/b"), op("unrevert"), op("appendText", "key", "part/b/1", "offset", 2, "text", "z")},
			"none none turn_ended", all + " b=aborted"},
		{"back without a revert", []anOp{op("unrevert")}, "not_reverted", all + " b=streaming"},
		{"ops on what is hidden", []anOp{op("revert", "to", "message/b"), op("put", "key", "message/b", "payload", raw(`{}`)), op("put", "key", "part/b/1", "payload", raw(`{}`)),
			op("put", "key", "part/b/9", "payload", raw(`{}`)), op("remove", "key", "part/b/1"), op("remove", "key", "message/c"), op("begin", "message", "b", "payload", raw(`{}`)),
			op("appendText", "key", "part/b/1", "offset", 2, "text", "z"), op("finalize", "message", "b", "status", "completed")},
			"none reverted reverted reverted reverted reverted reverted reverted turn_ended", "message/a part/a/1 part/a/2 todo/1"},
		{"ops on what is not", []anOp{op("revert", "to", "message/b"), op("put", "key", "message/a", "payload", raw(`{"v":2}`)), op("put", "key", "part/a/3", "payload", raw(`{}`)), op("put", "key", "todo/2", "payload", raw(`7`)),
			op("put", "key", "session", "payload", raw(`{"title":"t"}`)), op("unrevert")},
			"none none none none none none", "message/a message/b message/c part/a/1 part/a/2 part/a/3 part/b/1 part/b/2 session todo/1 todo/2 b=aborted"},
		{"of what is after a part, a new part", []anOp{op("revert", "to", "part/b/2"), op("put", "key", "part/b/3", "payload", raw(`{}`)), op("put", "key", "part/b/1", "payload", raw(`{}`)), op("put", "key", "message/b", "payload", raw(`{}`))},
			"none reverted none none", "message/a message/b part/a/1 part/a/2 part/b/1 todo/1 b=aborted"},
		{"a new message settles it", []anOp{op("revert", "to", "message/b"), op("put", "key", "message/d", "payload", raw(`{}`)), op("unrevert")},
			"none none not_reverted", "message/a message/d part/a/1 part/a/2 todo/1"},
		{"a new turn settles it, also of a message that is there", []anOp{op("revert", "to", "message/b"), op("begin", "message", "a", "payload", raw(`{}`)), op("unrevert")},
			"none none not_reverted", "message/a part/a/1 part/a/2 todo/1 a=streaming"},
		{"what is settled may be put anew, and has nothing of before", []anOp{op("revert", "to", "message/b"), op("put", "key", "message/d", "payload", raw(`{}`)), op("put", "key", "message/b", "payload", raw(`{}`)), op("put", "key", "part/b/2", "payload", raw(`{}`)),
			op("begin", "message", "b", "payload", raw(`{}`))},
			"none none none none none", "message/a message/b message/d part/a/1 part/a/2 part/b/2 todo/1 b=streaming"},
		{"a part of it alone is put anew", []anOp{op("revert", "to", "message/b"), op("put", "key", "message/d", "payload", raw(`{}`)), op("put", "key", "part/b/2", "payload", raw(`{}`)), op("appendText", "key", "part/b/1", "offset", 2, "text", "z")},
			"none none none turn_not_there", "message/a message/d part/a/1 part/a/2 part/b/2 todo/1"},
		{"a part of a message that left is no part of it for the next revert", []anOp{op("revert", "to", "message/c"), op("put", "key", "message/d", "payload", raw(`{}`)), op("put", "key", "part/c/9", "payload", raw(`{}`)), op("revert", "to", "message/a"),
			op("put", "key", "message/c", "payload", raw(`{}`))}, "none none none none none", "message/c part/c/9 todo/1"},
		{"to a part, its message is not removed meanwhile", []anOp{op("revert", "to", "part/b/2"), op("remove", "key", "message/b"), op("remove", "key", "message/a"), op("unrevert"), op("remove", "key", "message/b")},
			"none reverted none none none", "message/c part/a/1 part/a/2 part/b/1 part/b/2 todo/1 b=aborted"},
		{"to a part, its message is purged, and so its parts are not hidden", []anOp{op("revert", "to", "part/b/2"), op("purge", "key", "message/b")},
			"none none", "message/a part/a/1 part/a/2 part/b/1 part/b/2 todo/1 b=aborted"},
		{"a purge of a hidden message", []anOp{op("revert", "to", "message/b"), op("purge", "key", "message/b")},
			"none none", "message/a part/a/1 part/a/2 part/b/1 part/b/2 todo/1 b=aborted"},
		{"settled to a part, its message removed", []anOp{op("revert", "to", "part/b/2"), op("put", "key", "message/d", "payload", raw(`{}`)), op("remove", "key", "message/b")},
			"none none none", "message/a message/d part/a/1 part/a/2 part/b/1 todo/1 b=aborted"},
		{"a purge of what is hidden", []anOp{op("revert", "to", "message/b"), op("purge", "key", "part/b/1"), op("unrevert")},
			"none none none", "message/a message/b message/c part/a/1 part/a/2 part/b/2 todo/1 b=aborted"},
		{"a purge of what was settled", []anOp{op("revert", "to", "message/b"), op("put", "key", "message/d", "payload", raw(`{}`)), op("purge", "key", "message/b"), op("purge", "key", "part/b/1")},
			"none none none none", "message/a message/d part/a/1 part/a/2 todo/1"},
		{"a revert of what was said after one", []anOp{op("revert", "to", "message/b"), op("put", "key", "message/d", "payload", raw(`{}`)), op("revert", "to", "message/d"), op("unrevert"), op("revert", "to", "message/a"), op("put", "key", "message/e", "payload", raw(`{}`))},
			"none none none none none none", "message/e todo/1"},
		{"and a delete", []anOp{op("revert", "to", "message/b"), op("delete"), op("unrevert")}, "none none session_deleted", ""},
	} {
		for _, how := range []string{"together", "one by one", "swept"} { // in one transaction, or in one each, with what is left removed between or not
			t.Run(c.what, func(t *testing.T) {
				t.Parallel()
				o := reverting(t)
				var said []ledger.Outcome
				if how == "together" {
					said = o.try(c.ops...)
				} else {
					for _, x := range c.ops {
						said = append(said, o.try(x)...)
						if how == "swept" {
							o.w.store.RemoveReverted(o.session)
						}
						o.w.check(o.session)
					}
				}
				var reasons []string
				for _, s := range said {
					reasons = append(reasons, s.Reason.String())
				}
				want := strings.Replace(c.say, "turn_not_there", "not_found", 1)
				if got := strings.Join(reasons, " "); got != want {
					t.Errorf("the outcomes are %s", got)
				}
				if got := o.shown(); got != c.want {
					t.Errorf("the state has %s\nwant %s", got, c.want)
				}
			})
		}
	}
}

// A message that is purged while it is hidden, or was settled, takes with it what the log says of its place: the
// event says what stays, which a fold from any point goes by.
func TestPurgedBeforeItIsSettled(t *testing.T) {
	t.Parallel()
	o := reverting(t)
	o.apply(op("revert", "to", "message/b"))
	o.apply(op("purge", "key", "message/b"))
	o.apply(op("put", "key", "message/d", "payload", raw(`{}`)))
	o.apply(op("put", "key", "message/b", "payload", raw(`{"anew":true}`)))
	const want = "message/a message/b message/d part/a/1 part/a/2 part/b/1 part/b/2 todo/1 b=aborted"
	for range 2 {
		o.w.check(o.session)
		if got := o.shown(); got != want {
			t.Errorf("there is %s\nwant %s", got, want)
		}
		o.w.store.RemoveReverted(o.session)
	}
	// A ref of the message's parts alone is shown that they are shown again, and that is all.
	parts := o.w.store.Grant(o.share([]string{"read"}, "read_keys", []string{"part/b/"}))
	page := &session.LogPage{Access: session.Access{Row: o.w.store.Session(o.session)}, Events: o.w.store.Events(o.session)}
	var purges []string
	for _, e := range session.NewUnscoped(page).Shown(parts).Events {
		if e.Method == "purge" {
			purges = append(purges, string(e.Payload))
		}
	}
	mustEqual(t, "the purge, to a ref of parts", strings.Join(purges, " "), `{"key":"message/b","left":{"hidden":1},"hidden":2}`)
	page.Events = page.Events[4:] // from the first one about the message on
	late := o.w.store.Grant(o.share([]string{"read"}, "from", 5))
	for _, e := range session.NewUnscoped(page).Shown(late).Events {
		if e.Method == "purge" && (!strings.Contains(string(e.Payload), `"left":{"hidden":1}`) || strings.Contains(string(e.Payload), "salt") || !strings.Contains(string(e.Payload), `"events":[{"cursor":5`)) {
			t.Errorf("the purge, to a ref from a cursor on: %s", e.Payload)
		}
	}
}

// A hidden turn whose ref is dead ends too, though other ops do not read it any more.
func TestRevertEndsTurnsOfDeadRefs(t *testing.T) {
	t.Parallel()
	for _, interrupted := range []bool{false, true} {
		o := reverting(t)
		guest := o.under(o.share([]string{"read", "append"}))
		guest.apply(op("begin", "message", "g", "payload", raw(`{}`)))
		guest.apply(op("put", "key", "part/g/1", "payload", raw(`{"text":"x"}`)))
		guest.apply(op("appendText", "key", "part/g/1", "offset", 1, "text", "y"))
		o.apply(op("revoke", "ref", guest.ref))
		if interrupted {
			o.w.store.Now += o.w.cfg.Lease.Milliseconds() + 1
			o.w.lapse(false, o.session)
		}
		o.apply(op("begin", "message", "h", "payload", raw(`{}`)))
		if !o.turnRow("g").Orphan || o.turn("g").Open() == false {
			t.Fatalf("the turn is %+v", o.turnRow("g"))
		}
		o.apply(op("revert", "to", "message/g"))
		if o.turn("b").Open() == false {
			t.Error("a turn that is not hidden has ended")
		}
		o.apply(op("unrevert"))
		mustEqual(t, "the turn", o.turn("g"), session.Aborted)
		mustEqual(t, "the one after it", o.turn("h"), session.Aborted)
		mustEqual(t, "its text", o.payload("part/g/1"), `{"text":"xy"}`)
	}
}

// A revert ends no more of them than it can: they are ended first.
func TestRevertOfTooManyTurnsOfDeadRefs(t *testing.T) {
	t.Parallel()
	o := reverting(t)
	o.under(o.ref).opened("g", session.MaxOrphans, session.Turn{Orphan: true})
	mustEqual(t, "the revert", o.code(false, op("revert", "to", "message/b")), fault.TooLarge)
}

// As many reverts as may have rows in the database are settled, and then the next one waits.
func TestMoreRevertsThanMayHaveRows(t *testing.T) {
	t.Parallel()
	o := reverting(t)
	for i := range session.MaxLeft + 1 {
		key := fmt.Sprintf("message/x%d", i)
		o.apply(op("put", "key", key, "payload", raw(`{}`)))
		o.apply(op("revert", "to", key))
	}
	next := o.batch(false, op("put", "key", "message/y", "payload", raw(`{}`)))
	answers, _ := o.w.commit(next)
	if answers[0].Err == nil || answers[0].Err.Code != fault.Overloaded {
		t.Fatalf("the op after %d reverts: %+v", session.MaxLeft+1, answers[0])
	}
	o.seq--
	o.w.store.RemoveReverted(o.session)
	o.apply(op("put", "key", "message/y", "payload", raw(`{}`)))
	o.w.check(o.session)
}

// The state says what it is reverted to, by whom, and when; one event does it.
func TestRevertIsOneEvent(t *testing.T) {
	t.Parallel()
	o := reverting(t)
	o.apply(op("finalize", "message", "b", "status", "completed"))
	guest := o.under(o.share([]string{"read", "revert"}, "actor", "owner/guest"))
	before := o.w.store.Session(o.session)
	got := guest.apply(op("revert", "to", "message/b"))
	row := o.w.store.Session(o.session)
	if row.Cursor != before.Cursor+1 || got["to"] != "message/b" {
		t.Errorf("%d events, result %v", row.Cursor-before.Cursor, got)
	}
	r := row.Revert
	mustEqual(t, "what it is reverted to", r, session.Revert{To: "message/b", Ord: session.Ord{At: 5}, Cursor: row.Cursor, Actor: "owner/guest", At: o.w.store.Now})
	if row.AuthGen == before.AuthGen {
		t.Error("readers are not checked anew")
	}
	for _, g := range []*capability.Grant{{}, {Message: "a"}} {
		if old, new := row.CheckReader(g, session.AllFeatures&^session.FeatureRevert), row.CheckReader(g, session.FeatureRevert|session.FeatureKeys); old == nil || old.Code != fault.Incompatible || new != nil {
			t.Errorf("readers who would misread it: %v, and who would not: %v", old, new)
		}
	}
}

// The right is its own, and a ref of a part of the session does not have it.
func TestWhoReverts(t *testing.T) {
	t.Parallel()
	o := reverting(t)
	for _, c := range []struct {
		what string
		ref  string
		want string
	}{
		{"append", o.share([]string{"read", "append"}), "missing_right"},
		{"all rights of before", o.share(all), "missing_right"},
		{"revert", o.share([]string{"revert"}), "none"},
		{"one message", o.share([]string{"read", "revert"}, "message", "c"), "missing_right"},
		{"from a cursor on", o.share([]string{"read", "revert"}, "from", 9), "missing_right"},
		{"some keys", o.share([]string{"read", "revert"}, "read_keys", []string{"message/"}), "missing_right"},
		{"some keys to write", o.share([]string{"append", "revert"}, "write_keys", []string{"message/"}), "missing_right"},
	} {
		for _, x := range []anOp{op("revert", "to", "message/c"), op("unrevert")} {
			if got := o.under(c.ref).try(x)[0].Reason.String(); got != c.want {
				t.Errorf("%s: %s is %s, want %s", c.what, x.method, got, c.want)
			}
		}
	}
}

// The result names a message to who may read, and to who has named it.
func TestResultsOfReverts(t *testing.T) {
	t.Parallel()
	o := reverting(t)
	for _, c := range []struct {
		by    string
		named any
		found any
	}{{o.share([]string{"revert"}), "message/c", nil}, {o.share([]string{"read", "revert"}), "message/c", "message/c"}} {
		w := o.under(c.by)
		mustEqual(t, "named", w.apply(op("revert", "to", "message/c"))["to"], c.named)
		mustEqual(t, "again", w.apply(op("revert", "to", "message/c"))["to"], c.named)
		mustEqual(t, "taken back", w.apply(op("unrevert"))["to"], c.found)
		mustEqual(t, "by cursor", w.apply(op("revert", "cursor", 8))["to"], c.found)
		mustEqual(t, "again", w.apply(op("revert", "cursor", 8))["to"], c.found)
	}
}

// What a fork copies of a reverted session.
func TestForkOfAReverted(t *testing.T) {
	t.Parallel()
	o := reverting(t)
	o.apply(op("revert", "to", "message/b"))
	at := o.w.store.Session(o.session).Cursor
	for _, c := range []struct {
		what string
		args []any
		say  string
		want string
	}{
		{"now: what is not hidden", nil, "none", "message/a part/a/1 part/a/2 todo/1"},
		{"as of before: what was there then", []any{"at", at - 1}, "none", "message/a message/b message/c part/a/1 part/a/2 part/b/1 part/b/2 todo/1"},
		{"up to a message that is there", []any{"message", "a"}, "none", "message/a part/a/1 part/a/2 todo/1"},
		{"up to a hidden message", []any{"message", "b"}, "reverted", ""},
	} {
		f := o.w.newWriter()
		f.with = []string{o.ref}
		out := f.try(op("fork", append([]any{"ref", f.ref, "hash", sha(f.ref), "source", o.session, "via", o.ref}, c.args...)...))[0]
		if got := out.Reason.String(); got != c.say || got == "none" && f.shown() != c.want {
			t.Errorf("%s: %s %s", c.what, got, f.shown())
		}
		if row := f.w.store.Session(f.session); c.say == "none" && (row.Revert.InForce() || row.Left != nil) {
			t.Errorf("%s: the fork is reverted", c.what)
		}
	}
}

// A ref of a part of the session is told that there was a revert, and not where.
func TestLimitedRefsAreToldOfReverts(t *testing.T) {
	t.Parallel()
	o := reverting(t)
	o.apply(op("revert", "to", "message/b"))
	o.apply(op("unrevert"))
	o.apply(op("revert", "to", "message/b"))
	o.apply(op("put", "key", "message/d", "payload", raw(`{}`)))
	for _, c := range []struct {
		ref  string
		want bool
	}{
		{o.share([]string{"read"}, "message", "a"), true},
		{o.share([]string{"read"}, "from", 3), true},
		{o.share([]string{"read"}, "read_keys", []string{"part/a/"}), true},
		{o.share([]string{"read"}, "read_keys", []string{"todo/"}), false},
	} {
		g := o.w.store.Grant(c.ref)
		page := &session.LogPage{Access: session.Access{Row: o.w.store.Session(o.session)}, Events: o.w.store.Events(o.session)}
		var told []string
		for _, e := range session.NewUnscoped(page).Shown(g).Events {
			if slices.Contains([]string{"revert", "unrevert", "settle"}, e.Method) && !e.Hidden {
				told = append(told, e.Method+e.Key+string(e.Payload))
			}
		}
		want := ""
		if c.want {
			want = `revert{"hidden":1} unrevert{"hidden":1} revert{"hidden":1} settle{"hidden":1}`
		}
		mustEqual(t, strings.Join(g.ReadKeys, " ")+g.Message, strings.Join(told, " "), want)
	}
}

// Nor is a ref of a part of the session told where, or one that may not read, when its op or its fork is refused.
func TestRefusalsSayNothingOfWhere(t *testing.T) {
	t.Parallel()
	o := reverting(t)
	o.apply(op("revert", "to", "message/b"))
	where := func(out ledger.Outcome) bool {
		if out.Reason != fault.Reverted {
			t.Errorf("it is %s: %s", out.Reason, out.Message)
		}
		return strings.Contains(out.Message, "message/b")
	}
	part := op("put", "key", "part/c/1", "payload", raw(`{}`))
	fork := func(via string) ledger.Outcome {
		f := o.w.newWriter()
		f.with = []string{via}
		return f.try(op("fork", "ref", f.ref, "hash", sha(f.ref), "source", o.session, "via", via, "message", "c"))[0]
	}
	if !where(o.try(part)[0]) || !where(fork(o.ref)) {
		t.Error("the owner is not told")
	}
	for what, ref := range map[string]string{
		"a message": o.share([]string{"read", "append"}, "message", "c"), "keys": o.share([]string{"read", "append"}, "read_keys", []string{"part/c/", "message/c"}, "write_keys", []string{"part/"}),
		"from a cursor on": o.share([]string{"read", "append"}, "from", 9), "no reading": o.share([]string{"append"}),
	} {
		if where(o.under(ref).try(part)[0]) || what != "no reading" && where(fork(ref)) {
			t.Errorf("%s: it is told", what)
		}
	}
	o.apply(op("revert", "to", "part/b/2"))
	if out := o.under(o.share([]string{"append"}, "message", "b")).try(op("remove", "key", "message/b"))[0]; out.Reason != fault.Reverted || strings.Contains(out.Message, "part/b/2") {
		t.Errorf("the removal of the message is %s: %s", out.Reason, out.Message)
	}
}

// What is hidden of a session that opencode shares is shown again when opencode syncs some of it.
func TestSyncsShowWhatIsHidden(t *testing.T) {
	t.Parallel()
	o := reverting(t)
	whole := strings.Replace(o.shown(), "b=streaming", "b=aborted", 1)
	for _, key := range []string{"part/b/1", "message/c", "part/c/new"} {
		o.apply(op("revert", "to", "message/b"))
		if answers, _ := o.w.commit(o.plain(o.ref, op("put", "key", "message/a", "payload", raw(`{"by":%q}`, key)))); answers[0].Err != nil || o.shown() == whole {
			t.Errorf("another message is synced: %+v, there is %s", answers[0], o.shown())
		}
		answers, _ := o.w.commit(o.plain(o.ref, op("put", "key", key, "payload", raw(`{"by":"sync"}`))))
		if got := strings.Replace(o.shown(), " part/c/new", "", 1); answers[0].Err != nil || got != whole {
			t.Errorf("%s is synced: %+v, there is %s", key, answers[0], got)
		}
	}
}

// What opencode no longer has is removed though it is hidden, and the rest stays hidden, as its info says.
func TestASyncRemovesWhatIsHidden(t *testing.T) {
	t.Parallel()
	o := reverting(t)
	o.apply(op("put", "key", "session", "payload", raw(`{"revert":{"messageID":"b"}}`), "sync", true))
	mustEqual(t, "reverted", o.shown(), "message/a part/a/1 part/a/2 session todo/1")
	o.refuse(ledger.Rejected, fault.Reverted, op("remove", "key", "part/b/2"))
	o.apply(op("remove", "key", "part/b/2", "sync", true))
	mustEqual(t, "removed", o.shown(), "message/a part/a/1 part/a/2 session todo/1")
	o.apply(op("put", "key", "session", "payload", raw(`{}`), "sync", true))
	mustEqual(t, "taken back", o.shown(), "message/a message/b message/c part/a/1 part/a/2 part/b/1 session todo/1 b=aborted")
	for _, x := range []anOp{op("put", "key", "part/c/1", "payload", raw(`7`), "sync", true), op("remove", "key", "message/b", "expect", 1, "sync", true)} {
		o.apply(op("put", "key", "session", "payload", raw(`{"revert":{"messageID":"b"}}`), "sync", true))
		o.try(x) // refused, and so nothing is shown for it
		mustEqual(t, "refused", o.shown(), "message/a part/a/1 part/a/2 session todo/1")
		o.apply(op("put", "key", "session", "payload", raw(`{}`), "sync", true))
	}
}
