package history

// Reverts: no read shows what is hidden, and what a settled revert hid leaves the database in pieces, without
// anybody seeing the difference.

import (
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// removeReverted removes rows in the smallest pieces until none are due, and fails if a reader sees a difference.
func removeReverted(f *harness.Fixture, o *harness.Author) {
	f.Helper()
	before := fmt.Sprint(f.Shown(o.Session))
	pieces := 0
	for more := true; more; pieces++ {
		var err error
		more, err = f.RemoveReverted(f.Ctx, 1)
		f.Must("remove what was reverted", err)
		if got := fmt.Sprint(f.Shown(o.Session)); got != before {
			f.Fatalf("after %d pieces there is\n%v\nwhere there was\n%v", pieces, got, before)
		}
		if pieces > 1000 {
			f.Fatal("it does not end")
		}
	}
	if row := f.LogOf(o.Session).Row; row.Left != nil {
		f.Errorf("the row has %+v", row)
	}
}

func testReverts(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	const value = `{"text":"word"}`
	f.Applied(o.Batch(false, o.Create(), harness.PutOp("message/m1", value), harness.PutOp("part/m1/a", value), harness.PutOp("todo/1", value), harness.BeginOp("m2")(), harness.PutOp("part/m2/a", value), harness.PutOp("part/m2/b", value),
		harness.NewIntent(session.MethodAppendText, "key", "part/m2/a", "offset", 4, "text", " more"), harness.PutOp("message/m3", value), harness.PutOp("part/m3/a", value), harness.PutOp("part/m1/b", value)))
	whole := f.Shown(o.Session)
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodRevert, "to", "message/m2")))
	hidden := f.Shown(o.Session)
	want := "message/m1 part/m1/a part/m1/b todo/1"
	for how, keys := range map[string]string{"state": want, "by key, 1": want, "by key, 100": want, "outline, 1": want, "outline, 100": want, "ranges, 1": want, "message/ by put, 1": "message/m1", "part/m2/ by put, 1": "",
		"get": "message/m1 part/m1/b todo/1 5", "values": "part/m1/b ", "search": "part/m1/b todo/1 part/m1/a message/m1 ", "turns": ""} {
		if hidden[how] != keys {
			t.Errorf("%s: %q is shown of a reverted session, want %q", how, hidden[how], keys)
		}
	}
	if r := f.LogOf(o.Session).Row.Revert; r.To != "message/m2" || r.Ord == (session.Ord{}) || r.Cursor == 0 || r.Actor == "" {
		t.Errorf("the row says that it is reverted to %+v", r)
	}
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodUnrevert)))
	back := f.Shown(o.Session)
	whole["ranges, 1"], whole["ranges, 100"], back["ranges, 1"], back["ranges, 100"] = "", "", "", "" // the turn has ended
	for how := range whole {
		if back[how] != whole[how] {
			t.Errorf("%s: %q is shown again, of %q", how, back[how], whole[how])
		}
	}

	f.Applied(o.Batch(false, harness.NewIntent(session.MethodRevert, "cursor", 3)))
	if got := f.Shown(o.Session)["state"]; got != want {
		t.Errorf("reverted to the first message after a cursor, there is %s", got)
	}
	f.Applied(o.Batch(false, harness.PutOp("message/m4", `{}`), harness.PutOp("part/m3/a", value)))
	settled := f.Shown(o.Session)
	if want := "message/m1 message/m4 part/m1/a part/m1/b part/m3/a todo/1"; settled["state"] != want {
		t.Errorf("settled, there is %s", settled["state"])
	}
	f.Applied(o.Batch(false, harness.PutOp("message/m2", `{"anew":true}`)))
	removeReverted(f, o)
	if row := f.LogOf(o.Session).Row; row.Revert.InForce() {
		t.Errorf("the row has %+v", row)
	}

	// Parts of a message that stays, with all that comes after it in the session's order, of which a part is put again.
	f.Applied(o.Batch(false, harness.PutOp("part/m2/c", value), harness.PutOp("part/m2/d", value), harness.PutOp("message/m5", value), harness.PutOp("part/m5/a", value), harness.PutOp("part/m4/late", value)))
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodRevert, "to", "part/m2/c")))
	f.Applied(o.Batch(false, harness.BeginOp("m6")()))
	f.Applied(o.Batch(false, harness.PutOp("part/m2/d", `{"again":1}`)))
	if got, want := f.Shown(o.Session)["state"], "message/m1 message/m2 message/m4 message/m6 part/m1/a part/m1/b part/m2/d part/m3/a part/m4/late todo/1"; got != want {
		t.Errorf("settled to a part, there is %s", got)
	}
	removeReverted(f, o)

	// As many events are counted as a ref is shown.
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodRevert, "to", "message/m4"), harness.NewIntent(session.MethodPurge, "key", "message/m4")))
	for _, g := range []*capability.Grant{{ReadKeys: []string{"part/m4/"}}, {ReadKeys: []string{"part/"}}, {ReadKeys: []string{"part/m1/a"}}, {ReadKeys: []string{"todo/"}}, {Message: "m4"}} {
		stat, err := f.ReadStat(f.Ctx, o.Session, nil, harness.Admits(g))
		f.Must("stat", err)
		count := 0
		for _, e := range session.NewUnscoped(f.LogOf(o.Session)).Shown(g).Events {
			if !e.Hidden {
				count++
			}
		}
		if stat.Events != uint64(count) {
			t.Errorf("%d events are counted for a ref of %v%s, which is shown %d", stat.Events, g.ReadKeys, g.Message, count)
		}
	}
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodDelete)))
}
