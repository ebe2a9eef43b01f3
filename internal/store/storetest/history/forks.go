// Forks in pieces: while the source goes on, is trimmed and swept, and pieces fail or are copied by two servers at once,
// the fork comes to what its source was.

package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// forkOf is an author of a fork of o's session, and its first batch.
func forkOf(f *harness.Fixture, o *harness.Author, args ...any) (p *harness.Author, sub decide.Submission) {
	f.Helper()
	p = o.SameSession()
	p.Session, p.With = harness.NewSession(), []string{o.Ref}
	p.Ref = harness.ClientRef(p.Session)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: p.Session, Outbox: p.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	return p, p.Batch(false, harness.NewIntent(session.MethodFork, append([]any{"source", o.Session, "via", o.Ref, "ref", p.Ref, "hash", harness.HashText()}, args...)...))
}

// ask commits the batch of a fork that may have one byte in one event, and asks for it.
func ask(f *harness.Fixture, sub decide.Submission) decide.Answer {
	f.Helper()
	cfg := decide.DefaultConfig()
	cfg.Limits.ForkBytes = 1
	var answers []decide.Answer
	f.Must("commit", f.Update(f.Ctx, func(tx session.Tx) (err error) {
		answers, _, err = decide.Commit(f.Ctx, tx, []decide.Submission{sub}, cfg)
		return err
	}))
	if r := answers[0].Fork; r != nil {
		f.Must("begin", f.Update(f.Ctx, func(tx session.Tx) error { return maintain.BeginFork(f.Ctx, tx, r) }))
	}
	return answers[0]
}

// piece copies the next piece of a fork.
func piece(f *harness.Fixture, work session.ForkWork, keys int) (fork *session.Forking, more bool, err error) {
	err = f.Update(f.Ctx, func(tx session.Tx) (err error) {
		fork, more, err = maintain.CopyFork(f.Ctx, tx, work, 1<<20, keys)
		return err
	})
	return fork, more, err
}

// due are the forks that are being copied.
func due(f *harness.Fixture) (list []session.ForkWork) {
	f.Helper()
	all, err := f.Forks(f.Ctx, "", 100)
	f.Must("find forks", err)
	for _, due := range all {
		list = append(list, due.ForkWork)
	}
	return list
}

// contentOf is a session's state in its order, without cursors.
func contentOf(f *harness.Fixture, id string) string {
	f.Helper()
	entries, _ := f.StateOf(id)
	slices.SortFunc(entries, session.CompareEntries)
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %d %s\n", e.Key, e.Schema, e.Payload)
	}
	return b.String()
}

// forkSource is a session with a bit of everything: a log that is trimmed if it is to be, an open turn, a large value that is
// edited.
func forkSource(f *harness.Fixture, trimmed bool) *harness.Author {
	f.Helper()
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	large := fmt.Sprintf(`{"a":%q,"b":%q}`, strings.Repeat("x", 9000), "")
	f.Applied(o.Batch(false, o.Create(), harness.PutOp("session", `{"title":"T"}`), harness.PutOp("message/a", `{"n":1}`), harness.PutOp("part/a/1", `{"text":"old"}`), harness.PutOp("doc/large", "%s", large), harness.PutOp("todo/1", `1`), harness.PutOp("todo/2", `2`)))
	if trimmed {
		f.TrimAll(o.Session, harness.KeepNothing, 100)
	}
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodPatch, "key", "doc/large", "patch", json.RawMessage(`{"b":"one"}`)), harness.PutOp("message/b", `{"n":2}`), harness.PutOp("part/b/1", `{"text":"b"}`), harness.PutOp("message/tail", `{"n":3}`), harness.PutOp("part/tail/1", `{"text":"t"}`),
		harness.NewIntent(session.MethodBegin, "message", "open", "payload", json.RawMessage(`{}`)), harness.PutOp("part/open/1", `{"text":""}`), harness.PutOp("part/open/2", `{"text":"","n":1}`),
		harness.NewIntent(session.MethodAppendText, "key", "part/open/1", "offset", 0, "text", "said "), harness.NewIntent(session.MethodAppendText, "key", "part/open/2", "offset", 0, "text", "more")))
	return o
}

