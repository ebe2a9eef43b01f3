// Rows come back as they were saved.

package sessions

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// testRoundTrip writes one of everything, with every field set, and reads it
// through every part of Want.
func testRoundTrip(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, space, outbox := harness.NewSession(), harness.NewSpace(), harness.NewOutbox()
	row := &session.Row{ID: id, Space: space, External: "ses-outside", Life: session.Live, Cursor: 3, Base: 1, Head: harness.Hash(),
		Epoch: 4, AuthGen: 5, Created: 6, Updated: 7, Creator: outbox, Order: session.ByTime}
	stream := &ledger.Stream{Session: id, Outbox: outbox, SecretHash: harness.Hash(), Incarnation: 1 << 63, LastSeq: 9, AckedThrough: 8,
		AckedOp: harness.NewOp(), AckedDigest: harness.Hash()}
	full := &ledger.Record{BatchID: harness.NewOp(), FirstSeq: 9, Outcomes: []ledger.Outcome{
		{OpID: harness.NewOp(), Digest: harness.Hash(), Status: ledger.Applied, Cursor: 3, Result: []byte(`{"cursor":3,"x":"Ünïcödé \u0000"}`)},
		{OpID: harness.NewOp(), Digest: harness.Hash(), Status: ledger.Denied, Reason: fault.StaleEpoch, Message: "epoch 1, now 2\n"},
		{OpID: harness.NewOp(), Digest: harness.Hash(), Status: ledger.Skipped, Reason: fault.WrongOffset, Cause: harness.NewOp(), At: 77},
	}}
	first := harness.Event(id, 1, "message/msg_1", `{"a":  1, "z":"é \u0000 😀","a":2}`)
	second := harness.Event(id, 2, "part/msg_1/prt_1", `{"text":"b"}`)
	third := harness.Event(id, 3, "model/x/y", `{}`)
	third.Method, third.Outbox, third.Op, third.Batch, third.Ref, third.Actor = session.MethodInterrupted, "", "", "", "", ""
	inEvent, own := harness.EntryOf(first), harness.EntryOf(second)
	own.Payload, own.TextLen, own.LastAppend, own.Since = []byte(`{"text":"own value"}`), session.NoText, 3, 1
	own.Ord.Index = 7
	turn := &session.Turn{Session: id, Message: "msg_1", Status: session.Interrupted, Outbox: outbox, Ref: harness.NewRef(id), Lease: 123, Begun: 1, Ended: 2, Final: harness.Hash()}
	ended := &session.Turn{Session: id, Message: "msg_0", Status: session.Failed, Outbox: outbox, Ref: harness.NewRef(id), Lease: 1, Begun: 1, Ended: 2, Final: harness.Hash(), Orphan: true}
	g := &capability.Grant{ID: harness.NewRef(id), Target: id, Parent: harness.NewRef(space), Hash: harness.Hash(), Owner: true, Epoch: 3,
		Rights: capability.SessionRights, Methods: []string{"put", "remove"}, Expires: 10, VisibleFrom: 11, MaxRedemptions: 12, Redemptions: 13,
		Message: "msg_1", Seal: []byte("a key"), Label: "lábel", Actor: "owner/x", Created: 14, Revoked: 15, Cut: 16, RevokedBy: harness.NewRef(id)}
	none := harness.Grant(harness.NewRef(id), g.ID)
	none.Methods = []string{} // no method at all, which is not the same as all
	keys, written := *g, *harness.Grant(harness.NewRef(id), g.ID)
	keys.ID, keys.Message, keys.ReadKeys, keys.WriteKeys = harness.NewRef(id), "", []string{"todo/", "message/msg_1"}, []string{"todo/mine/"}
	written.WriteKeys = []string{"plan"}
	kinds := harness.Grant(harness.NewRef(id), g.ID)
	kinds.AskKinds, kinds.AnswerKinds = []string{"prompt", "stop"}, []string{"permission"}
	reaching := harness.Grant(harness.NewRef(id), g.ID)
	reaching.Children = capability.Read | capability.Compact
	f.Save(&session.Changes{
		Sessions: []*session.Row{row}, Streams: []*ledger.Stream{stream},
		Records: []session.StreamRecord{{Stream: session.StreamKey{Session: id, Outbox: outbox}, Record: full}},
		Events:  []*session.Event{first, second, third}, Entries: []*session.Entry{inEvent, own},
		Turns: []*session.Turn{turn, ended}, Grants: []*capability.Grant{g, none, &keys, &written, reaching, kinds},
	}, id)

	g.Rights, keys.Rights = capability.OwnerRights, capability.OwnerRights // an owner's ref is stored without the later rights, and has them
	key := session.StreamKey{Session: id, Outbox: outbox}
	named, other := session.ExternalID{Space: space, SpaceRef: g.Parent, ID: "ses-outside"}, session.ExternalID{Space: space, SpaceRef: g.Parent, ID: "other"}
	rows := f.Load(&session.ReadSet{
		Sessions: []string{id}, Spaces: []string{space}, Streams: []session.StreamKey{key},
		Records: []session.RecordRange{{Stream: key, From: 11, To: 11}}, Grants: []string{g.ID, none.ID, keys.ID, written.ID, reaching.ID, kinds.ID, harness.NewRef(id)},
		Entries: map[string][]string{id: {inEvent.Key, own.Key, "message/none"}},
		TurnsOf: map[string][]string{id: {"msg_1", "msg_0", "msg_none"}},
		Logs:    map[string]uint64{id: 2}, External: []session.ExternalID{named, other},
	})
	harness.Same(f, "session", rows.Sessions[id], row)
	harness.Same(f, "stream", rows.Streams[key], stream)
	harness.Same(f, "records", rows.Records[key], []*ledger.Record{full})
	harness.Same(f, "grant", rows.Grants[g.ID], g)
	harness.Same(f, "grant without methods", rows.Grants[none.ID], none)
	harness.Same(f, "grant for keys", rows.Grants[keys.ID], &keys)
	harness.Same(f, "grant that writes a key", rows.Grants[written.ID], &written)
	harness.Same(f, "grant for kinds of requests", rows.Grants[kinds.ID], kinds)
	harness.Same(f, "grant that reaches children", rows.Grants[reaching.ID], reaching)
	inEvent.Payload = first.Payload
	harness.Same(f, "entry in its event", rows.Entries[id][inEvent.Key], inEvent)
	harness.Same(f, "entry of its own", rows.Entries[id][own.Key], own)
	harness.Same(f, "turns", rows.Turns[id], map[string]*session.Turn{"msg_1": turn, "msg_0": ended})
	harness.Same(f, "log", rows.Logs[id], []*session.Event{first, second})
	harness.Same(f, "externals", rows.External, map[session.ExternalID]string{named: id})
	if len(rows.Grants) != 6 || len(rows.Entries[id]) != 2 {
		f.Errorf("found what is not there: %v %v", rows.Grants, rows.Entries)
	}
	if rows.Now <= 0 {
		f.Errorf("no clock: now is %d", rows.Now)
	}

	rows = f.Load(&session.ReadSet{Sessions: []string{id}, EntryMeta: map[string][]string{id: {inEvent.Key, own.Key}}, Turns: []string{id}})
	inEvent.Payload, own.Payload = nil, nil
	harness.Same(f, "heads", rows.Entries[id], map[string]*session.Entry{inEvent.Key: inEvent, own.Key: own})
	harness.Same(f, "open turns", rows.Turns[id], map[string]*session.Turn{"msg_1": turn})
}

