package storetest

// The compacted view: what the database reads for it is what is left of the state without what the mark leaves out.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// compactedState is the compacted view of some keys as ReadState gives it: what is left out, turns, entries.
func (f *fixture) compactedState(id string, keys []string, pieceBytes int) (left, turns, entries []string) {
	f.Helper()
	selected, refused := session.SelectKeys(keys)
	if refused != nil {
		f.Fatal(refused)
	}
	stage := 0
	f.must("read the compacted state", f.Store.ReadState(f.ctx, id, nil, pieceBytes, func(a *session.Access) session.Portion {
		return session.Portion{Ranges: selected.Ranges(everything), Compacted: a.Row.CompactedTo(everything)}
	}, func(u *session.Unscoped[*session.StateChunk]) error {
		c := selected.Chunk(u.Shown(everything))
		if c.Compacted != c.Row.Compacted() {
			f.Errorf("a chunk is of the view that is compacted to %+v", c.Compacted)
		}
		for at, n := range []int{len(c.LeftOut), len(c.Turns), len(c.Entries)} {
			if n > 0 && at < stage {
				f.Errorf("the chunks are out of order")
			}
			if n > 0 {
				stage = at
			}
		}
		left = append(left, c.LeftOut...)
		for _, t := range c.Turns {
			turns = append(turns, t.Message)
		}
		for _, e := range c.Entries {
			entries = append(entries, e.Key+"="+string(e.Payload))
		}
		return nil
	}))
	slices.Sort(left)
	slices.Sort(turns)
	slices.Sort(entries)
	return left, turns, entries
}

// checkCompacted compares all ways of reading a session's compacted view with its whole state.
func (f *fixture) checkCompacted(id string) {
	f.Helper()
	entries, turns := f.state(id)
	c := f.log(id).Row.Compacted()
	heads := map[string]*session.Entry{}
	for _, e := range entries {
		if session.HeadOf(e.Key) == e.Key {
			heads[e.Key] = e
		}
	}
	leftOut := func(key string) bool { return c.LeavesOut(heads[session.HeadOf(key)]) }
	for _, keys := range [][]string{nil, {"message/"}, {"part/m1/", "message/m1", "todo/"}, {"part/m"}, {"todo/"}} {
		var left, begun, shown []string
		for _, e := range entries {
			switch {
			case leftOut(e.Key) && session.HeadOf(e.Key) == e.Key:
				left = append(left, strings.TrimPrefix(e.Key, "message/"))
			case !leftOut(e.Key) && capability.CoversKey(keys, e.Key):
				shown = append(shown, e.Key+"="+string(e.Payload))
			}
		}
		for _, t := range turns {
			if key := session.MessageKey(t.Message); !leftOut(key) && capability.CoversKey(keys, key) {
				begun = append(begun, t.Message)
			}
		}
		slices.Sort(left)
		slices.Sort(begun)
		slices.Sort(shown)
		for _, bytes := range []int{1, 1 << 20} {
			what := fmt.Sprintf("%v in pieces of %d: ", keys, bytes)
			gotLeft, gotTurns, got := f.compactedState(id, keys, bytes)
			same(f, what+"left out", gotLeft, left)
			same(f, what+"turns", gotTurns, begun)
			same(f, what+"entries", got, shown)
		}
	}
	for _, prefix := range []string{"", "message/", "part/", "part/m1/"} {
		for _, order := range []session.KeyOrder{session.ByKey, session.ByPut} {
			var want []string
			for _, e := range slices.SortedFunc(slices.Values(entries), func(a, b *session.Entry) int {
				return session.PositionOf(a).Compare(order, session.PositionOf(b))
			}) {
				if strings.HasPrefix(e.Key, prefix) && !leftOut(e.Key) {
					want = append(want, e.Key)
				}
			}
			for _, limit := range []int{1, 3, 100} {
				got := keysOf(f.allKeys(id, session.KeyQuery{Prefix: prefix, Order: order, Limit: limit, Compacted: true}, 1<<20, everything, nil))
				if got != strings.Join(want, " ") {
					f.Errorf("%q by %s, %d a page: %s is listed, want %s", prefix, order, limit, got, want)
				}
			}
		}
	}
}

