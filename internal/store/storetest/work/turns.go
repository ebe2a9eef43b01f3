// Turns: which are read for what.

package work

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// testTurns: open turns are read but for orphans, streaming ones with these, and those that
// are counted with the refs that they were begun under.
func testTurns(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	space := harness.Grant(harness.NewRef(harness.NewSpace()), "")
	owner := harness.Grant(harness.NewRef(id), space.ID)
	parent := harness.Grant(harness.NewRef(id), owner.ID)
	child, sibling, orphaned, above := harness.Grant(harness.NewRef(id), parent.ID), harness.Grant(harness.NewRef(id), owner.ID), harness.Grant(harness.NewRef(id), parent.ID), harness.Grant(harness.NewRef(id), owner.ID)
	asked := harness.Grant(harness.NewRef(id), above.ID)
	row, begun := harness.LiveRow(id, space.Target, 1), harness.Event(id, 1, "message/old", `{}`)
	begun.Ref = sibling.ID
	all := map[string]*session.Turn{}
	add := func(message string, status session.TurnStatus, ref string, orphan bool) {
		all[message] = &session.Turn{Session: id, Message: message, Status: status, Outbox: harness.NewOutbox(), Ref: ref, Lease: 1, Begun: uint64(len(all)) + 1, Orphan: orphan}
	}
	add("old", session.Interrupted, "", false) // of a server that noted no ref
	add("streaming", session.Streaming, child.ID, false)
	add("orphan", session.Interrupted, orphaned.ID, true)
	add("streaming-orphan", session.Streaming, orphaned.ID, true)
	add("ended", session.Completed, orphaned.ID, false)
	save := &session.Changes{Sessions: []*session.Row{row}, Events: []*session.Event{begun},
		Grants: []*capability.Grant{space, owner, parent, child, sibling, orphaned, above, asked}}
	for _, m := range sortedKeys(all) {
		save.Turns = append(save.Turns, all[m])
	}
	f.Save(save, id)
	all["old"].Ref = sibling.ID // as its event says

	turns := func(what string, w *session.ReadSet, want ...string) {
		t.Helper()
		got := f.Load(w).Turns[id]
		harness.Same(f, what, sortedKeys(got), slices.Sorted(slices.Values(want)))
		for m, turn := range got {
			harness.Same(f, what+": "+m, turn, all[m])
		}
	}
	turns("open", &session.ReadSet{Turns: []string{id}}, "old", "streaming")
	turns("streaming", &session.ReadSet{StreamingTurns: []string{id}}, "streaming", "streaming-orphan")
	turns("orphans", &session.ReadSet{OpenOrphans: []string{id}}, "orphan", "streaming-orphan")
	turns("by message", &session.ReadSet{TurnsOf: map[string][]string{id: sortedKeys(all)}}, sortedKeys(all)...)

	rows := f.Load(&session.ReadSet{Sessions: []string{id}, Grants: []string{asked.ID}, Turns: []string{id}, CountedTurns: []string{id}})
	refs := func(grants ...*capability.Grant) (ids []string) {
		for _, g := range grants {
			ids = append(ids, g.ID)
		}
		slices.Sort(ids)
		return ids
	}
	got := sortedKeys(rows.Grants)
	got = slices.DeleteFunc(got, func(id string) bool { return id == space.ID }) // may come too
	harness.Same(f, "refs of those that are counted", got, refs(owner, parent, child, sibling, above, asked))
	harness.Same(f, "a ref", rows.Grants[child.ID].Parent, parent.ID)

	// An orphan stays one, though who saves it has not seen that it is.
	again := *all["orphan"]
	again.Orphan, again.Lease = false, 77
	f.Save(&session.Changes{Turns: []*session.Turn{&again}}, id)
	all["orphan"].Lease = 77
	turns("saved again", &session.ReadSet{TurnsOf: map[string][]string{id: {"orphan"}}}, "orphan")
	// In pieces of the state each has its ref.
	pieces := 0
	f.Must("read state", f.ReadState(f.Ctx, id, nil, 1<<20, func(p *session.StateChunk) error {
		for _, turn := range p.Turns {
			pieces++
			harness.Same(f, "in the state: "+turn.Message, turn.Ref, all[turn.Message].Ref)
		}
		return nil
	}))
	harness.Same(f, "turns in the state", pieces, len(all))
}

// testOrphansKeepTheLog: a log is not trimmed beyond where an open turn began, orphans too.
func testOrphansKeepTheLog(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	c := &session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), 5)}}
	for i := uint64(1); i <= 5; i++ {
		c.Events = append(c.Events, harness.Event(id, i, fmt.Sprintf("message/m%d", i), `{}`))
	}
	for i, status := range []session.TurnStatus{session.Completed, 0, session.Interrupted, session.Interrupted} {
		if status != 0 {
			c.Turns = append(c.Turns, &session.Turn{Session: id, Message: fmt.Sprintf("m%d", i+1), Status: status, Begun: uint64(i) + 1, Orphan: i == 2})
		}
	}
	f.Save(c, id)
	f.TrimAll(id, time.Hour, 10)
	harness.Same(f, "base", f.Load(&session.ReadSet{Sessions: []string{id}}).Sessions[id].Base, uint64(2))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
