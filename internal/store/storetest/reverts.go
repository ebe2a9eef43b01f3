package storetest

// Reverts: no read shows what is hidden, and what a settled revert hid leaves the database in pieces, without
// anybody seeing the difference.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// shown is what each way of reading shows of a session: keys, in their order.
func (f *fixture) shown(id string) map[string]string {
	f.Helper()
	shown := map[string]string{}
	all, turns := f.state(id)
	var keys []string
	for _, e := range all {
		keys = append(keys, e.Key)
	}
	slices.Sort(keys)
	shown["state"] = strings.Join(keys, " ")
	for _, t := range turns {
		shown["turns"] += t.Message + " "
	}
	for _, limit := range []int{1, 100} {
		shown[fmt.Sprint("by key, ", limit)] = keysOf(f.allKeys(id, session.KeyQuery{Limit: limit}, 1<<20, everything, nil))
		for _, prefix := range []string{"message/", "part/m2/"} {
			shown[fmt.Sprint(prefix, " by put, ", limit)] = keysOf(f.allKeys(id, session.KeyQuery{Prefix: prefix, Order: session.ByPut, Limit: limit, Values: true}, 1<<20, everything, nil))
		}
	}
	for _, g := range []*capability.Grant{everything, {VisibleFrom: 5}, {Message: "m2"}, {ReadKeys: []string{"message/", "part/m1/"}}} {
		counted := map[string]*session.KindStat{}
		for _, e := range all {
			kind := session.KindOf(e.Key)
			if !session.ShowsEntry(g, e) {
				continue
			}
			if counted[kind] == nil {
				counted[kind] = &session.KindStat{Kind: kind}
			}
			counted[kind].Keys, counted[kind].Bytes = counted[kind].Keys+1, counted[kind].Bytes+uint64(len(e.Payload))
		}
		stat, err := f.ReadStat(f.ctx, id, nil, admits(g))
		f.must("stat", err)
		if len(stat.Kinds) != len(counted) {
			f.Errorf("%v is counted for %+v, the state has %d kinds", stat.Kinds, g, len(counted))
		}
		for _, kind := range stat.Kinds {
			if of := counted[kind.Kind]; of == nil || kind != *of {
				f.Errorf("%v is counted for %+v, the state has %v", kind, g, of)
			}
		}
	}
	page, next, err := f.ReadKeys(f.ctx, id, []string{"message/m1", "message/m2", "part/m2/a", "part/m1/b", "todo/1"}, 1<<20, nil, admits(everything))
	f.must("read keys", err)
	shown["get"] = fmt.Sprintf("%s %d", keysOf(page.Shown(everything).Entries), next)
	for _, most := range []int{1, 100} {
		var outline, ranges []string
		for after := ""; ; {
			page, err := f.ReadOutline(f.ctx, id, after, "~", most, nil)
			f.must("read outline", err)
			for _, e := range page.Entries {
				outline = append(outline, e.Key)
			}
			if after = page.Last; !page.More {
				break
			}
		}
		for after := ""; ; {
			page, err := f.ReadRange(f.ctx, id, after, "~", 1<<20, most, nil)
			f.must("read range", err)
			for _, e := range page.Entries {
				ranges = append(ranges, e.Key)
			}
			for _, t := range page.Turns {
				ranges = append(ranges, "turn "+t.Message)
			}
			if after = page.Last; !page.More {
				break
			}
		}
		shown[fmt.Sprint("outline, ", most)], shown[fmt.Sprint("ranges, ", most)] = strings.Join(outline, " "), strings.Join(ranges, " ")
	}
	values, _, err := f.ReadValues(f.ctx, id, []string{"message/m2", "part/m2/a", "part/m1/b"}, 1<<20, nil)
	f.must("read values", err)
	for _, e := range values.Entries {
		shown["values"] += e.Key + " "
	}
	found, err := f.Search(f.ctx, id, session.SearchQuery{Text: "word", Limit: 100}, nil, admits(everything))
	f.must("search", err)
	for _, e := range found.Shown(everything).Found {
		shown["search"] += e.Key + " "
	}
	return shown
}

// removeReverted removes rows in the smallest pieces until none are due, and fails if a reader sees a difference.
func (f *fixture) removeReverted(o *author) {
	f.Helper()
	before := fmt.Sprint(f.shown(o.session))
	pieces := 0
	for more := true; more; pieces++ {
		var err error
		more, err = f.RemoveReverted(f.ctx, 1)
		f.must("remove what was reverted", err)
		if got := fmt.Sprint(f.shown(o.session)); got != before {
			f.Fatalf("after %d pieces there is\n%v\nwhere there was\n%v", pieces, got, before)
		}
		if pieces > 1000 {
			f.Fatal("it does not end")
		}
	}
	if row := f.log(o.session).Row; row.Left != nil {
		f.Errorf("the row has %+v", row)
	}
}