// testReplace saves rows over rows.
func testReplace(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, outbox := harness.NewSession(), harness.NewOutbox()
	key := session.StreamKey{Session: id, Outbox: outbox}
	row := harness.LiveRow(id, harness.NewSpace(), 1)
	e := harness.Event(id, 1, "message/m", `{"v":1}`)
	stream := &ledger.Stream{Session: id, Outbox: outbox, SecretHash: harness.Hash(), Incarnation: 1}
	turn := &session.Turn{Session: id, Message: "m", Status: session.Streaming, Outbox: outbox, Ref: harness.NewRef(id), Lease: 1, Begun: 1}
	own := harness.EntryOf(e)
	own.Payload = []byte(`{"own":true}`)
	gone := &session.Entry{Session: id, Key: "message/gone", Cursor: 1, Payload: []byte(`{}`)}
	f.Save(&session.Changes{Sessions: []*session.Row{row}, Streams: []*ledger.Stream{stream}, Events: []*session.Event{e},
		Entries: []*session.Entry{own, gone}, Turns: []*session.Turn{turn}}, id)

	row.Cursor, row.Head, row.AuthGen, row.Epoch, row.Updated = 2, harness.Hash(), 9, 8, 7
	stream.LastSeq, stream.Incarnation, stream.AckedThrough, stream.AckedOp, stream.AckedDigest = 5, 6, 4, harness.NewOp(), harness.Hash()
	turn.Status, turn.Ended, turn.Final, turn.Lease = session.Completed, 2, harness.Hash(), 99
	e2 := harness.Event(id, 2, "message/m", `{"v":2}`)
	next := harness.EntryOf(e2)
	f.Save(&session.Changes{Sessions: []*session.Row{row}, Streams: []*ledger.Stream{stream}, Events: []*session.Event{e2},
		Entries: []*session.Entry{next}, DropEntries: map[string][]string{id: {"message/gone", "message/never"}},
		Turns: []*session.Turn{turn}}, id)
	rows := f.Load(&session.ReadSet{Sessions: []string{id}, Streams: []session.StreamKey{key}, Prefixes: map[string][]string{id: {""}},
		TurnsOf: map[string][]string{id: {"m"}}, Turns: []string{id}})
	next.Payload = e2.Payload
	harness.Same(f, "session", rows.Sessions[id], row)
	harness.Same(f, "stream", rows.Streams[key], stream)
	harness.Same(f, "entries", rows.Entries[id], map[string]*session.Entry{"message/m": next})
	harness.Same(f, "turn", rows.Turns[id]["m"], turn)

	// A delta changes two columns and leaves what holds the payload.
	own.Payload = []byte(`{"text":"x"}`)
	f.Save(&session.Changes{Entries: []*session.Entry{own}}, id)
	f.Save(&session.Changes{Appended: []*session.Entry{{Session: id, Key: own.Key, TextLen: 12, LastAppend: 3}}}, id)
	own.TextLen, own.LastAppend = 12, 3
	rows = f.Load(&session.ReadSet{Sessions: []string{id}, Entries: map[string][]string{id: {own.Key}}})
	harness.Same(f, "grown entry", rows.Entries[id][own.Key], own)

	// Many parts at once.
	const many = 50
	var parts, grown []*session.Entry
	for i := range many {
		key := fmt.Sprintf("part/m/p%02d", i)
		parts = append(parts, &session.Entry{Session: id, Key: key, Cursor: 2, Payload: []byte(`{}`)})
		grown = append(grown, &session.Entry{Session: id, Key: key, TextLen: uint64(i), LastAppend: uint64(i + 3)})
	}
	f.Save(&session.Changes{Entries: parts}, id)
	f.Save(&session.Changes{Appended: grown}, id)
	rows = f.Load(&session.ReadSet{Sessions: []string{id}, Prefixes: map[string][]string{id: {"part/m/p"}}})
	for i, p := range parts {
		p.TextLen, p.LastAppend = grown[i].TextLen, grown[i].LastAppend
		harness.Same(f, "one of many grown entries", rows.Entries[id][p.Key], p)
	}
}

