package history

// The compacted view: what the database reads for it is what is left of the state without what the mark leaves out.

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// Random sessions, in both orders, with reverts whose rows leave in pieces.
func testCompactions(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	space := f.Space().ID
	for seed := range uint64(seed.Cases(6)) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := harness.NewAuthor(space)
		_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
		f.Must("open stream", err)
		args := []any{}
		if seed%2 == 1 {
			args = []any{"order", "time"}
		}
		f.Commit(o.Batch(false, o.Create(args...)))
		any := func() string { return harness.CompactedIDs[rnd.IntN(len(harness.CompactedIDs))] }
		for round := range 8 {
			var ops []ledger.Intent
			for range 1 + rnd.IntN(6) {
				message, part := "message/"+any(), fmt.Sprintf("part/%s/%d", any(), rnd.IntN(2))
				value := fmt.Sprintf(`{"n":%d,"time":{"created":%d}}`, round, 1000+rnd.IntN(6))
				ops = append(ops, [...]ledger.Intent{harness.PutOp(message, "%s", value), harness.PutOp(part, "%s", value), harness.PutOp(part, "%s", value), harness.BeginOp(any())(), harness.NewIntent(session.MethodFinalize, "message", any(), "status", "completed"),
					harness.NewIntent(session.MethodRemove, "key", message), harness.PutOp("todo/"+any(), `1`), harness.NewIntent(session.MethodCompact, "upto", message, "summary", "message/"+any()),
					harness.NewIntent(session.MethodCompact, "upto", message, "summary", message), harness.NewIntent(session.MethodRevert, "to", message), harness.NewIntent(session.MethodUnrevert)}[rnd.IntN(11)])
			}
			f.Commit(o.Batch(false, ops...))
			if rnd.IntN(3) == 0 {
				_, err := f.RemoveReverted(f.Ctx, 1)
				f.Must("remove what was reverted", err)
			}
			f.CheckCompacted(o.Session)
		}
	}
}

// A compacted session that is trimmed, and one that is deleted.
func testCompactedLife(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	f.Applied(o.Batch(false, o.Create(), harness.PutOp("message/a", `{}`), harness.PutOp("message/b", `{}`), harness.PutOp("message/s", `{"text":"sum"}`), harness.NewIntent(session.MethodCompact, "upto", "message/b", "summary", "message/s"), harness.PutOp("message/c", `{}`)))
	before := f.LogOf(o.Session).Row.Compaction
	if want := (session.Compaction{Upto: "message/b", Ord: session.Ord{At: 3}, Summary: "message/s", Place: session.Ord{At: 4}, Cursor: 5, Actor: before.Actor, At: before.At}); before != want || before.Actor == "" || before.At == 0 {
		t.Errorf("it is compacted to %+v", before)
	}
	f.TrimAll(o.Session, harness.KeepNothing, 1000)
	if row := f.LogOf(o.Session).Row; row.Base == 0 || row.Compaction != before {
		t.Errorf("trimmed to %d, it is compacted to %+v", row.Base, row.Compaction)
	}
	f.CheckCompacted(o.Session)
	f.Applied(o.Batch(false, harness.PutOp("message/a", `{"more":true}`), harness.NewIntent(session.MethodRemove, "key", "message/b")))
	f.CheckCompacted(o.Session)
	// A message that has left, whose row the database still has, is none that parts are left out with.
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodRevert, "to", "message/c"), harness.PutOp("message/d", `{}`)))
	f.Applied(o.Batch(false, harness.PutOp("part/c/1", `{}`), harness.NewIntent(session.MethodCompact, "upto", "message/d", "summary", "message/d")))
	f.CheckCompacted(o.Session)
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodDelete)))
	if row := f.LogOf(o.Session).Row; row.Compaction != (session.Compaction{}) {
		t.Errorf("deleted, it is compacted to %+v", row.Compaction)
	}
}