// changeForkSource ends its turn and changes values, some by a revert that is settled.
func changeForkSource(f *harness.Fixture, o *harness.Author) {
	f.Helper()
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodAppendText, "key", "part/open/1", "offset", 5, "text", "late"),
		harness.NewIntent(session.MethodFinalize, "message", "open", "status", "completed"), harness.NewIntent(session.MethodPatch, "key", "doc/large", "patch", json.RawMessage(`{"b":"two"}`)),
		harness.PutOp("doc/large", `1`), harness.NewIntent(session.MethodRemove, "key", "todo/1"), harness.PutOp("todo/2", `3`), harness.PutOp("todo/3", `3`), harness.PutOp("part/a/1", `{"text":"new"}`), harness.PutOp("session", `{"title":"U"}`),
		harness.NewIntent(session.MethodRevert, "to", "message/b"), harness.PutOp("message/c", `{}`)))
	f.Applied(o.Batch(false, harness.PutOp("message/b", `{"n":3}`)))
}

// testForksEarlier: as of any cursor, the log is folded in pieces into what a fork in one event has.
func testForksEarlier(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := forkSource(f, false)
	changeForkSource(f, o)
	f.Applied(o.Batch(false, harness.PutOp("todo/4", `{"a":0,"b":0}`), harness.PutOp("message/d", `{}`), harness.PutOp("part/d/1", `{}`), harness.PutOp("part/d/2", `{}`), harness.PutOp("part/d/3", `{}`), harness.NewIntent(session.MethodRevert, "to", "part/d/2")))
	f.Applied(o.Batch(false, harness.PutOp("message/e", `{}`), harness.NewIntent(session.MethodPatch, "key", "todo/4", "patch", json.RawMessage(`{"a":1}`)), harness.PutOp("message/tail", `{}`), harness.NewIntent(session.MethodPurge, "key", "message/tail"), harness.PutOp("part/tail/9", `{}`)))
	for i, at := range []uint64{1, 17, 8, 19, 31, 36, 38, f.LogOf(o.Session).Row.Cursor - 1} {
		small, sub := forkOf(f, o, "at", at)
		f.Applied(sub)
		want := contentOf(f, small.Session)
		big, sub := forkOf(f, o, "at", at)
		if a := ask(f, sub); a.Err == nil || a.Err.Code != fault.NotYetKnown {
			t.Fatalf("it is answered %+v", a)
		}
		work := session.ForkWork{Session: big.Session, Source: o.Session}
		failed := errors.New("killed")
		for more := true; more; {
			err := f.Update(f.Ctx, func(tx session.Tx) error {
				if _, _, err := maintain.CopyFork(f.Ctx, tx, work, 300, 1+i%2); err != nil {
					return err
				}
				return failed
			})
			if !errors.Is(err, failed) {
				t.Fatal(err)
			}
			var fork *session.Forking
			err = f.Update(f.Ctx, func(tx session.Tx) (err error) {
				fork, more, err = maintain.CopyFork(f.Ctx, tx, work, 300, 1+i%2)
				return err
			})
			f.Must("a piece", err)
			if fork.State == session.ForkCopies || fork.State > session.ForkReady {
				t.Fatalf("it is %+v", fork)
			}
			f.Applied(o.Batch(false, harness.PutOp("todo/1", "%d", at*100+fork.Fold.Cursor), harness.NewIntent(session.MethodRemove, "key", "part/d/1"), harness.PutOp("part/d/1", `{}`)))
			f.TrimAll(o.Session, harness.KeepNothing, 100)
		}
		if a := ask(f, sub); a.Err != nil || a.Outcomes[0].Status != ledger.Applied {
			t.Fatalf("when it is copied it is answered %+v", a)
		}
		if got := contentOf(f, big.Session); got != want {
			t.Errorf("as of %d, in pieces it is\n%s\nin one event\n%s", at, got, want)
		}
		rows := f.Load(&session.ReadSet{Page: &session.EntryPage{Session: big.Session, Bytes: 1 << 20, Keys: 100, Before: true, Log: o.Session}})
		bytes, err := f.Measure(f.Ctx, big.Session)
		f.Must("measure", err)
		if r := f.LogOf(big.Session).Row; r.Cursor != at+1 || r.Base != at+1 || r.Origin.Cursor != at || bytes+session.EventCost != r.Bytes && bytes != r.Bytes || len(rows.Page) > 0 {
			t.Errorf("its row is %+v, it has %d bytes, %d entries are left", r, bytes, len(rows.Page))
		}
	}
	f.TrimAll(o.Session, harness.KeepNothing, 100)
	if _, sub := forkOf(f, o, "at", 5); ask(f, sub).Outcomes[0].Reason != fault.CursorExpired {
		t.Error("a trimmed log is folded")
	}
}