// testAbsent: a session that is locked without being there gets a row.
func testAbsent(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	a, b := harness.NewSession(), harness.NewSession()
	rows := f.Load(&session.ReadSet{Sessions: []string{b, a, a}})
	for _, id := range []string{a, b} {
		harness.Same(f, "absent row", rows.Sessions[id], &session.Row{ID: id})
	}
	sight, err := f.ReadAccess(f.Ctx, a, nil)
	f.Must("look", err)
	harness.Same(f, "absent row afterwards", sight.Row, &session.Row{ID: a})
	row := harness.LiveRow(a, harness.NewSpace(), 1)
	f.Save(&session.Changes{Sessions: []*session.Row{row}}, a)
	harness.Same(f, "row", f.Load(&session.ReadSet{Sessions: []string{a}}).Sessions[a], row)
}

// testLockOnce: only the first Load locks.
func testLockOnce(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	a, b := harness.NewSession(), harness.NewSession()
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(a, harness.NewSpace(), 0)}}, a)
	err := f.Update(f.Ctx, func(tx session.Tx) error {
		first, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{a}})
		if err != nil {
			return err
		}
		if _, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{b}}); err == nil {
			t.Error("a second load locked another session")
		}
		again, err := tx.Load(f.Ctx, &session.ReadSet{Turns: []string{a}})
		if err != nil {
			return err
		}
		if again.Now != first.Now {
			t.Errorf("two nows in a transaction: %d and %d", first.Now, again.Now)
		}
		return nil
	})
	f.Must("update", err)
	sight, err := f.ReadAccess(f.Ctx, b, nil)
	f.Must("look", err)
	if sight.Row != nil {
		t.Errorf("the refused load made a row: %+v", sight.Row)
	}
}

