// Trimming: a log's start goes, and neither the state nor the chain with it.

package upkeep

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// testTrim: a session with a title, a turn that ended and one that is open.
func testTrim(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	text := func(part string, at int, text string) {
		f.Applied(o.Batch(false, harness.NewIntent(session.MethodAppendText, "key", part, "offset", at, "text", text)))
	}
	begun := func(message string) {
		f.Applied(o.Batch(false, harness.NewIntent(session.MethodBegin, "message", message, "payload", json.RawMessage(`{}`)), harness.PutOp("part/"+message+"/p", `{"text":""}`)))
	}
	f.Applied(o.Batch(false, o.Create(), harness.PutOp("session", `{"title":"kept"}`), harness.PutOp("message/a", `{"n":1}`), harness.PutOp("message/a", `{"n":2}`)))
	begun("done") // 5, 6
	text("part/done/p", 0, "one ")
	text("part/done/p", 4, "two")
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodFinalize, "message", "done", "status", "completed"), harness.PutOp("part/open/before", `{"text":"b"}`)))
	begun("open") // 11, 12
	text("part/open/p", 0, "drei ")
	text("part/open/before", 1, "ut")
	text("part/open/p", 5, "vier")
	entries, turns := f.StateOf(o.Session)
	log := f.LogOf(o.Session)
	if log.Row.Cursor != 15 || log.Checkpoint != nil {
		t.Fatalf("the log to trim: %+v, %d events", log.Row, len(log.Events))
	}
	same := func(what string, base uint64) {
		t.Helper()
		page := f.LogOf(o.Session)
		if page.Row.Base != base || page.Row.Cursor != log.Row.Cursor {
			t.Fatalf("%s: the log has %d to %d, want from %d", what, page.Row.Base, page.Row.Cursor, base)
		}
		harness.Same(f, what+": the log", page.Events, append([]*session.Event(nil), log.Events[base:]...))
		head, err := harness.Chained(f.Checkpoint(page), base, page.Events)
		f.Must(what, err)
		harness.Same(f, what+": the head", head, page.Row.Head)
		gotEntries, gotTurns := f.StateOf(o.Session)
		harness.Same(f, what+": the entries", gotEntries, entries)
		harness.Same(f, what+": the turns", gotTurns, turns)
		_, info, err := f.Describe(f.Ctx, o.Session, nil)
		f.Must(what, err)
		if info == nil || string(info.Payload) != `{"title":"kept"}` {
			t.Errorf("%s: the info is %+v", what, info)
		}
	}
	f.TrimAll(o.Session, time.Hour, 3)
	same("younger", 0)
	for base := uint64(3); base <= 9; base += 3 {
		more, err := f.Trim(f.Ctx, o.Session, harness.KeepNothing, 3, 1<<20)
		f.Must("trim", err)
		if !more {
			t.Errorf("at %d: no more to trim", base)
		}
		same("a piece", base)
	}
	f.TrimAll(o.Session, harness.KeepNothing, 3)
	same("up to the open turn", 10)
	f.TrimAll(o.Session, harness.KeepNothing, 3)
	same("again", 10)

	// The open turn goes on where it was, and its end reads back all its text.
	text("part/open/p", 9, " five")
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodFinalize, "message", "open", "status", "completed")))
	entries, turns = f.StateOf(o.Session)
	log.Events = append(log.Events, f.LogOf(o.Session).Events[5:]...)
	log.Row = f.LogOf(o.Session).Row
	f.TrimAll(o.Session, harness.KeepNothing, 100)
	same("all of it", 17)
	values := map[string]string{}
	for _, e := range entries {
		values[e.Key] = string(e.Payload)
	}
	if values["part/open/p"] != `{"text":"drei vier five"}` || values["part/open/before"] != `{"text":"but"}` || values["message/a"] != `{"n":2}` {
		t.Errorf("the state is %v", values)
	}
	// Cursors go on; a put of what is there already is none.
	f.Applied(o.Batch(false, harness.PutOp("message/a", `{"n":2}`), harness.PutOp("message/a", `{"n":3}`)))
	page := f.LogOf(o.Session)
	if len(page.Events) != 1 || page.Events[0].Cursor != 18 || page.Row.Cursor != 18 {
		t.Errorf("after the trimming: %+v, %d events", page.Row, len(page.Events))
	}
	if _, err := harness.Chained(f.Checkpoint(page), 17, page.Events); err != nil {
		t.Error(err)
	}
	// A fork has the present state; an earlier one is gone.
	fork := o.SameSession()
	fork.Session, fork.With = harness.NewSession(), []string{o.Ref}
	fork.Ref = harness.ClientRef(fork.Session)
	_, err = f.OpenStream(f.Ctx, session.StreamKey{Session: fork.Session, Outbox: fork.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	args := []any{"source", o.Session, "via", o.Ref, "ref", fork.Ref, "hash", harness.HashText()}
	answers, _ := f.Commit(fork.Batch(false, harness.NewIntent(session.MethodFork, append(args, "at", 17)...)))
	if got := answers[0].Outcomes[0]; got.Reason.String() != "cursor_expired" {
		t.Errorf("a fork at 17: %+v", got)
	}
	f.Applied(fork.Batch(false, harness.NewIntent(session.MethodFork, args...)))
	copied, _ := f.StateOf(fork.Session)
	if len(copied) != len(entries) {
		t.Errorf("the fork has %d entries of %d", len(copied), len(entries))
	}
	// A deleted session's log goes too, but for its end.
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodDelete)))
	f.TrimAll(o.Session, harness.KeepNothing, 100)
	if page := f.LogOf(o.Session); len(page.Events) != 0 || page.Row.Base != 19 || f.Checkpoint(page) != page.Row.Head {
		t.Errorf("of the deleted session: %+v, %d events", page.Row, len(page.Events))
	}
}

