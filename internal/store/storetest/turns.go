// Turns: which are read for what.

package storetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// testTurns: open turns are read but for orphans, streaming ones with these, and those that
// are counted with the refs that they were begun under.
func testTurns(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	space := grant(newRef(newSpace()), "")
	owner := grant(newRef(id), space.ID)
	parent := grant(newRef(id), owner.ID)
	child, sibling, orphaned, above := grant(newRef(id), parent.ID), grant(newRef(id), owner.ID), grant(newRef(id), parent.ID), grant(newRef(id), owner.ID)
	asked := grant(newRef(id), above.ID)
	row, begun := liveRow(id, space.Target, 1), event(id, 1, "message/old", `{}`)
	begun.Ref = sibling.ID
	all := map[string]*session.Turn{}
	add := func(message string, status session.TurnStatus, ref string, orphan bool) {
		all[message] = &session.Turn{Session: id, Message: message, Status: status, Outbox: newOutbox(), Ref: ref, Lease: 1, Begun: uint64(len(all)) + 1, Orphan: orphan}
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
	f.save(save, id)
	all["old"].Ref = sibling.ID // as its event says

	turns := func(what string, w *session.ReadSet, want ...string) {
		t.Helper()
		got := f.load(w).Turns[id]
		same(f, what, sortedKeys(got), slices.Sorted(slices.Values(want)))
		for m, turn := range got {
			same(f, what+": "+m, turn, all[m])
		}
	}
	turns("open", &session.ReadSet{Turns: []string{id}}, "old", "streaming")
	turns("streaming", &session.ReadSet{StreamingTurns: []string{id}}, "streaming", "streaming-orphan")
	turns("orphans", &session.ReadSet{OpenOrphans: []string{id}}, "orphan", "streaming-orphan")
	turns("by message", &session.ReadSet{TurnsOf: map[string][]string{id: sortedKeys(all)}}, sortedKeys(all)...)

	rows := f.load(&session.ReadSet{Sessions: []string{id}, Grants: []string{asked.ID}, Turns: []string{id}, CountedTurns: []string{id}})
	refs := func(grants ...*capability.Grant) (ids []string) {
		for _, g := range grants {
			ids = append(ids, g.ID)
		}
		slices.Sort(ids)
		return ids
	}
	got := sortedKeys(rows.Grants)
	got = slices.DeleteFunc(got, func(id string) bool { return id == space.ID }) // may come too
	same(f, "refs of those that are counted", got, refs(owner, parent, child, sibling, above, asked))
	same(f, "a ref", rows.Grants[child.ID].Parent, parent.ID)

	// An orphan stays one, though who saves it has not seen that it is.
	again := *all["orphan"]
	again.Orphan, again.Lease = false, 77
	f.save(&session.Changes{Turns: []*session.Turn{&again}}, id)
	all["orphan"].Lease = 77
	turns("saved again", &session.ReadSet{TurnsOf: map[string][]string{id: {"orphan"}}}, "orphan")
	// In pieces of the state each has its ref.
	pieces := 0
	f.must("read state", f.ReadState(f.ctx, id, nil, 1<<20, func(p *session.StateChunk) error {
		for _, turn := range p.Turns {
			pieces++
			same(f, "in the state: "+turn.Message, turn.Ref, all[turn.Message].Ref)
		}
		return nil
	}))
	same(f, "turns in the state", pieces, len(all))
}

// testOrphansKeepTheLog: a log is not trimmed beyond where an open turn began, orphans too.
func testOrphansKeepTheLog(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	c := &session.Changes{Sessions: []*session.Row{liveRow(id, newSpace(), 5)}}
	for i := uint64(1); i <= 5; i++ {
		c.Events = append(c.Events, event(id, i, fmt.Sprintf("message/m%d", i), `{}`))
	}
	for i, status := range []session.TurnStatus{session.Completed, 0, session.Interrupted, session.Interrupted} {
		if status != 0 {
			c.Turns = append(c.Turns, &session.Turn{Session: id, Message: fmt.Sprintf("m%d", i+1), Status: status, Begun: uint64(i) + 1, Orphan: i == 2})
		}
	}
	f.save(c, id)
	f.trim(id, time.Hour, 10)
	same(f, "base", f.load(&session.ReadSet{Sessions: []string{id}}).Sessions[id].Base, uint64(2))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