// testRecords finds records by seq and by op, and prunes them.
func testRecords(t *testing.T, fresh harness.Fresh) {
	manyOps := func(n int) (ids []string) {
		for range n {
			ids = append(ids, harness.NewOp())
		}
		return ids
	}
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	key := session.StreamKey{Session: id, Outbox: harness.NewOutbox()}
	other := session.StreamKey{Session: id, Outbox: harness.NewOutbox()}
	var ops []string
	for range 10 {
		ops = append(ops, harness.NewOp())
	}
	one, two, three := harness.Record(1, ops[0:3]...), harness.Record(4, ops[3:4]...), harness.Record(5, ops[4:10]...)
	two.Outcomes[0].Cause = ops[9] // text that only looks like the op's own record
	strange := harness.Record(1, harness.NewOp())
	f.Save(&session.Changes{Records: []session.StreamRecord{{Stream: key, Record: three}, {Stream: key, Record: one},
		{Stream: key, Record: two}, {Stream: other, Record: strange}}}, id)

	find := func(r session.RecordRange) []*ledger.Record {
		t.Helper()
		rows := f.Load(&session.ReadSet{Sessions: []string{id}, Records: []session.RecordRange{r}})
		for k := range rows.Records {
			if k != r.Stream {
				t.Errorf("records of another stream: %v", k)
			}
		}
		return rows.Records[r.Stream]
	}
	for _, c := range []struct {
		what string
		r    session.RecordRange
		want []*ledger.Record
	}{
		{"all", session.RecordRange{From: 1, To: 1 << 63}, []*ledger.Record{one, two, three}},
		{"an edge", session.RecordRange{From: 3, To: 4}, []*ledger.Record{one, two}},
		{"inside", session.RecordRange{From: 6, To: 7}, []*ledger.Record{three}},
		{"beyond", session.RecordRange{From: 11, To: ^uint64(0)}, nil},
		{"none", session.RecordRange{}, nil},
		{"by op", session.RecordRange{Ops: []string{ops[9], harness.NewOp()}}, []*ledger.Record{three}},
		{"by many ops", session.RecordRange{Ops: append(manyOps(20), ops[9])}, []*ledger.Record{three}},
		{"by many ops", session.RecordRange{Ops: append([]string{harness.NewOp()}, ops[3:]...)}, []*ledger.Record{two, three}},
		{"by one record's ops", session.RecordRange{Ops: append([]string{harness.NewOp(), harness.NewOp(), harness.NewOp()}, ops[4:]...)}, []*ledger.Record{three}},
		{"by ops and seq", session.RecordRange{From: 1, To: 4, Ops: []string{ops[0], ops[2], ops[9]}}, []*ledger.Record{one, two, three}},
	} {
		c.r.Stream = key
		harness.Same(f, c.what, find(c.r), c.want)
	}

	all := session.RecordRange{Stream: key, From: 1, To: 100}
	f.Save(&session.Changes{Prune: []session.StreamPrune{{Stream: key, Through: 3}}}, id)
	harness.Same(f, "pruned to 3", find(all), []*ledger.Record{two, three})
	f.Save(&session.Changes{Prune: []session.StreamPrune{{Stream: key, Through: 9}}}, id)
	harness.Same(f, "pruned into the last", find(all), []*ledger.Record{three})
	f.Save(&session.Changes{Prune: []session.StreamPrune{{Stream: key, Through: 10}}}, id)
	harness.Same(f, "pruned", find(all), nil)
	harness.Same(f, "the other stream's", find(session.RecordRange{Stream: other, From: 1, To: 1}), []*ledger.Record{strange})
}

// testPrefixes: every entry below a prefix and nothing beside it.
func testPrefixes(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, neighbour := harness.NewSession(), harness.NewSession()
	keys := []string{"message/m1", "model/a/b", "part/m1/p1", "part/m1/p2", "part/m10/p1", "part/m1.x/p", "part/m1", "session", "session_diff"}
	var entries []*session.Entry
	for _, s := range []string{id, neighbour} {
		for _, k := range keys {
			entries = append(entries, &session.Entry{Session: s, Key: k, Cursor: 1, Payload: []byte(`{}`)})
		}
	}
	f.Save(&session.Changes{Entries: entries}, id, neighbour)
	for prefix, want := range map[string][]string{
		"":          keys,
		"part/m1/":  {"part/m1/p1", "part/m1/p2"},
		"part/":     {"part/m1", "part/m1.x/p", "part/m1/p1", "part/m1/p2", "part/m10/p1"},
		"session":   {"session", "session_diff"},
		"message/x": nil,
	} {
		rows := f.Load(&session.ReadSet{Sessions: []string{id}, Prefixes: map[string][]string{id: {prefix}}})
		var got []string
		for k := range rows.Entries[id] {
			got = append(got, k)
		}
		slices.Sort(got)
		slices.Sort(want)
		harness.Same(f, "below "+prefix, got, want)
		if len(rows.Entries[neighbour]) != 0 {
			t.Errorf("below %q: entries of another session", prefix)
		}
	}
}