func testReverts(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	const value = `{"text":"word"}`
	f.applied(o.batch(false, o.create(), putOp("message/m1", value), putOp("part/m1/a", value), putOp("todo/1", value), beginOp("m2")(), putOp("part/m2/a", value), putOp("part/m2/b", value),
		newIntent(session.MethodAppendText, "key", "part/m2/a", "offset", 4, "text", " more"), putOp("message/m3", value), putOp("part/m3/a", value), putOp("part/m1/b", value)))
	whole := f.shown(o.session)
	f.applied(o.batch(false, newIntent(session.MethodRevert, "to", "message/m2")))
	hidden := f.shown(o.session)
	want := "message/m1 part/m1/a part/m1/b todo/1"
	for how, keys := range map[string]string{"state": want, "by key, 1": want, "by key, 100": want, "outline, 1": want, "outline, 100": want, "ranges, 1": want, "message/ by put, 1": "message/m1", "part/m2/ by put, 1": "",
		"get": "message/m1 part/m1/b todo/1 5", "values": "part/m1/b ", "search": "part/m1/b todo/1 part/m1/a message/m1 ", "turns": ""} {
		if hidden[how] != keys {
			t.Errorf("%s: %q is shown of a reverted session, want %q", how, hidden[how], keys)
		}
	}
	if r := f.log(o.session).Row.Revert; r.To != "message/m2" || r.Ord == (session.Ord{}) || r.Cursor == 0 || r.Actor == "" {
		t.Errorf("the row says that it is reverted to %+v", r)
	}
	f.applied(o.batch(false, newIntent(session.MethodUnrevert)))
	back := f.shown(o.session)
	whole["ranges, 1"], whole["ranges, 100"], back["ranges, 1"], back["ranges, 100"] = "", "", "", "" // the turn has ended
	for how := range whole {
		if back[how] != whole[how] {
			t.Errorf("%s: %q is shown again, of %q", how, back[how], whole[how])
		}
	}

	f.applied(o.batch(false, newIntent(session.MethodRevert, "cursor", 3)))
	if got := f.shown(o.session)["state"]; got != want {
		t.Errorf("reverted to the first message after a cursor, there is %s", got)
	}
	f.applied(o.batch(false, putOp("message/m4", `{}`), putOp("part/m3/a", value)))
	settled := f.shown(o.session)
	if want := "message/m1 message/m4 part/m1/a part/m1/b part/m3/a todo/1"; settled["state"] != want {
		t.Errorf("settled, there is %s", settled["state"])
	}
	f.applied(o.batch(false, putOp("message/m2", `{"anew":true}`)))
	f.removeReverted(o)
	if row := f.log(o.session).Row; row.Revert.InForce() {
		t.Errorf("the row has %+v", row)
	}

	// Parts of a message that stays, with all that comes after it in the session's order, of which a part is put again.
	f.applied(o.batch(false, putOp("part/m2/c", value), putOp("part/m2/d", value), putOp("message/m5", value), putOp("part/m5/a", value), putOp("part/m4/late", value)))
	f.applied(o.batch(false, newIntent(session.MethodRevert, "to", "part/m2/c")))
	f.applied(o.batch(false, beginOp("m6")()))
	f.applied(o.batch(false, putOp("part/m2/d", `{"again":1}`)))
	if got, want := f.shown(o.session)["state"], "message/m1 message/m2 message/m4 message/m6 part/m1/a part/m1/b part/m2/d part/m3/a part/m4/late todo/1"; got != want {
		t.Errorf("settled to a part, there is %s", got)
	}
	f.removeReverted(o)

	// As many events are counted as a ref is shown.
	f.applied(o.batch(false, newIntent(session.MethodRevert, "to", "message/m4"), newIntent(session.MethodPurge, "key", "message/m4")))
	for _, g := range []*capability.Grant{{ReadKeys: []string{"part/m4/"}}, {ReadKeys: []string{"part/"}}, {ReadKeys: []string{"part/m1/a"}}, {ReadKeys: []string{"todo/"}}, {Message: "m4"}} {
		stat, err := f.ReadStat(f.ctx, o.session, nil, admits(g))
		f.must("stat", err)
		count := 0
		for _, e := range session.NewUnscoped(f.log(o.session)).Shown(g).Events {
			if !e.Hidden {
				count++
			}
		}
		if stat.Events != uint64(count) {
			t.Errorf("%d events are counted for a ref of %v%s, which is shown %d", stat.Events, g.ReadKeys, g.Message, count)
		}
	}
	f.applied(o.batch(false, newIntent(session.MethodDelete)))
}