func testForks(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	for _, at := range []string{"", "part/b/1", "part/open/2", "session", "~"} { // the first key that is copied after the source has changed
		o := forkSource(f, true)
		small, sub := forkOf(f, o)
		f.Applied(sub)
		want := contentOf(f, small.Session)
		if want != contentOf(f, o.Session) {
			t.Fatalf("a fork has\n%s", want)
		}
		big, sub := forkOf(f, o)
		if a := ask(f, sub); a.Err == nil || !a.Err.Copying() {
			t.Fatalf("it is answered %+v", a)
		}
		work := session.ForkWork{Session: big.Session, Source: o.Session}
		failed := errors.New("killed")
		changed := false
		for more := true; more; {
			err := f.Update(f.Ctx, func(tx session.Tx) error {
				if _, _, err := maintain.CopyFork(f.Ctx, tx, work, 1<<20, 1); err != nil {
					return err
				}
				return failed
			})
			if !errors.Is(err, failed) {
				t.Fatal(err)
			}
			var fork *session.Forking
			fork, more, err = piece(f, work, 1)
			f.Must("a piece", err)
			if fork.State > session.ForkMends && fork.State != session.ForkTidies && fork.State != session.ForkReady {
				t.Fatalf("it is %+v", fork)
			}
			if list := due(f); !slices.Contains(list, work) {
				t.Fatalf("there is %v", list)
			}
			if changed || fork.State == session.ForkCopies && fork.After < at {
				continue
			}
			changed = true
			changeForkSource(f, o)
			f.TrimAll(o.Session, harness.KeepNothing, 100)
			for more := true; more; {
				var err error
				more, err = f.RemoveReverted(f.Ctx, 100)
				f.Must("sweep", err)
			}
		}
		if a := ask(f, sub); a.Err != nil || a.Outcomes[0].Status != ledger.Applied {
			t.Fatalf("when it is copied it is answered %+v", a)
		}
		if got := contentOf(f, big.Session); got != want {
			t.Errorf("changed at %q, in pieces it is\n%s\nin one event\n%s", at, got, want)
		}
		if a := ask(f, sub); !a.Duplicate {
			t.Errorf("once more it is answered %+v", a)
		}
		page := f.LogOf(big.Session)
		if r := page.Row; r.Base != r.Cursor || r.Origin.Session != o.Session || f.Checkpoint(page) != r.Head || r.Forking != nil {
			t.Errorf("its row is %+v", r)
		}
		bytes, err := f.Measure(f.Ctx, big.Session)
		if f.Must("measure", err); bytes+session.EventCost != page.Row.Bytes && bytes != page.Row.Bytes {
			t.Errorf("it has %d bytes, its row says %d", bytes, page.Row.Bytes)
		}
		if r := f.LogOf(o.Session).Row; r.Copies != nil {
			t.Errorf("the source's row has %+v", r.Copies)
		}
		p := big
		p.With, p.Space = nil, ""
		f.Applied(p.Batch(false, harness.PutOp("message/last", `{}`), harness.PutOp("todo/1", `2`)))
		f.TrimAll(o.Session, harness.KeepNothing, 100)
		if list := due(f); slices.Contains(list, work) {
			t.Errorf("there is %v", list)
		}
	}
}

