// Purging: what an owner has purged is in no row that a store gives.

package storetest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/ledger"
)

// Agent is the owner of a session of its own, for tests of one database.
type Agent struct {
	Session string
	f       *fixture
	o       *author
}

// NewAgent creates a session on s.
func NewAgent(t testing.TB, s *store.Store) *Agent {
	t.Helper()
	f := &fixture{TB: t, ctx: context.Background(), Store: s}
	o := newAuthor(f.space().ID)
	a := &Agent{Session: o.session, f: f, o: o}
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	f.applied(o.batch(false, o.create()))
	return a
}

// Do commits an op of a method with names and values in turn; it must apply.
func (a *Agent) Do(method string, args ...any) {
	a.f.Helper()
	if out := a.Try(method, args...); out.Status != ledger.Applied {
		a.f.Fatalf("%s: %s: %s", method, out.Reason, out.Message)
	}
}

// DoAll is Do for several ops, in one batch.
func (a *Agent) DoAll(ops ...[]any) {
	a.f.Helper()
	var list []ledger.Intent
	for _, op := range ops {
		list = append(list, newIntent(op[0].(string), op[1:]...))
	}
	a.f.applied(a.o.batch(false, list...))
}

// Try is Do for an op that may be refused.
func (a *Agent) Try(method string, args ...any) ledger.Outcome {
	a.f.Helper()
	answers, _ := a.f.commit(a.o.batch(false, newIntent(method, args...)))
	if answers[0].Err != nil {
		a.f.Fatalf("%s: %v", method, answers[0].Err)
	}
	return answers[0].Outcomes[0]
}

// testPurge: a part with a history, of which the start may have been trimmed.
func testPurge(t *testing.T, fresh Fresh) {
	for _, trimmed := range []bool{false, true} {
		f := begin(t, fresh)
		a := NewAgent(t, f.Store)
		text := func(v string) json.RawMessage { return json.RawMessage(`{"text":"` + v + `"}`) }
		a.Do("put", "key", "message/other", "payload", text("other"))
		a.Do("begin", "message", "m", "payload", text("message"))
		a.Do("put", "key", "part/m/p", "payload", text("leaked"))
		a.Do("appendText", "key", "part/m/p", "offset", 6, "text", " again leaked")
		a.Do("put", "key", "part/m/q", "payload", json.RawMessage(`{"state":{"status":"running"}}`))
		a.Do("finalize", "message", "m", "status", "completed")
		if trimmed {
			f.trim(a.Session, keepNothing, 100)
		} else {
			a.Do("put", "key", "part/m/p", "payload", text("leaked once more"))
		}
		a.Do("purge", "key", "part/m/p")
		page := f.log(a.Session)
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
		v := session.NewVerifier(f.checkpoint(page), page.Row.Base)
		v.Add(page.Events)
		v.End(page.Row.Cursor, page.Row.Head)
		f.must("verify", v.Err())
		entries, turns := f.state(a.Session)
		var keys []string
		for _, e := range entries {
			keys = append(keys, e.Key)
		}
		same(f, "keys", keys, []string{"message/m", "message/other", "part/m/q"})
		if len(turns) != 1 || turns[0].Status != session.Completed {
			t.Errorf("turns: %+v", turns)
		}
		if !trimmed {
			fold := session.NewFold(a.Session)
			for _, e := range page.Events {
				f.must("fold", fold.Apply(e))
			}
			same(f, "state", fold.Hash(), session.StateHash(page.Row.Cursor, page.Row.Epoch, page.Row.Life, entries, turns))
		}
		// And on: the key is like one that never was.
		if out := a.Try("purge", "key", "part/m/p"); string(out.Result) != `{"cursor":`+jsonText(page.Row.Cursor)+`,"unchanged":true,"events":0}` {
			t.Errorf("again: %s", out.Result)
		}
		a.Do("put", "key", "part/m/p", "payload", text("clean"))
		if entries, _ = f.state(a.Session); len(entries) != 4 || string(entries[2].Payload) != `{"text":"clean"}` {
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