// testDeltas joins a part's deltas after a cursor, and nobody else's.
func testDeltas(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, other := harness.NewSession(), harness.NewSession()
	a, b := "part/m/a", "part/m/b"
	put := harness.Event(id, 4, a, `{"text":"put"}`)
	f.Save(&session.Changes{Events: []*session.Event{
		harness.DeltaEvent(id, 1, a, "one "), harness.DeltaEvent(id, 2, b, "zwei "), harness.DeltaEvent(id, 3, a, "three "), put,
		harness.DeltaEvent(id, 5, a, "fünf "), harness.DeltaEvent(id, 6, b, "six "), harness.DeltaEvent(id, 7, a, "\"seven\""), harness.DeltaEvent(other, 1, a, "other"),
	}}, id, other)
	rows := f.Load(&session.ReadSet{Sessions: []string{id}, Deltas: map[string]map[string]uint64{
		id: {a: 4, b: 0, "part/m/none": 0}, other: {b: 0}}})
	harness.Same(f, "deltas", rows.Deltas, map[string]map[string][]byte{id: {a: []byte(`fünf "seven"`), b: []byte("zwei six ")}})
}

// testDropState: of a deleted session stay its row, the chain and its refs.
func testDropState(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, alive, space := harness.NewSession(), harness.NewSession(), harness.NewSpace()
	maker := harness.NewRef(space)
	var grants []*capability.Grant
	var rows []*session.Row
	var events []*session.Event
	var entries []*session.Entry
	var turns []*session.Turn
	for _, s := range []string{id, alive} {
		row := harness.LiveRow(s, space, 1)
		row.External = "ext-" + s
		e := harness.Event(s, 1, "message/m", `{"v":1}`)
		rows, events, entries = append(rows, row), append(events, e), append(entries, harness.EntryOf(e))
		turns = append(turns, &session.Turn{Session: s, Message: "m", Status: session.Streaming, Begun: 1})
		owner := harness.Grant(harness.NewRef(s), maker)
		owner.Owner, owner.Rights = true, capability.OwnerRights
		grants = append(grants, owner)
	}
	g := grants[0]
	f.Save(&session.Changes{Sessions: rows, Events: events, Entries: entries, Turns: turns, Grants: grants}, id, alive)

	// In the same group as a last put: that goes too.
	late := harness.Event(id, 2, "message/late", `{"v":2}`)
	del := harness.Event(id, 3, "", `{}`)
	del.Method = session.MethodDelete
	rows[0].Life, rows[0].Cursor, rows[0].AuthGen = session.Deleted, 3, 2
	f.Save(&session.Changes{Sessions: rows[:1], Events: []*session.Event{late, del}, Entries: []*session.Entry{harness.EntryOf(late)},
		DropState: []string{id}}, id)

	got := f.Load(&session.ReadSet{Sessions: []string{id, alive}, Prefixes: map[string][]string{id: {""}, alive: {""}}, Turns: []string{alive, id},
		TurnsOf: map[string][]string{id: {"m"}}, Logs: map[string]uint64{id: 9, alive: 9}, Grants: []string{g.ID},
		External: []session.ExternalID{{Space: space, SpaceRef: maker, ID: "ext-" + alive}, {Space: space, SpaceRef: maker, ID: "ext-" + id}}})
	harness.Same(f, "row", got.Sessions[id], rows[0])
	harness.Same(f, "grant", got.Grants[g.ID], g)
	harness.Same(f, "externals", got.External, map[session.ExternalID]string{{Space: space, SpaceRef: maker, ID: "ext-" + alive}: alive})
	if len(got.Entries[id]) != 0 || len(got.Turns[id]) != 0 {
		t.Errorf("state of a deleted session: %v %v", got.Entries[id], got.Turns[id])
	}
	for _, e := range []*session.Event{events[0], late, del} {
		e.Payload = nil
	}
	harness.Same(f, "log", got.Logs[id], []*session.Event{events[0], late, del})
	harness.Same(f, "the other's log", got.Logs[alive], []*session.Event{events[1]})
	if len(got.Entries[alive]) != 1 || len(got.Turns[alive]) != 1 {
		t.Errorf("state of the other session: %v %v", got.Entries[alive], got.Turns[alive])
	}
}

