// Trimming: a log's start goes, and neither the state nor the chain with it.

package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/ledger"
)

// keepNothing is a keep that makes every event old.
const keepNothing = -time.Hour

// trim trims in pieces of n events until nothing is left to.
func (f *fixture) trim(id string, keep time.Duration, n int) {
	f.Helper()
	for more := true; more; {
		var err error
		more, err = f.Trim(f.ctx, id, keep, n, 1<<20)
		f.must("trim", err)
	}
}

// log is a session's log, all that is left of it.
func (f *fixture) log(id string) *session.LogPage {
	f.Helper()
	page, err := f.ReadLog(f.ctx, id, 0, 1<<30, 1<<20, nil)
	f.must("read log", err)
	return page
}

// checkpoint is the hash that a log goes on from. A page of a log that was
// trimmed has it; if it was read from before its base.
func (f *fixture) checkpoint(page *session.LogPage) session.Hash {
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

// state is a session's whole state.
func (f *fixture) state(id string) (entries []*session.Entry, turns []*session.Turn) {
	f.Helper()
	f.must("read state", f.ReadState(f.ctx, id, nil, 1000, func(p *session.StateChunk) error {
		entries, turns = append(entries, p.Entries...), append(turns, p.Turns...)
		return nil
	}))
	return entries, turns
}

// testTrim: a session with a title, a turn that ended and one that is open.
func testTrim(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	text := func(part string, at int, text string) {
		f.applied(o.batch(false, newIntent(session.MethodAppendText, "key", part, "offset", at, "text", text)))
	}
	begun := func(message string) {
		f.applied(o.batch(false, newIntent(session.MethodBegin, "message", message, "payload", json.RawMessage(`{}`)), putOp("part/"+message+"/p", `{"text":""}`)))
	}
	f.applied(o.batch(false, o.create(), putOp("session", `{"title":"kept"}`), putOp("message/a", `{"n":1}`), putOp("message/a", `{"n":2}`)))
	begun("done") // 5, 6
	text("part/done/p", 0, "one ")
	text("part/done/p", 4, "two")
	f.applied(o.batch(false, newIntent(session.MethodFinalize, "message", "done", "status", "completed"), putOp("part/open/before", `{"text":"b"}`)))
	begun("open") // 11, 12
	text("part/open/p", 0, "drei ")
	text("part/open/before", 1, "ut")
	text("part/open/p", 5, "vier")
	entries, turns := f.state(o.session)
	log := f.log(o.session)
	if log.Row.Cursor != 15 || log.Checkpoint != nil {
		t.Fatalf("the log to trim: %+v, %d events", log.Row, len(log.Events))
	}
	same := func(what string, base uint64) {
		t.Helper()
		page := f.log(o.session)
		if page.Row.Base != base || page.Row.Cursor != log.Row.Cursor {
			t.Fatalf("%s: the log has %d to %d, want from %d", what, page.Row.Base, page.Row.Cursor, base)
		}
		same(f, what+": the log", page.Events, append([]*session.Event(nil), log.Events[base:]...))
		head, err := chained(f.checkpoint(page), base, page.Events)
		f.must(what, err)
		same(f, what+": the head", head, page.Row.Head)
		gotEntries, gotTurns := f.state(o.session)
		same(f, what+": the entries", gotEntries, entries)
		same(f, what+": the turns", gotTurns, turns)
		_, info, err := f.Describe(f.ctx, o.session, nil)
		f.must(what, err)
		if info == nil || string(info.Payload) != `{"title":"kept"}` {
			t.Errorf("%s: the info is %+v", what, info)
		}
	}
	f.trim(o.session, time.Hour, 3)
	same("younger", 0)
	for base := uint64(3); base <= 9; base += 3 {
		more, err := f.Trim(f.ctx, o.session, keepNothing, 3, 1<<20)
		f.must("trim", err)
		if !more {
			t.Errorf("at %d: no more to trim", base)
		}
		same("a piece", base)
	}
	f.trim(o.session, keepNothing, 3)
	same("up to the open turn", 10)
	f.trim(o.session, keepNothing, 3)
	same("again", 10)

	// The open turn goes on where it was, and its end reads back all its text.
	text("part/open/p", 9, " five")
	f.applied(o.batch(false, newIntent(session.MethodFinalize, "message", "open", "status", "completed")))
	entries, turns = f.state(o.session)
	log.Events = append(log.Events, f.log(o.session).Events[5:]...)
	log.Row = f.log(o.session).Row
	f.trim(o.session, keepNothing, 100)
	same("all of it", 17)
	values := map[string]string{}
	for _, e := range entries {
		values[e.Key] = string(e.Payload)
	}
	if values["part/open/p"] != `{"text":"drei vier five"}` || values["part/open/before"] != `{"text":"but"}` || values["message/a"] != `{"n":2}` {
		t.Errorf("the state is %v", values)
	}
	// Cursors go on; a put of what is there already is none.
	f.applied(o.batch(false, putOp("message/a", `{"n":2}`), putOp("message/a", `{"n":3}`)))
	page := f.log(o.session)
	if len(page.Events) != 1 || page.Events[0].Cursor != 18 || page.Row.Cursor != 18 {
		t.Errorf("after the trimming: %+v, %d events", page.Row, len(page.Events))
	}
	if _, err := chained(f.checkpoint(page), 17, page.Events); err != nil {
		t.Error(err)
	}
	// A fork has the present state; an earlier one is gone.
	fork := o.sameSession()
	fork.session, fork.with = newSession(), []string{o.ref}
	fork.ref = clientRef(fork.session)
	_, err = f.OpenStream(f.ctx, session.StreamKey{Session: fork.session, Outbox: fork.outbox}, hash(), 1)
	f.must("open stream", err)
	args := []any{"source", o.session, "via", o.ref, "ref", fork.ref, "hash", hashText()}
	answers, _ := f.commit(fork.batch(false, newIntent(session.MethodFork, append(args, "at", 17)...)))
	if got := answers[0].Outcomes[0]; got.Reason.String() != "cursor_expired" {
		t.Errorf("a fork at 17: %+v", got)
	}
	f.applied(fork.batch(false, newIntent(session.MethodFork, args...)))
	copied, _ := f.state(fork.session)
	if len(copied) != len(entries) {
		t.Errorf("the fork has %d entries of %d", len(copied), len(entries))
	}
	// A deleted session's log goes too, but for its end.
	f.applied(o.batch(false, newIntent(session.MethodDelete)))
	f.trim(o.session, keepNothing, 100)
	if page := f.log(o.session); len(page.Events) != 0 || page.Row.Base != 19 || f.checkpoint(page) != page.Row.Head {
		t.Errorf("of the deleted session: %+v, %d events", page.Row, len(page.Events))
	}
}

// testTrimBounds: by age, by number, by size, and pages over what is left.
func testTrimBounds(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	now := time.UnixMilli(f.load(&session.ReadSet{}).Now)
	id := newSession()
	events := make([]*session.Event, 10)
	for i := range events {
		events[i] = event(id, uint64(i+1), fmt.Sprintf("message/m%d", i), fmt.Sprintf(`{"i":%d}`, i))
		events[i].At = now.Add(-time.Hour).UnixMilli()
		if i >= 8 {
			events[i].At = now.UnixMilli()
		}
	}
	size := len(events[0].Payload)
	f.save(&session.Changes{Sessions: []*session.Row{liveRow(id, newSpace(), 10)}, Events: events}, id)
	for _, c := range []struct {
		keep          time.Duration
		events, bytes int
		base          uint64
		more          bool
	}{
		{2 * time.Hour, 100, 1 << 20, 0, false},
		{time.Minute, 0, 0, 1, true}, // always one
		{time.Minute, 100, 0, 2, true},
		{time.Minute, 100, 2 * size, 4, true},
		{time.Minute, 2, 1 << 20, 6, true},
		{time.Minute, 100, 1 << 20, 8, false},
		{time.Minute, 100, 1 << 20, 8, false},
		{keepNothing, 2, 1 << 20, 10, false},
		{keepNothing, 2, 1 << 20, 10, false},
	} {
		more, err := f.Trim(f.ctx, id, c.keep, c.events, c.bytes)
		f.must("trim", err)
		if base := f.log(id).Row.Base; base != c.base || more != c.more {
			t.Errorf("keep %v, %d events, %d bytes: base %d, more %v; want %d, %v", c.keep, c.events, c.bytes, base, more, c.base, c.more)
		}
		if c.base == 4 {
			page, err := f.ReadLog(f.ctx, id, 0, 1<<20, 6, nil)
			f.must("read log", err)
			same(f, "the rest", page.Events, events[4:])
			if page.More {
				t.Error("more than the rest")
			}
			page, err = f.ReadLog(f.ctx, id, 3, 1<<20, 5, nil)
			f.must("read log", err)
			same(f, "a page", page.Events, events[4:9])
			if !page.More || f.checkpoint(page) != events[3].Hash {
				t.Errorf("a page: more %v, checkpoint %+v", page.More, page.Checkpoint)
			}
			page, err = f.ReadLog(f.ctx, id, 4, 1<<20, 6, nil)
			f.must("read log", err)
			same(f, "from the base", page.Events, events[4:])
		}
	}
	if more, err := f.Trim(f.ctx, newSession(), keepNothing, 1, 1); more || err != nil {
		t.Errorf("of nobody: %v, %v", more, err)
	}
}

// testTrimmable: the sessions whose logs are due, page by page.
func testTrimmable(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	var due []string
	for i := range 9 {
		id := newSession()
		row, first := liveRow(id, newSpace(), 2), event(id, 1, "message/m", `{}`)
		c := &session.Changes{Sessions: []*session.Row{row}, Events: []*session.Event{first}}
		switch i % 4 {
		case 0, 1:
			due = append(due, id)
		case 2: // young
			first.At = time.Now().UnixMilli()
		case 3:
			c.Turns = []*session.Turn{{Session: id, Message: "m", Status: session.Interrupted, Begun: 1}}
		}
		f.save(c, id)
	}
	slices.Sort(due)
	var got []string
	for after, pages := "", 0; pages == 0 || after != ""; pages++ {
		ids, next, err := f.Trimmable(f.ctx, time.Hour, after, 2)
		f.must("trimmable", err)
		got, after = append(got, ids...), next
		if pages > 5 {
			t.Fatal("no end")
		}
	}
	same(f, "due", got, due)
	for _, id := range due {
		f.trim(id, time.Hour, 10)
	}
	if ids, next, err := f.Trimmable(f.ctx, time.Hour, "", 100); len(ids) != 0 || next != "" || err != nil {
		t.Errorf("still due: %v, %q, %v", ids, next, err)
	}
}

// testForgettable: the sessions that were deleted long ago, page by page, until they are forgotten.
func testForgettable(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	var due []string
	for i := range 9 {
		id := newSession()
		row := liveRow(id, newSpace(), 3)
		switch i % 3 {
		case 0, 1:
			row.Life = session.Deleted
			if due = append(due, id); i == 1 { // young
				due, row.Updated = due[:len(due)-1], time.Now().UnixMilli()
			}
		}
		f.save(&session.Changes{Sessions: []*session.Row{row}, Events: []*session.Event{event(id, 1, "message/m", `{}`), event(id, 2, "message/m", `{}`), event(id, 3, "", `{}`)}}, id)
	}
	slices.Sort(due)
	var got []string
	for after, pages := "", 0; pages == 0 || after != ""; pages++ {
		ids, next, err := f.TrimmableDeleted(f.ctx, time.Hour, after, 2)
		f.must("forgettable", err)
		got, after = append(got, ids...), next
		if pages > 5 {
			t.Fatal("no end")
		}
	}
	same(f, "due", got, due)
	for _, id := range due {
		f.trim(id, time.Hour, 10) // after which its streams are there
		if page := f.log(id); page.Row.Base != 3 || len(page.Events) != 0 || page.Row.Forgotten {
			t.Errorf("%s has %d events after %d", id, len(page.Events), page.Row.Base)
		}
		if more, err := f.Forget(f.ctx, id, time.Hour, 10); more || err != nil || !f.log(id).Row.Forgotten {
			t.Errorf("%s is not forgotten: %v, %v", id, more, err)
		}
	}
	if ids, next, err := f.TrimmableDeleted(f.ctx, time.Hour, "", 100); len(ids) != 0 || next != "" || err != nil {
		t.Errorf("still due: %v, %q, %v", ids, next, err)
	}
}

// endTurns ends the turns of messages written to so far, and goes on to others.
func (s *script) endTurns() {
	for _, o := range s.authors {
		if o.ref != s.refs[o.session][0] {
			continue
		}
		var ops []ledger.Intent
		for m := s.oldest; m < s.oldest+3; m++ {
			ops = append(ops, newIntent(session.MethodFinalize, "message", fmt.Sprintf("m%d", m), "status", "aborted"))
		}
		s.commit(o.batch(false, ops...))
	}
	s.oldest += 2
}

// testTrimScripts: random scripts come to the same, answer by answer, as on a
// model that is never trimmed.
func testTrimScripts(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	for _, seed := range f.seeds(1) {
		s := newScript(&twin{fixture: f, model: memtx.New(), seed: seed})
		s.trims = true
		for i := range 48 {
			if i%20 == 19 {
				s.newSession()
			}
			s.step()
			if _, err := f.Trim(f.ctx, pick(s, s.authors).session, keepNothing, 1+s.rand.IntN(10), 1+s.rand.IntN(1000)); err != nil {
				t.Fatalf("seed %d: trim: %v", seed, err)
			}
			if i%8 == 7 {
				s.endTurns()
			}
		}
		s.finish()
		trimmed := uint64(0)
		for _, o := range s.authors {
			if row := f.log(o.session).Row; row != nil {
				trimmed += row.Base
			}
		}
		if seed == 1 && trimmed < 100 { // else little was tested
			t.Errorf("seed %d: only %d events were trimmed", seed, trimmed)
		}
	}
}

// testTrimRace: appending and trimming at once; the chain of what is left
// holds, and no cursor is given twice.
func testTrimRace(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	f.applied(o.batch(false, o.create()))
	const many = 60
	done := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := f.Trim(f.ctx, o.session, keepNothing, 3, 1<<20); err != nil {
					t.Errorf("trim: %v", err)
					return
				}
			}
		})
	}
	for n := range uint64(many) {
		answers, _ := f.commit(o.batch(false, putOp("message/a", `{"n":%d}`, n)))
		if answers[0].Err != nil || answers[0].Outcomes[0].Cursor != n+2 {
			t.Errorf("append %d: %+v", n, answers[0])
			break
		}
	}
	close(done)
	all.Wait()
	f.trim(o.session, keepNothing, 7)
	page := f.log(o.session)
	if page.Row.Base != many+1 || f.checkpoint(page) != page.Row.Head || len(page.Events) != 0 {
		t.Errorf("the log after all: %+v, %d events", page.Row, len(page.Events))
	}
	if entries, _ := f.state(o.session); len(entries) != 1 || string(entries[0].Payload) != fmt.Sprintf(`{"n":%d}`, many-1) {
		t.Errorf("the state after all: %+v", entries)
	}
}