// testTrimBounds: by age, by number, by size, and pages over what is left.
func testTrimBounds(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	now := time.UnixMilli(f.Load(&session.ReadSet{}).Now)
	id := harness.NewSession()
	events := make([]*session.Event, 10)
	for i := range events {
		events[i] = harness.Event(id, uint64(i+1), fmt.Sprintf("message/m%d", i), fmt.Sprintf(`{"i":%d}`, i))
		events[i].At = now.Add(-time.Hour).UnixMilli()
		if i >= 8 {
			events[i].At = now.UnixMilli()
		}
	}
	size := len(events[0].Payload)
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), 10)}, Events: events}, id)
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
		{harness.KeepNothing, 2, 1 << 20, 10, false},
		{harness.KeepNothing, 2, 1 << 20, 10, false},
	} {
		more, err := f.Trim(f.Ctx, id, c.keep, c.events, c.bytes)
		f.Must("trim", err)
		if base := f.LogOf(id).Row.Base; base != c.base || more != c.more {
			t.Errorf("keep %v, %d events, %d bytes: base %d, more %v; want %d, %v", c.keep, c.events, c.bytes, base, more, c.base, c.more)
		}
		if c.base == 4 {
			page, err := f.ReadLog(f.Ctx, id, 0, 1<<20, 6, nil)
			f.Must("read log", err)
			harness.Same(f, "the rest", page.Events, events[4:])
			if page.More {
				t.Error("more than the rest")
			}
			page, err = f.ReadLog(f.Ctx, id, 3, 1<<20, 5, nil)
			f.Must("read log", err)
			harness.Same(f, "a page", page.Events, events[4:9])
			if !page.More || f.Checkpoint(page) != events[3].Hash {
				t.Errorf("a page: more %v, checkpoint %+v", page.More, page.Checkpoint)
			}
			page, err = f.ReadLog(f.Ctx, id, 4, 1<<20, 6, nil)
			f.Must("read log", err)
			harness.Same(f, "from the base", page.Events, events[4:])
		}
	}
	if more, err := f.Trim(f.Ctx, harness.NewSession(), harness.KeepNothing, 1, 1); more || err != nil {
		t.Errorf("of nobody: %v, %v", more, err)
	}
}