// testForksAtOnce: two servers copy the same forks, while a third changes the source.
func testForksAtOnce(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := forkSource(f, true)
	var puts []ledger.Intent
	for i := range 60 {
		puts = append(puts, harness.PutOp(fmt.Sprintf("row/%02d", i), `0`))
	}
	f.Applied(o.Batch(false, puts...))
	want := contentOf(f, o.Session)
	var works []session.ForkWork
	var subs []decide.Submission
	for range 3 {
		p, sub := forkOf(f, o)
		ask(f, sub)
		works, subs = append(works, session.ForkWork{Session: p.Session, Source: o.Session}), append(subs, sub)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for more := true; more; {
				more = false
				for _, w := range works {
					_, again, err := piece(f, w, 5)
					if err != nil {
						t.Errorf("a piece: %v", err)
						return
					}
					more = more || again
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 60 {
			f.Applied(o.Batch(false, harness.PutOp(fmt.Sprintf("row/%02d", (i*37)%60), `1`)))
		}
	})
	wg.Wait()
	for i, sub := range subs {
		for more := true; more; { // a server may have seen none, as the other had it
			var err error
			_, more, err = piece(f, works[i], 5)
			f.Must("a piece", err)
		}
		if a := ask(f, sub); a.Err != nil || a.Outcomes[0].Status != ledger.Applied {
			t.Fatalf("it is answered %+v", a)
		}
		if got := contentOf(f, works[i].Session); got != want {
			t.Errorf("fork %d is\n%s\nnot\n%s", i, got, want)
		}
	}
}

// testForksEnd: what ends a fork that is being copied, and leaves nothing of it.
func testForksEnd(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	for name, c := range map[string]struct {
		end  func(o *harness.Author, via string)
		code fault.Code
		gone bool // what was copied is gone at once
	}{
		"a purge": {func(o *harness.Author, _ string) {
			f.Applied(o.Batch(false, harness.NewIntent(session.MethodPurge, "key", "doc/large")))
		}, fault.CursorExpired, false},
		"a delete": {func(o *harness.Author, _ string) { f.Applied(o.Batch(false, harness.NewIntent(session.MethodDelete))) }, fault.SessionDeleted, true},
		"a revoke": {func(o *harness.Author, via string) {
			f.Applied(o.Batch(false, harness.NewIntent(session.MethodRevoke, "ref", via)))
		}, fault.Revoked, false},
	} {
		for _, pieces := range []int{0, 3, 13, 25, 100, -1, -3, -13, -25, -50, -100} { // before that; negative: of a fork as of an earlier cursor
			o := forkSource(f, pieces >= 0)
			via := harness.ClientRef(o.Session)
			f.Applied(o.Batch(false, harness.NewIntent(session.MethodShare, "ref", via, "hash", harness.HashText(), "rights", []string{"read"})))
			p, sub := forkOf(f, o)
			sub.PassedRefs = []string{via}
			args := []any{"source", o.Session, "via", via, "ref", p.Ref, "hash", harness.HashText()}
			if pieces < 0 {
				args, pieces = append(args, "at", f.LogOf(o.Session).Row.Cursor-1), -pieces
			}
			p.Seq--
			sub2 := p.Batch(false, harness.NewIntent(session.MethodFork, args...))
			sub2.PassedRefs = []string{via}
			ask(f, sub2)
			work := session.ForkWork{Session: p.Session, Source: o.Session}
			for range pieces {
				if _, more, err := piece(f, work, 1); err != nil || !more {
					f.Must("a piece", err)
					break
				}
			}
			f.Applied(o.Batch(false, harness.PutOp("doc/large", `1`)))
			c.end(o, via)
			kept := f.Load(&session.ReadSet{EntryMeta: map[string][]string{p.Session: {"doc/large", "message/a"}}, Before: &session.BeforeSet{Session: p.Session, Keys: []string{"doc/large"}}})
			if e := kept.Entries[p.Session]; name == "a purge" && (e["doc/large"] != nil || kept.Before["doc/large"] != nil) || c.gone && len(e)+len(kept.Before) > 0 {
				t.Errorf("%s after %d pieces leaves %+v, %+v", name, pieces, e, kept.Before)
			}
			answered := false
			for i := range 200 {
				_, more, err := piece(f, work, 1)
				f.Must("a piece", err)
				if i == 0 || !more {
					a := ask(f, sub2)
					if a.Err != nil || a.Outcomes[0].Status == ledger.Applied || a.Outcomes[0].Reason != c.code {
						t.Fatalf("%s after %d pieces: it is answered %+v", name, pieces, a)
					}
					answered = answered || a.Duplicate
				}
				if !more {
					break
				}
			}
			rows := f.Load(&session.ReadSet{Page: &session.EntryPage{Session: p.Session, Bytes: 1 << 20, Keys: 100}})
			kept = f.Load(&session.ReadSet{Page: &session.EntryPage{Session: p.Session, Bytes: 1 << 20, Keys: 100, Before: true, Log: o.Session}})
			if len(rows.Page)+len(kept.Page) > 0 {
				t.Errorf("%s after %d pieces: %d entries and %d others are left", name, pieces, len(rows.Page), len(kept.Page))
			}
			if list := due(f); slices.Contains(list, work) {
				t.Errorf("%s: there is %v", name, list)
			}
		}
	}
}