// Ids whose keys, and whose parts' keys, are in other orders than one another: "/" is behind "-" and ".".
var compactedIDs = []string{"m", "m1", "m-1", "m.1", "m10", "m1.", "n", "a"}

// Random sessions, in both orders, with reverts whose rows leave in pieces.
func testCompactions(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	space := f.space().ID
	for seed := range uint64(seed.Cases(6)) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := newAuthor(space)
		_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
		f.must("open stream", err)
		args := []any{}
		if seed%2 == 1 {
			args = []any{"order", "time"}
		}
		f.commit(o.batch(false, o.create(args...)))
		any := func() string { return compactedIDs[rnd.IntN(len(compactedIDs))] }
		for round := range 8 {
			var ops []ledger.Intent
			for range 1 + rnd.IntN(6) {
				message, part := "message/"+any(), fmt.Sprintf("part/%s/%d", any(), rnd.IntN(2))
				value := fmt.Sprintf(`{"n":%d,"time":{"created":%d}}`, round, 1000+rnd.IntN(6))
				ops = append(ops, [...]ledger.Intent{putOp(message, "%s", value), putOp(part, "%s", value), putOp(part, "%s", value), beginOp(any())(), newIntent(session.MethodFinalize, "message", any(), "status", "completed"),
					newIntent(session.MethodRemove, "key", message), putOp("todo/"+any(), `1`), newIntent(session.MethodCompact, "upto", message, "summary", "message/"+any()),
					newIntent(session.MethodCompact, "upto", message, "summary", message), newIntent(session.MethodRevert, "to", message), newIntent(session.MethodUnrevert)}[rnd.IntN(11)])
			}
			f.commit(o.batch(false, ops...))
			if rnd.IntN(3) == 0 {
				_, err := f.RemoveReverted(f.ctx, 1)
				f.must("remove what was reverted", err)
			}
			f.checkCompacted(o.session)
		}
	}
}

// A compacted session that is trimmed, and one that is deleted.
func testCompactedLife(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	f.applied(o.batch(false, o.create(), putOp("message/a", `{}`), putOp("message/b", `{}`), putOp("message/s", `{"text":"sum"}`), newIntent(session.MethodCompact, "upto", "message/b", "summary", "message/s"), putOp("message/c", `{}`)))
	before := f.log(o.session).Row.Compaction
	if want := (session.Compaction{Upto: "message/b", Ord: session.Ord{At: 3}, Summary: "message/s", Place: session.Ord{At: 4}, Cursor: 5, Actor: before.Actor, At: before.At}); before != want || before.Actor == "" || before.At == 0 {
		t.Errorf("it is compacted to %+v", before)
	}
	f.trim(o.session, keepNothing, 1000)
	if row := f.log(o.session).Row; row.Base == 0 || row.Compaction != before {
		t.Errorf("trimmed to %d, it is compacted to %+v", row.Base, row.Compaction)
	}
	f.checkCompacted(o.session)
	f.applied(o.batch(false, putOp("message/a", `{"more":true}`), newIntent(session.MethodRemove, "key", "message/b")))
	f.checkCompacted(o.session)
	// A message that has left, whose row the database still has, is none that parts are left out with.
	f.applied(o.batch(false, newIntent(session.MethodRevert, "to", "message/c"), putOp("message/d", `{}`)))
	f.applied(o.batch(false, putOp("part/c/1", `{}`), newIntent(session.MethodCompact, "upto", "message/d", "summary", "message/d")))
	f.checkCompacted(o.session)
	f.applied(o.batch(false, newIntent(session.MethodDelete)))
	if row := f.log(o.session).Row; row.Compaction != (session.Compaction{}) {
		t.Errorf("deleted, it is compacted to %+v", row.Compaction)
	}
}
