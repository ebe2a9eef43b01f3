package decide_test

// compact, the compacted view, and what ends a compaction: each rule of docs/design.md is a row.

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// view lists what the compacted view shows to a ref, folded from the log: messages that are left out, turns, keys.
func (o *writer) view(ref string) string {
	o.w.Helper()
	f := session.NewUnscopedFold(o.session)
	row := o.w.store.Session(o.session)
	page := session.NewUnscoped(&session.LogPage{Access: session.Access{Row: row}, Events: o.w.store.Events(o.session)})
	if err := f.Add(page, row.Cursor); err != nil {
		o.w.Fatalf("%v", err)
	}
	g, at := o.w.store.Grant(ref), f.AccessAt(page.Access())
	var left, keys []string
	err := f.Chunks(&at, at.Row.CompactedTo(g), 1<<20, func(u *session.Unscoped[*session.StateChunk]) error {
		c := u.Shown(g)
		left = append(left, c.LeftOut...)
		for _, t := range c.Turns {
			left = append(left, t.Message+"="+t.Status.String())
		}
		for _, e := range c.Entries {
			keys = append(keys, e.Key)
		}
		return nil
	})
	if err != nil {
		o.w.Fatalf("%v", err)
	}
	return strings.Join(left, " ") + ": " + strings.Join(keys, " ")
}

