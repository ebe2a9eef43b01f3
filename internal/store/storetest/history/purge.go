// Purging: what an owner has purged is in no row that a store gives.

package history

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// testPurge: a part with a history, of which the start may have been trimmed.
func testPurge(t *testing.T, fresh harness.Fresh) {
	for _, trimmed := range []bool{false, true} {
		f := harness.Begin(t, fresh)
		a := harness.NewAgent(t, f.Store)
		text := func(v string) json.RawMessage { return json.RawMessage(`{"text":"` + v + `"}`) }
		a.Do("put", "key", "message/other", "payload", text("other"))
		a.Do("begin", "message", "m", "payload", text("message"))
		a.Do("put", "key", "part/m/p", "payload", text("leaked"))
		a.Do("appendText", "key", "part/m/p", "offset", 6, "text", " again leaked")
		a.Do("put", "key", "part/m/q", "payload", json.RawMessage(`{"state":{"status":"running"}}`))
		a.Do("finalize", "message", "m", "status", "completed")
		if trimmed {
			f.TrimAll(a.Session, harness.KeepNothing, 100)
		} else {
			a.Do("put", "key", "part/m/p", "payload", text("leaked once more"))
		}
		a.Do("purge", "key", "part/m/p")
		page := f.LogOf(a.Session)
		if trimmed != (len(page.Events) == 1) {
			t.Fatalf("%d events are left", len(page.Events))
		}
		for _, e := range page.Events {
			if strings.Contains(string(e.Payload), "leaked") {
				t.Errorf("event %d (%s): %s", e.Cursor, e.Method, e.Payload)
			}
			if purged := e.Method == session.MethodAppendText || e.Key == "part/m/p" && e.Method == session.MethodPut; purged != (e.Payload == nil) {
				t.Errorf("event %d (%s of %s): %s", e.Cursor, e.Method, e.Key, e.Payload)
			}
		}
		v := session.NewVerifier(f.Checkpoint(page), page.Row.Base)
		v.Add(page.Events)
		v.End(page.Row.Cursor, page.Row.Head)
		f.Must("verify", v.Err())
		entries, turns := f.StateOf(a.Session)
		var keys []string
		for _, e := range entries {
			keys = append(keys, e.Key)
		}
		harness.Same(f, "keys", keys, []string{"message/m", "message/other", "part/m/q"})
		if len(turns) != 1 || turns[0].Status != session.Completed {
			t.Errorf("turns: %+v", turns)
		}
		if !trimmed {
			fold := session.NewFold(a.Session)
			for _, e := range page.Events {
				f.Must("fold", fold.Apply(e))
			}
			harness.Same(f, "state", fold.Hash(), session.StateHash(page.Row.Cursor, page.Row.Epoch, page.Row.Life, entries, turns))
		}
		// And on: the key is like one that never was.
		if out := a.Try("purge", "key", "part/m/p"); string(out.Result) != `{"cursor":`+jsonText(page.Row.Cursor)+`,"unchanged":true,"events":0}` {
			t.Errorf("again: %s", out.Result)
		}
		a.Do("put", "key", "part/m/p", "payload", text("clean"))
		if entries, _ = f.StateOf(a.Session); len(entries) != 4 || string(entries[2].Payload) != `{"text":"clean"}` {
			t.Errorf("after a put: %+v", entries)
		}
	}
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
