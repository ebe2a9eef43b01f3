// Large values that are edited: however a value is stored, every read has what the edits come to.

package sessions

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// testEdits: edits of large values among other ops, with the log trimmed in between.
func testEdits(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	a := harness.NewAgent(t, f.Store)
	members := make([]string, 60)
	for i := range members {
		members[i] = fmt.Sprintf(`"member%02d" : "%0100d"`, i, i)
	}
	document := "{" + strings.Join(members, ",\n") + "}"
	want := map[string]string{} // by key
	put := func(key, value string) {
		t.Helper()
		want[key] = value
		a.Do("put", "key", key, "payload", json.RawMessage(value))
	}
	edit := func(key, patch string) {
		t.Helper()
		value, err := session.EditedValue(session.MethodPatch, []byte(want[key]), []byte(patch))
		f.Must("patch", err)
		want[key] = string(value)
		a.Do("patch", "key", key, "patch", json.RawMessage(patch))
	}
	check := func(when string) {
		t.Helper()
		stat, err := f.ReadStat(f.Ctx, a.Session, nil, harness.Admits(harness.Everything))
		f.Must("stat", err)
		bytes := 0
		state, _ := f.StateOf(a.Session)
		rows := f.Load(&session.ReadSet{Prefixes: map[string][]string{a.Session: {""}}}).Entries[a.Session]
		if len(state) != len(want) || len(rows) != len(want) {
			t.Errorf("%s: %d values in a snapshot and %d in a load, want %d", when, len(state), len(rows), len(want))
		}
		for _, e := range state {
			bytes += len(want[e.Key])
			if value := want[e.Key]; string(e.Payload) != value || string(rows[e.Key].Payload) != value || rows[e.Key].Sum != session.SumOf([]byte(value)) {
				t.Errorf("%s: %s is\n%.200s in a snapshot and\n%.200s in a load, want\n%.200s", when, e.Key, e.Payload, rows[e.Key].Payload, value)
			}
		}
		if len(stat.Kinds) != 1 || stat.Kinds[0].Bytes != uint64(bytes) {
			t.Errorf("%s: %+v, want %d bytes", when, stat.Kinds, bytes)
		}
		for _, q := range []session.KeyQuery{{Values: true, Limit: 1}, {Order: session.ByPut}} {
			for _, e := range f.AllKeys(a.Session, q, 1<<20, harness.Everything, nil) {
				if e.Bytes != uint64(len(want[e.Key])) || q.Values && string(e.Payload) != want[e.Key] {
					t.Errorf("%s: a list has %s with %d bytes, %.200s, want %d", when, e.Key, e.Bytes, e.Payload, len(want[e.Key]))
				}
			}
		}
		f.CheckSearch(a.Session, map[string]*capability.Grant{"of all": harness.Everything}, "new", "member07", "last")
	}
	put("doc/1", document)
	put("doc/2", document)
	check("put")
	for i := range 2 { // two values in one batch: the first edit stores each anew, the second what has changed
		patch := fmt.Sprintf(`{"member00":"both %d"}`, i)
		var ops []ledger.Intent
		for _, key := range []string{"doc/1", "doc/2"} {
			value, err := session.EditedValue(session.MethodPatch, []byte(want[key]), []byte(patch))
			f.Must("patch", err)
			want[key] = string(value)
			ops = append(ops, harness.NewIntent(session.MethodPatch, "key", key, "patch", json.RawMessage(patch)))
		}
		f.Applied(a.Author.Batch(false, ops...))
		check(fmt.Sprintf("edit %d of both", i))
	}
	for i := range 5 {
		edit("doc/1", fmt.Sprintf(`{"member%02d":"new %d"}`, 11*i, i))
		check(fmt.Sprintf("edit %d", i))
	}
	edit("doc/2", `{"member07":null}`)
	edit("doc/2", `{"member08":null,"member09":[1, 2]}`)
	f.TrimAll(a.Session, harness.KeepNothing, 3) // an edit after the trimmed ones, and none
	check("trimmed")
	edit("doc/1", `{"last":"new"}`)
	check("edited after trimming")
	for i := range 60 { // more than fit beside the value
		edit("doc/2", fmt.Sprintf(`{"member%02d":"%0120d"}`, i, i))
	}
	check("all members edited")
	put("doc/1", document)
	edit("doc/1", `{"member01":"new"}`)
	check("put again")
	a.Do("remove", "key", "doc/1")
	delete(want, "doc/1")
	check("removed")
	put("doc/1", document)
	edit("doc/1", `{"member01":"new"}`)
	edit("doc/1", `{"member02":"new"}`)
	f.TrimAll(a.Session, harness.KeepNothing, 1000)
	a.Do("purge", "key", "doc/1")
	delete(want, "doc/1")
	check("purged")
}
