// What a store has of a session afterwards.

package harness

import (
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// KeepNothing is a keep that makes every event old.
const KeepNothing = -time.Hour

// TrimAll trims in pieces of n events until nothing is left to.
func (f *Fixture) TrimAll(id string, keep time.Duration, n int) {
	f.Helper()
	for more := true; more; {
		var err error
		more, err = f.Trim(f.Ctx, id, keep, n, 1<<20)
		f.Must("trim", err)
	}
}

// LogOf is a session's log, all that is left of it.
func (f *Fixture) LogOf(id string) *session.LogPage {
	f.Helper()
	page, err := f.ReadLog(f.Ctx, id, 0, 1<<30, 1<<20, nil)
	f.Must("read log", err)
	return page
}

// Checkpoint is the hash that a log goes on from. A page of a log that was
// trimmed has it; if it was read from before its base.
func (f *Fixture) Checkpoint(page *session.LogPage) session.Hash {
	f.Helper()
	switch c := page.Checkpoint; {
	case page.Row.Base == 0 && c == nil:
		return session.Hash{}
	case c == nil || c.Cursor != page.Row.Base || c.Payload != nil:
		f.Fatalf("the checkpoint of a log that starts after %d: %+v", page.Row.Base, c)
		return session.Hash{}
	default:
		return c.Hash
	}
}

// StateOf is a session's whole state.
func (f *Fixture) StateOf(id string) (entries []*session.Entry, turns []*session.Turn) {
	f.Helper()
	f.Must("read state", f.ReadState(f.Ctx, id, nil, 1000, func(p *session.StateChunk) error {
		entries, turns = append(entries, p.Entries...), append(turns, p.Turns...)
		return nil
	}))
	return entries, turns
}

// Chained is the last hash of events that go on from the one at cursor, whose hash
// is prev, and what is wrong with them.
func Chained(prev session.Hash, cursor uint64, events []*session.Event) (session.Hash, error) {
	v := session.NewVerifier(prev, cursor)
	v.Add(events)
	return v.Head(), v.Err()
}

// WholeLog checks that a session's log is 1 … n.
func (f *Fixture) WholeLog(id string, n uint64) []*session.Event {
	f.Helper()
	page, err := f.ReadLog(f.Ctx, id, 0, 1<<30, 1<<20, nil)
	f.Must("read log", err)
	for i, e := range page.Events {
		if e.Cursor != uint64(i+1) {
			f.Fatalf("the log has cursor %d in place %d", e.Cursor, i+1)
		}
	}
	if uint64(len(page.Events)) != n || page.Row.Cursor != n {
		f.Fatalf("the log has %d events and the row says %d, want %d", len(page.Events), page.Row.Cursor, n)
	}
	return page.Events
}

// Await waits until something has happened so often.
func (f *Fixture) Await(what <-chan struct{}, times int) {
	f.Helper()
	for range times {
		select {
		case <-what:
		case <-f.Ctx.Done():
			f.Fatal("what was waited for does not happen")
		}
	}
}

// AuditOf is all of a target's audit, whose chain is checked.
func (f *Fixture) AuditOf(target string) []*capability.AuditRow {
	f.Helper()
	page, err := f.ReadAudit(f.Ctx, target, 0, 1<<20, nil)
	f.Must("read audit", err)
	chain := capability.NewChainVerifier(0)
	for _, r := range page.Rows {
		chain.Add(r.ChainRow())
	}
	for _, flaw := range chain.End(page.Seq, page.Head) {
		f.Errorf("%s", flaw.Text("audit row"))
	}
	return page.Rows
}
