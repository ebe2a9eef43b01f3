package harness

import (
	"context"
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/ledger"
)

// Agent is the owner of a session of its own, for tests of one database.
type Agent struct {
	Session string
	f       *Fixture
	Author  *Author
}

// NewAgent creates a session on s.
func NewAgent(t testing.TB, s *store.Store) *Agent {
	t.Helper()
	f := &Fixture{TB: t, Ctx: context.Background(), Store: s}
	o := NewAuthor(f.Space().ID)
	a := &Agent{Session: o.Session, f: f, Author: o}
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, Hash(), 1)
	f.Must("open stream", err)
	f.Applied(o.Batch(false, o.Create()))
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
		list = append(list, NewIntent(op[0].(string), op[1:]...))
	}
	a.f.Applied(a.Author.Batch(false, list...))
}

// Try is Do for an op that may be refused.
func (a *Agent) Try(method string, args ...any) ledger.Outcome {
	a.f.Helper()
	answers, _ := a.f.Commit(a.Author.Batch(false, NewIntent(method, args...)))
	if answers[0].Err != nil {
		a.f.Fatalf("%s: %v", method, answers[0].Err)
	}
	return answers[0].Outcomes[0]
}

// Appender makes a session in a store and gives what commits a put of a new key
// to it, as BenchCommit does.
func Appender(tb testing.TB, s *store.Store) (commit func()) {
	f := &Fixture{TB: tb, Ctx: tb.Context(), Store: s}
	return f.Appender(1)
}

// Appender makes a session and gives what commits so many puts of new keys to it.
func (f *Fixture) Appender(ops int) (commit func()) {
	f.Helper()
	o := NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, Hash(), 1)
	f.Must("open stream", err)
	f.Applied(o.Batch(false, o.Create()))
	n := 0
	return func() {
		o.Acked = o.Seq
		batch := make([]ledger.Intent, ops)
		for i := range batch {
			n++
			batch[i] = PutOp(fmt.Sprintf("message/m%012d", n), `{"text":"%0280d"}`, 1)
		}
		f.Applied(o.Batch(false, batch...))
	}
}