// testExternals: who looks for an external id finds the living session that it was
// given to under its own ref, after a rotation of that too, whatever others have made.
func testExternals(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	space := harness.NewSpace()
	mine, others, nobody := harness.NewRef(space), harness.NewRef(space), harness.NewRef(space)
	made := func(maker, external string) *session.Row {
		t.Helper()
		row := harness.LiveRow(harness.NewSession(), space, 1)
		row.External = external
		owner, below := harness.Grant(harness.NewRef(row.ID), maker), harness.Grant(harness.NewRef(row.ID), nobody)
		owner.Owner, owner.Rights = true, capability.OwnerRights
		f.Save(&session.Changes{Sessions: []*session.Row{row}, Grants: []*capability.Grant{owner, below}}, row.ID)
		return row
	}
	ids := func(makers ...string) (list []session.ExternalID) {
		for _, m := range makers {
			list = append(list, session.ExternalID{Space: space, SpaceRef: m, ID: "ext"})
		}
		return list
	}
	check := func(what string, want map[session.ExternalID]string) {
		t.Helper()
		list := append(ids(mine, others, nobody), session.ExternalID{Space: harness.NewSpace(), SpaceRef: mine, ID: "ext"})
		harness.Same(f, what, f.Load(&session.ReadSet{External: list}).External, want)
	}
	check("nobody has it", map[session.ExternalID]string{})
	theirs := made(others, "ext")
	made(mine, "another")
	check("another has it", map[session.ExternalID]string{ids(others)[0]: theirs.ID})
	first := made(mine, "ext")
	made(mine, "ext")
	both := map[session.ExternalID]string{ids(others)[0]: theirs.ID, ids(mine)[0]: first.ID}
	check("both have it", both)
	theirs.Life = session.Deleted
	f.Save(&session.Changes{Sessions: []*session.Row{theirs}, DropState: []string{theirs.ID}}, theirs.ID)
	delete(both, ids(others)[0])
	check("the other's is deleted", both)
	f.Save(&session.Changes{Rotate: []session.RotatedGrant{{ID: mine, By: others, At: 1}}}, first.ID)
	check("rotated", map[session.ExternalID]string{ids(others)[0]: first.ID})
}

// testLargePayload: 4 MiB, byte for byte.
func testLargePayload(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	payload := `{"text":"` + strings.Repeat("0123456789abcdé\\n", 4<<20/18) + `"}`
	e := harness.Event(id, 1, "part/m/p", payload)
	f.Save(&session.Changes{Events: []*session.Event{e}, Entries: []*session.Entry{harness.EntryOf(e)}}, id)
	page, err := f.ReadLog(f.Ctx, id, 0, 1, 10, nil)
	f.Must("read log", err)
	if len(page.Events) != 1 || !bytes.Equal(page.Events[0].Payload, []byte(payload)) {
		t.Errorf("the payload is not what was written")
	}
	rows := f.Load(&session.ReadSet{Sessions: []string{id}, Entries: map[string][]string{id: {e.Key}}})
	if !bytes.Equal(rows.Entries[id][e.Key].Payload, []byte(payload)) {
		t.Errorf("the entry's payload is not what was written")
	}
}

// testLargeGroup: a group as large as they come.
func testLargeGroup(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	const sessions, each = 10, 200
	c := &session.Changes{}
	var ids []string
	keys := map[string][]string{}
	for range sessions {
		ids = append(ids, harness.NewSession())
	}
	for _, id := range ids {
		c.Sessions = append(c.Sessions, harness.LiveRow(id, "spc", each))
		for i := range each {
			e := harness.Event(id, uint64(i+1), fmt.Sprintf("message/m%d", i), fmt.Sprintf(`{"i":%d}`, i))
			c.Events, c.Entries = append(c.Events, e), append(c.Entries, harness.EntryOf(e))
			keys[id] = append(keys[id], e.Key)
		}
	}
	f.Save(c, ids...)
	rows := f.Load(&session.ReadSet{Sessions: ids, Entries: keys})
	for _, id := range ids {
		if len(rows.Entries[id]) != each {
			t.Fatalf("%d entries of %d", len(rows.Entries[id]), each)
		}
	}
}