// compacting is a session of four messages with parts, in the order of the log, and a turn that is streaming.
func compacting(t failer) *writer {
	o := newWorld(t).create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{"role":"user"}`)))
	o.apply(op("put", "key", "part/a/1", "payload", raw(`{"text":"one"}`)))
	o.apply(op("put", "key", "todo/1", "payload", raw(`7`)))
	o.apply(op("put", "key", "message/b", "payload", raw(`{"role":"assistant"}`)))
	o.apply(op("put", "key", "message/s", "payload", raw(`{"summary":true}`)))
	o.apply(op("put", "key", "part/s/1", "payload", raw(`{"text":"they said so"}`)))
	o.apply(op("begin", "message", "c", "payload", raw(`{"role":"assistant"}`)))
	o.apply(op("put", "key", "part/a/2", "payload", raw(`{"text":"a late part of the first message"}`)))
	o.apply(op("put", "key", "part/x/1", "payload", raw(`{"text":"of no message"}`)))
	return o
}

func compactOp(upto, summary string) anOp { return op("compact", "upto", upto, "summary", summary) }

func TestCompactions(t *testing.T) {
	t.Parallel()
	const all = "c=streaming: message/a part/a/1 todo/1 message/b message/s part/s/1 message/c part/a/2 part/x/1"
	const compacted = "a b c=streaming: todo/1 message/s part/s/1 message/c part/x/1"
	std := compactOp("message/b", "message/s")
	for _, c := range []struct {
		what string
		ops  []anOp
		say  string // the outcomes' reasons
		want string
	}{
		{"the summary, what follows with a turn, other keys, a part without a message; not what is before, with late parts", []anOp{std}, "none", compacted},
		{"up to the summary itself", []anOp{compactOp("message/s", "message/s")}, "none", compacted},
		{"up to an earlier message: what is between stays", []anOp{compactOp("message/a", "message/s")}, "none", "a c=streaming: todo/1 message/b message/s part/s/1 message/c part/x/1"},
		{"a summary before the message", []anOp{compactOp("message/b", "message/a")}, "bad_argument", all},
		{"no such message", []anOp{compactOp("message/none", "message/s"), compactOp("message/a", "message/none")}, "not_found not_found", all},
		{"what is no message", []anOp{compactOp("part/a/1", "message/s"), compactOp("message/a", "todo/1")}, "bad_key bad_key", all},
		{"a summary that is still written", []anOp{compactOp("message/b", "message/c")}, "turn_open", all},
		{"and then has ended", []anOp{op("finalize", "message", "c", "status", "completed"), compactOp("message/b", "message/c")}, "none none",
			strings.Replace(compacted, "streaming", "completed", 1)},
		{"twice the same", []anOp{std, std}, "none none", compacted},
		{"the mark moves on", []anOp{compactOp("message/a", "message/s"), std}, "none none", compacted},
		{"and back", []anOp{std, compactOp("message/a", "message/b")}, "none none", "a c=streaming: todo/1 message/b message/s part/s/1 message/c part/x/1"},
		{"what is left out may change", []anOp{std, op("put", "key", "message/a", "payload", raw(`{"v":2}`)), op("put", "key", "part/a/3", "payload", raw(`{}`)), op("remove", "key", "message/b")},
			"none none none none", "a c=streaming: todo/1 message/s part/s/1 message/c part/x/1"},
		{"what is said later follows", []anOp{std, op("put", "key", "message/d", "payload", raw(`{}`)), op("put", "key", "part/d/1", "payload", raw(`{}`))}, "none none none",
			compacted + " message/d part/d/1"},
		{"upto is removed: its place counts", []anOp{std, op("remove", "key", "message/b"), op("put", "key", "message/b", "payload", raw(`{}`))}, "none none none",
			"a c=streaming: todo/1 message/s part/s/1 message/c part/x/1 message/b"},
		{"upto is purged", []anOp{std, op("purge", "key", "message/b")}, "none none", "a c=streaming: todo/1 message/s part/s/1 message/c part/x/1"},
		{"the summary is removed: it ends", []anOp{std, op("remove", "key", "message/s"), op("put", "key", "message/s", "payload", raw(`{}`))}, "none none none",
			"c=streaming: message/a part/a/1 todo/1 message/b part/s/1 message/c part/a/2 part/x/1 message/s"},
		{"the summary is purged: it ends", []anOp{std, op("purge", "key", "message/s")}, "none none", "c=streaming: message/a part/a/1 todo/1 message/b part/s/1 message/c part/a/2 part/x/1"},
		{"the summary is changed", []anOp{std, op("put", "key", "message/s", "payload", raw(`{"better":true}`))}, "none none", compacted},
		{"a part of the summary is removed", []anOp{std, op("remove", "key", "part/s/1")}, "none none", strings.Replace(compacted, " part/s/1", "", 1)},
		{"a revert behind it", []anOp{std, op("revert", "to", "message/c")}, "none none", "a b: todo/1 message/s part/s/1 part/x/1"},
		{"a revert to the summary: it is not compacted", []anOp{std, op("revert", "to", "message/s")}, "none none", ": message/a part/a/1 todo/1 message/b part/a/2 part/x/1"},
		{"to a part of the summary", []anOp{std, op("revert", "to", "part/s/1")}, "none none", ": message/a part/a/1 todo/1 message/b message/s part/a/2 part/x/1"},
		{"to what is left out", []anOp{std, op("revert", "to", "message/b")}, "none none", ": message/a part/a/1 todo/1 part/a/2 part/x/1"},
		{"and taken back: it is again", []anOp{std, op("revert", "to", "message/b"), op("unrevert")}, "none none none", strings.Replace(compacted, "c=streaming", "c=aborted", 1)},
		{"settled: it is no longer", []anOp{std, op("revert", "to", "message/s"), op("put", "key", "message/d", "payload", raw(`{}`)), op("put", "key", "message/s", "payload", raw(`{}`))}, "none none none none",
			": message/a part/a/1 todo/1 message/b part/a/2 part/x/1 message/d message/s"},
		{"settled to a part of the summary: nor is it then", []anOp{std, op("revert", "to", "part/s/1"), op("put", "key", "message/d", "payload", raw(`{}`))}, "none none none",
			": message/a part/a/1 todo/1 message/b message/s part/a/2 part/x/1 message/d"},
		{"a settled revert behind it", []anOp{std, op("revert", "to", "message/c"), op("put", "key", "message/d", "payload", raw(`{}`))}, "none none none", "a b: todo/1 message/s part/s/1 part/x/1 message/d"},
		{"with what is hidden", []anOp{op("revert", "to", "message/b"), std, compactOp("message/a", "message/s"), op("unrevert")}, "none reverted reverted none", strings.Replace(all, "c=streaming", "c=aborted", 1)},
		{"with a summary of which a part is hidden", []anOp{op("revert", "to", "part/s/1"), std, op("unrevert")}, "none reverted none", strings.Replace(all, "c=streaming", "c=aborted", 1)},
		{"while it is hidden: the new one stands", []anOp{std, op("revert", "to", "message/s"), compactOp("message/a", "message/b"), op("unrevert")}, "none none none none",
			"a c=aborted: todo/1 message/b message/s part/s/1 message/c part/x/1"},
		{"the hidden summary is purged", []anOp{std, op("revert", "to", "message/s"), op("purge", "key", "message/s"), op("unrevert")}, "none none none none",
			"c=aborted: message/a part/a/1 todo/1 message/b part/s/1 message/c part/a/2 part/x/1"},
		{"a delete", []anOp{std, op("delete"), std}, "none none session_deleted", ": "},
	} {
		for _, how := range []string{"together", "one by one", "swept"} { // in one transaction, or in one each, with what is left removed between or not
			t.Run(c.what, func(t *testing.T) {
				t.Parallel()
				o := compacting(t)
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
				if got := strings.Join(reasons, " "); got != c.say {
					t.Errorf("the outcomes are %s", got)
				}
				if got := strings.TrimPrefix(o.view(o.ref), " "); got != c.want {
					t.Errorf("the view is %s\nwant        %s", got, c.want)
				}
			})
		}
	}
}

// One event says so, and changes nothing for those who are shown everything.
func TestCompactIsAMark(t *testing.T) {
	t.Parallel()
	o := compacting(t)
	guest := o.under(o.share([]string{"compact"}, "actor", "owner/guest"))
	before, state := o.w.store.Session(o.session), o.shown()
	got := guest.apply(compactOp("message/b", "message/s"))
	row := o.w.store.Session(o.session)
	mustEqual(t, "its result", [2]any{got["upto"], got["summary"]}, [2]any{"message/b", "message/s"})
	mustEqual(t, "what it is compacted to", row.Compaction, session.Compaction{Upto: "message/b", Ord: session.Ord{At: 5}, Summary: "message/s", Place: session.Ord{At: 6},
		Cursor: before.Cursor + 1, Actor: "owner/guest", At: o.w.store.Now})
	mustEqual(t, "the state", o.shown(), state)
	mustEqual(t, "again", guest.apply(compactOp("message/b", "message/s"))["unchanged"], any(true))
	for what, c := range map[string]struct {
		ref  string
		want string
	}{
		"all": {o.ref, "none"}, "a message": {o.share([]string{"read"}, "message", "a"), "none"}, "some keys": {o.share([]string{"read"}, "read_keys", []string{"message/"}), "none"},
		"from a cursor on": {o.share([]string{"read"}, "from", 3), "incompatible"}, // it could not verify the event, which is not shown whole
	} {
		said := "none"
		if err := row.CheckReader(o.w.store.Grant(c.ref), session.AllFeatures&^session.FeatureCompact); err != nil {
			said = err.Code.String()
		}
		mustEqual(t, "an older reader of "+what, said, c.want)
	}
}

func TestWhoCompacts(t *testing.T) {
	t.Parallel()
	o := compacting(t)
	for _, c := range []struct {
		what string
		ref  string
		want string
	}{
		{"append", o.share([]string{"read", "append", "revert"}), "missing_right"},
		{"all rights of before", o.share(all), "missing_right"},
		{"compact", o.share([]string{"compact"}), "none"},
		{"one message", o.share([]string{"read", "compact"}, "message", "s"), "missing_right"},
		{"from a cursor on", o.share([]string{"read", "compact"}, "from", 9), "missing_right"},
		{"some keys", o.share([]string{"read", "compact"}, "read_keys", []string{"message/"}), "missing_right"},
		{"some keys to write", o.share([]string{"append", "compact"}, "write_keys", []string{"message/"}), "missing_right"},
	} {
		if got := o.under(c.ref).try(compactOp("message/b", "message/s"))[0].Reason.String(); got != c.want {
			t.Errorf("%s: it is %s, want %s", c.what, got, c.want)
		}
	}
}

// A fork is compacted as its source was there, up to the last message that it has of those left out.
func TestForkOfACompacted(t *testing.T) {
	t.Parallel()
	o := compacting(t)
	first := o.cursorOf(compactOp("message/a", "message/s"))
	o.apply(compactOp("message/b", "message/s"))
	o.apply(op("put", "key", "message/d", "payload", raw(`{}`)))
	keys := o.share([]string{"read"}, "read_keys", []string{"message/"})
	fork := func(via string, args ...any) *writer {
		f := o.w.newWriter()
		f.with = []string{via}
		f.apply(op("fork", append([]any{"ref", f.ref, "hash", sha(f.ref), "source", o.session, "via", via}, args...)...))
		return f
	}
	const parts = "todo/1 message/s part/s/1 message/c part/x/1"
	for _, c := range []struct {
		what string
		via  string
		args []any
		upto string
		want string
	}{
		{"now", o.ref, nil, "message/b", "a b: " + parts + " message/d"},
		{"as of the first compaction", o.ref, []any{"at", first}, "message/a", "a: todo/1 message/b message/s part/s/1 message/c part/x/1"},
		{"as of before", o.ref, []any{"at", first - 1}, "", ": message/a part/a/1 todo/1 message/b message/s part/s/1 message/c part/a/2 part/x/1"},
		{"up to what follows", o.ref, []any{"message", "c"}, "message/b", "a b: todo/1 message/s part/s/1 message/c"},
		{"up to a message before the summary", o.ref, []any{"message", "b"}, "", ": message/a part/a/1 todo/1 message/b part/a/2"},
		{"under a ref of some keys", keys, nil, "", ": message/a message/b message/s message/c message/d"},
	} {
		f := fork(c.via, c.args...)
		if got := f.view(f.ref); got != c.want {
			t.Errorf("%s: the view is %s\nwant %s", c.what, got, c.want)
		}
		at := f.w.store.Session(f.session).Compaction
		mustEqual(t, c.what, [2]any{at.Upto, at.Cursor}, [2]any{c.upto, map[bool]uint64{true: 1}[c.upto != ""]})
	}
	o.apply(op("remove", "key", "message/b"))
	f := fork(o.ref)
	mustEqual(t, "without the message up to which it was", f.w.store.Session(f.session).Compaction.Upto, "message/a")
	f.apply(op("purge", "key", "message/s")) // its event, too, has the fork's compaction
	mustEqual(t, "purged", f.view(f.ref), ": message/a part/a/1 todo/1 part/s/1 message/c part/a/2 part/x/1 message/d")
	o.apply(op("remove", "key", "message/a"))
	f = fork(o.ref)
	mustEqual(t, "with nothing to leave out", f.w.store.Session(f.session).Compaction, session.Compaction{})
	o.apply(op("revert", "to", "message/s"))
	f = fork(o.ref)
	mustEqual(t, "reverted", f.w.store.Session(f.session).Compaction, session.Compaction{})
}

// A ref of a part of the session is told that there was a compaction at most, and left out is nothing for it.
func TestLimitedRefsAreNotCompacted(t *testing.T) {
	t.Parallel()
	o := compacting(t)
	o.apply(compactOp("message/b", "message/s"))
	for _, c := range []struct {
		ref  string
		told string
		want string
	}{
		{o.share([]string{"read"}, "message", "a"), `{"hidden":1}`, ": message/a part/a/1 part/a/2"},
		{o.share([]string{"read"}, "from", 3), `{"hidden":1}`, "c=streaming: part/a/1 todo/1 message/b message/s part/s/1 message/c part/a/2 part/x/1"},
		{o.share([]string{"read"}, "read_keys", []string{"message/a"}), `{"hidden":1}`, ": message/a"},
		{o.share([]string{"read"}, "read_keys", []string{"todo/"}), "", ": todo/1"},
	} {
		g := o.w.store.Grant(c.ref)
		mustEqual(t, "the view", strings.TrimPrefix(o.view(c.ref), " "), c.want)
		page := session.NewUnscoped(&session.LogPage{Access: session.Access{Row: o.w.store.Session(o.session)}, Events: o.w.store.Events(o.session)}).Shown(g)
		told := ""
		for _, e := range page.Events {
			if e.Method == session.MethodCompact {
				told += e.Key + string(e.Payload)
			}
		}
		mustEqual(t, "what it is told", told, c.told)
		mustEqual(t, "the row", page.Row.Compaction, session.Compaction{})
	}
}