// testTrimmable: the sessions whose logs are due, page by page.
func testTrimmable(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	var due []string
	for i := range 9 {
		id := harness.NewSession()
		row, first := harness.LiveRow(id, harness.NewSpace(), 2), harness.Event(id, 1, "message/m", `{}`)
		c := &session.Changes{Sessions: []*session.Row{row}, Events: []*session.Event{first}}
		switch i % 4 {
		case 0, 1:
			due = append(due, id)
		case 2: // young
			first.At = time.Now().UnixMilli()
		case 3:
			c.Turns = []*session.Turn{{Session: id, Message: "m", Status: session.Interrupted, Begun: 1}}
		}
		f.Save(c, id)
	}
	slices.Sort(due)
	var got []string
	for after, pages := "", 0; pages == 0 || after != ""; pages++ {
		ids, next, err := f.Trimmable(f.Ctx, time.Hour, after, 2)
		f.Must("trimmable", err)
		got, after = append(got, ids...), next
		if pages > 5 {
			t.Fatal("no end")
		}
	}
	harness.Same(f, "due", got, due)
	for _, id := range due {
		f.TrimAll(id, time.Hour, 10)
	}
	if ids, next, err := f.Trimmable(f.Ctx, time.Hour, "", 100); len(ids) != 0 || next != "" || err != nil {
		t.Errorf("still due: %v, %q, %v", ids, next, err)
	}
}

// testForgettable: the sessions that were deleted long ago, page by page, until they are forgotten.
func testForgettable(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	var due []string
	for i := range 9 {
		id := harness.NewSession()
		row := harness.LiveRow(id, harness.NewSpace(), 3)
		switch i % 3 {
		case 0, 1:
			row.Life = session.Deleted
			if due = append(due, id); i == 1 { // young
				due, row.Updated = due[:len(due)-1], time.Now().UnixMilli()
			}
		}
		f.Save(&session.Changes{Sessions: []*session.Row{row}, Events: []*session.Event{harness.Event(id, 1, "message/m", `{}`), harness.Event(id, 2, "message/m", `{}`), harness.Event(id, 3, "", `{}`)}}, id)
	}
	slices.Sort(due)
	var got []string
	for after, pages := "", 0; pages == 0 || after != ""; pages++ {
		ids, next, err := f.TrimmableDeleted(f.Ctx, time.Hour, after, 2)
		f.Must("forgettable", err)
		got, after = append(got, ids...), next
		if pages > 5 {
			t.Fatal("no end")
		}
	}
	harness.Same(f, "due", got, due)
	for _, id := range due {
		f.TrimAll(id, time.Hour, 10) // after which its streams are there
		if page := f.LogOf(id); page.Row.Base != 3 || len(page.Events) != 0 || page.Row.Forgotten {
			t.Errorf("%s has %d events after %d", id, len(page.Events), page.Row.Base)
		}
		if more, err := f.Forget(f.Ctx, id, time.Hour, 10); more || err != nil || !f.LogOf(id).Row.Forgotten {
			t.Errorf("%s is not forgotten: %v, %v", id, more, err)
		}
	}
	if ids, next, err := f.TrimmableDeleted(f.Ctx, time.Hour, "", 100); len(ids) != 0 || next != "" || err != nil {
		t.Errorf("still due: %v, %q, %v", ids, next, err)
	}
}

// testTrimRace: appending and trimming at once; the chain of what is left
// holds, and no cursor is given twice.
func testTrimRace(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	f.Applied(o.Batch(false, o.Create()))
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
				if _, err := f.Trim(f.Ctx, o.Session, harness.KeepNothing, 3, 1<<20); err != nil {
					t.Errorf("trim: %v", err)
					return
				}
			}
		})
	}
	for n := range uint64(many) {
		answers, _ := f.Commit(o.Batch(false, harness.PutOp("message/a", `{"n":%d}`, n)))
		if answers[0].Err != nil || answers[0].Outcomes[0].Cursor != n+2 {
			t.Errorf("append %d: %+v", n, answers[0])
			break
		}
	}
	close(done)
	all.Wait()
	f.TrimAll(o.Session, harness.KeepNothing, 7)
	page := f.LogOf(o.Session)
	if page.Row.Base != many+1 || f.Checkpoint(page) != page.Row.Head || len(page.Events) != 0 {
		t.Errorf("the log after all: %+v, %d events", page.Row, len(page.Events))
	}
	if entries, _ := f.StateOf(o.Session); len(entries) != 1 || string(entries[0].Payload) != fmt.Sprintf(`{"n":%d}`, many-1) {
		t.Errorf("the state after all: %+v", entries)
	}
}
