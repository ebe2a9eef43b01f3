// Forks in pieces: while the source goes on, is trimmed and swept, and pieces fail or are copied by two servers at once,
// the fork comes to what its source was.

package storetest

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
	"github.com/mooring-rpc/mooring/ledger"
)

// forkOf is an author of a fork of o's session, and its first batch.
func (f *fixture) forkOf(o *author, args ...any) (p *author, sub session.Submission) {
	f.Helper()
	p = o.sameSession()
	p.session, p.with = newSession(), []string{o.ref}
	p.ref = clientRef(p.session)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: p.session, Outbox: p.outbox}, hash(), 1)
	f.must("open stream", err)
	return p, p.batch(false, newIntent(session.MethodFork, append([]any{"source", o.session, "via", o.ref, "ref", p.ref, "hash", hashText()}, args...)...))
}

// ask commits the batch of a fork that may have one byte in one event, and asks for it.
func (f *fixture) ask(sub session.Submission) session.Answer {
	f.Helper()
	cfg := session.DefaultConfig()
	cfg.Limits.ForkBytes = 1
	var answers []session.Answer
	f.must("commit", f.Update(f.ctx, func(tx session.Tx) (err error) {
		answers, _, err = session.Commit(f.ctx, tx, []session.Submission{sub}, cfg)
		return err
	}))
	if r := answers[0].Fork; r != nil {
		f.must("begin", f.Update(f.ctx, func(tx session.Tx) error { return session.BeginFork(f.ctx, tx, r) }))
	}
	return answers[0]
}

// piece copies the next piece of a fork.
func (f *fixture) piece(work session.ForkWork, keys int) (fork *session.Forking, more bool, err error) {
	err = f.Update(f.ctx, func(tx session.Tx) (err error) {
		fork, more, err = session.CopyFork(f.ctx, tx, work, 1<<20, keys)
		return err
	})
	return fork, more, err
}

// due are the forks that are being copied.
func (f *fixture) due() (list []session.ForkWork) {
	f.Helper()
	all, err := f.Forks(f.ctx, "", 100)
	f.must("find forks", err)
	for _, due := range all {
		list = append(list, due.ForkWork)
	}
	return list
}

// contentOf is a session's state in its order, without cursors.
func (f *fixture) contentOf(id string) string {
	f.Helper()
	entries, _ := f.state(id)
	slices.SortFunc(entries, session.CompareEntries)
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %d %s\n", e.Key, e.Schema, e.Payload)
	}
	return b.String()
}

// forkSource is a session with a bit of everything: a log that is trimmed if it is to be, an open turn, a large value that is
// edited.
func (f *fixture) forkSource(trimmed bool) *author {
	f.Helper()
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	large := fmt.Sprintf(`{"a":%q,"b":%q}`, strings.Repeat("x", 9000), "")
	f.applied(o.batch(false, o.create(), putOp("session", `{"title":"T"}`), putOp("message/a", `{"n":1}`), putOp("part/a/1", `{"text":"old"}`), putOp("doc/large", "%s", large), putOp("todo/1", `1`), putOp("todo/2", `2`)))
	if trimmed {
		f.trim(o.session, keepNothing, 100)
	}
	f.applied(o.batch(false, newIntent(session.MethodPatch, "key", "doc/large", "patch", json.RawMessage(`{"b":"one"}`)), putOp("message/b", `{"n":2}`), putOp("part/b/1", `{"text":"b"}`), putOp("message/tail", `{"n":3}`), putOp("part/tail/1", `{"text":"t"}`),
		newIntent(session.MethodBegin, "message", "open", "payload", json.RawMessage(`{}`)), putOp("part/open/1", `{"text":""}`), putOp("part/open/2", `{"text":"","n":1}`),
		newIntent(session.MethodAppendText, "key", "part/open/1", "offset", 0, "text", "said "), newIntent(session.MethodAppendText, "key", "part/open/2", "offset", 0, "text", "more")))
	return o
}

// changeForkSource ends its turn and changes values, some by a revert that is settled.
func (f *fixture) changeForkSource(o *author) {
	f.Helper()
	f.applied(o.batch(false, newIntent(session.MethodAppendText, "key", "part/open/1", "offset", 5, "text", "late"),
		newIntent(session.MethodFinalize, "message", "open", "status", "completed"), newIntent(session.MethodPatch, "key", "doc/large", "patch", json.RawMessage(`{"b":"two"}`)),
		putOp("doc/large", `1`), newIntent(session.MethodRemove, "key", "todo/1"), putOp("todo/2", `3`), putOp("todo/3", `3`), putOp("part/a/1", `{"text":"new"}`), putOp("session", `{"title":"U"}`),
		newIntent(session.MethodRevert, "to", "message/b"), putOp("message/c", `{}`)))
	f.applied(o.batch(false, putOp("message/b", `{"n":3}`)))
}

// testForksEarlier: as of any cursor, the log is folded in pieces into what a fork in one event has.
func testForksEarlier(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := f.forkSource(false)
	f.changeForkSource(o)
	f.applied(o.batch(false, putOp("todo/4", `{"a":0,"b":0}`), putOp("message/d", `{}`), putOp("part/d/1", `{}`), putOp("part/d/2", `{}`), putOp("part/d/3", `{}`), newIntent(session.MethodRevert, "to", "part/d/2")))
	f.applied(o.batch(false, putOp("message/e", `{}`), newIntent(session.MethodPatch, "key", "todo/4", "patch", json.RawMessage(`{"a":1}`)), putOp("message/tail", `{}`), newIntent(session.MethodPurge, "key", "message/tail"), putOp("part/tail/9", `{}`)))
	for i, at := range []uint64{1, 17, 8, 19, 31, 36, 38, f.log(o.session).Row.Cursor - 1} {
		small, sub := f.forkOf(o, "at", at)
		f.applied(sub)
		want := f.contentOf(small.session)
		big, sub := f.forkOf(o, "at", at)
		if a := f.ask(sub); a.Err == nil || a.Err.Code != fault.NotYetKnown {
			t.Fatalf("it is answered %+v", a)
		}
		work := session.ForkWork{Session: big.session, Source: o.session}
		failed := errors.New("killed")
		for more := true; more; {
			err := f.Update(f.ctx, func(tx session.Tx) error {
				if _, _, err := session.CopyFork(f.ctx, tx, work, 300, 1+i%2); err != nil {
					return err
				}
				return failed
			})
			if !errors.Is(err, failed) {
				t.Fatal(err)
			}
			var fork *session.Forking
			err = f.Update(f.ctx, func(tx session.Tx) (err error) {
				fork, more, err = session.CopyFork(f.ctx, tx, work, 300, 1+i%2)
				return err
			})
			f.must("a piece", err)
			if fork.State == session.ForkCopies || fork.State > session.ForkReady {
				t.Fatalf("it is %+v", fork)
			}
			f.applied(o.batch(false, putOp("todo/1", "%d", at*100+fork.Fold.Cursor), newIntent(session.MethodRemove, "key", "part/d/1"), putOp("part/d/1", `{}`)))
			f.trim(o.session, keepNothing, 100)
		}
		if a := f.ask(sub); a.Err != nil || a.Outcomes[0].Status != ledger.Applied {
			t.Fatalf("when it is copied it is answered %+v", a)
		}
		if got := f.contentOf(big.session); got != want {
			t.Errorf("as of %d, in pieces it is\n%s\nin one event\n%s", at, got, want)
		}
		rows := f.load(&session.ReadSet{Page: &session.EntryPage{Session: big.session, Bytes: 1 << 20, Keys: 100, Before: true, Log: o.session}})
		bytes, err := f.Measure(f.ctx, big.session)
		f.must("measure", err)
		if r := f.log(big.session).Row; r.Cursor != at+1 || r.Base != at+1 || r.Origin.Cursor != at || bytes+session.EventCost != r.Bytes && bytes != r.Bytes || len(rows.Page) > 0 {
			t.Errorf("its row is %+v, it has %d bytes, %d entries are left", r, bytes, len(rows.Page))
		}
	}
	f.trim(o.session, keepNothing, 100)
	if _, sub := f.forkOf(o, "at", 5); f.ask(sub).Outcomes[0].Reason != fault.CursorExpired {
		t.Error("a trimmed log is folded")
	}
}

func testForks(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	for _, at := range []string{"", "part/b/1", "part/open/2", "session", "~"} { // the first key that is copied after the source has changed
		o := f.forkSource(true)
		small, sub := f.forkOf(o)
		f.applied(sub)
		want := f.contentOf(small.session)
		if want != f.contentOf(o.session) {
			t.Fatalf("a fork has\n%s", want)
		}
		big, sub := f.forkOf(o)
		if a := f.ask(sub); a.Err == nil || !a.Err.Copying() {
			t.Fatalf("it is answered %+v", a)
		}
		work := session.ForkWork{Session: big.session, Source: o.session}
		failed := errors.New("killed")
		changed := false
		for more := true; more; {
			err := f.Update(f.ctx, func(tx session.Tx) error {
				if _, _, err := session.CopyFork(f.ctx, tx, work, 1<<20, 1); err != nil {
					return err
				}
				return failed
			})
			if !errors.Is(err, failed) {
				t.Fatal(err)
			}
			var fork *session.Forking
			fork, more, err = f.piece(work, 1)
			f.must("a piece", err)
			if fork.State > session.ForkMends && fork.State != session.ForkTidies && fork.State != session.ForkReady {
				t.Fatalf("it is %+v", fork)
			}
			if list := f.due(); !slices.Contains(list, work) {
				t.Fatalf("there is %v", list)
			}
			if changed || fork.State == session.ForkCopies && fork.After < at {
				continue
			}
			changed = true
			f.changeForkSource(o)
			f.trim(o.session, keepNothing, 100)
			for more := true; more; {
				var err error
				more, err = f.RemoveReverted(f.ctx, 100)
				f.must("sweep", err)
			}
		}
		if a := f.ask(sub); a.Err != nil || a.Outcomes[0].Status != ledger.Applied {
			t.Fatalf("when it is copied it is answered %+v", a)
		}
		if got := f.contentOf(big.session); got != want {
			t.Errorf("changed at %q, in pieces it is\n%s\nin one event\n%s", at, got, want)
		}
		if a := f.ask(sub); !a.Duplicate {
			t.Errorf("once more it is answered %+v", a)
		}
		page := f.log(big.session)
		if r := page.Row; r.Base != r.Cursor || r.Origin.Session != o.session || f.checkpoint(page) != r.Head || r.Forking != nil {
			t.Errorf("its row is %+v", r)
		}
		bytes, err := f.Measure(f.ctx, big.session)
		if f.must("measure", err); bytes+session.EventCost != page.Row.Bytes && bytes != page.Row.Bytes {
			t.Errorf("it has %d bytes, its row says %d", bytes, page.Row.Bytes)
		}
		if r := f.log(o.session).Row; r.Copies != nil {
			t.Errorf("the source's row has %+v", r.Copies)
		}
		p := big
		p.with, p.space = nil, ""
		f.applied(p.batch(false, putOp("message/last", `{}`), putOp("todo/1", `2`)))
		f.trim(o.session, keepNothing, 100)
		if list := f.due(); slices.Contains(list, work) {
			t.Errorf("there is %v", list)
		}
	}
}

// testForksAtOnce: two servers copy the same forks, while a third changes the source.
func testForksAtOnce(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := f.forkSource(true)
	var puts []ledger.Intent
	for i := range 60 {
		puts = append(puts, putOp(fmt.Sprintf("row/%02d", i), `0`))
	}
	f.applied(o.batch(false, puts...))
	want := f.contentOf(o.session)
	var works []session.ForkWork
	var subs []session.Submission
	for range 3 {
		p, sub := f.forkOf(o)
		f.ask(sub)
		works, subs = append(works, session.ForkWork{Session: p.session, Source: o.session}), append(subs, sub)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for more := true; more; {
				more = false
				for _, w := range works {
					_, again, err := f.piece(w, 5)
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
			f.applied(o.batch(false, putOp(fmt.Sprintf("row/%02d", (i*37)%60), `1`)))
		}
	})
	wg.Wait()
	for i, sub := range subs {
		for more := true; more; { // a server may have seen none, as the other had it
			var err error
			_, more, err = f.piece(works[i], 5)
			f.must("a piece", err)
		}
		if a := f.ask(sub); a.Err != nil || a.Outcomes[0].Status != ledger.Applied {
			t.Fatalf("it is answered %+v", a)
		}
		if got := f.contentOf(works[i].Session); got != want {
			t.Errorf("fork %d is\n%s\nnot\n%s", i, got, want)
		}
	}
}

// testForksEnd: what ends a fork that is being copied, and leaves nothing of it.
func testForksEnd(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	for name, c := range map[string]struct {
		end  func(o *author, via string)
		code fault.Code
		gone bool // what was copied is gone at once
	}{
		"a purge": {func(o *author, _ string) {
			f.applied(o.batch(false, newIntent(session.MethodPurge, "key", "doc/large")))
		}, fault.CursorExpired, false},
		"a delete": {func(o *author, _ string) { f.applied(o.batch(false, newIntent(session.MethodDelete))) }, fault.SessionDeleted, true},
		"a revoke": {func(o *author, via string) { f.applied(o.batch(false, newIntent(session.MethodRevoke, "ref", via))) }, fault.Revoked, false},
	} {
		for _, pieces := range []int{0, 3, 13, 25, 100, -1, -3, -13, -25, -50, -100} { // before that; negative: of a fork as of an earlier cursor
			o := f.forkSource(pieces >= 0)
			via := clientRef(o.session)
			f.applied(o.batch(false, newIntent(session.MethodShare, "ref", via, "hash", hashText(), "rights", []string{"read"})))
			p, sub := f.forkOf(o)
			sub.PassedRefs = []string{via}
			args := []any{"source", o.session, "via", via, "ref", p.ref, "hash", hashText()}
			if pieces < 0 {
				args, pieces = append(args, "at", f.log(o.session).Row.Cursor-1), -pieces
			}
			p.seq--
			sub2 := p.batch(false, newIntent(session.MethodFork, args...))
			sub2.PassedRefs = []string{via}
			f.ask(sub2)
			work := session.ForkWork{Session: p.session, Source: o.session}
			for range pieces {
				if _, more, err := f.piece(work, 1); err != nil || !more {
					f.must("a piece", err)
					break
				}
			}
			f.applied(o.batch(false, putOp("doc/large", `1`)))
			c.end(o, via)
			kept := f.load(&session.ReadSet{EntryMeta: map[string][]string{p.session: {"doc/large", "message/a"}}, Before: &session.BeforeSet{Session: p.session, Keys: []string{"doc/large"}}})
			if e := kept.Entries[p.session]; name == "a purge" && (e["doc/large"] != nil || kept.Before["doc/large"] != nil) || c.gone && len(e)+len(kept.Before) > 0 {
				t.Errorf("%s after %d pieces leaves %+v, %+v", name, pieces, e, kept.Before)
			}
			answered := false
			for i := range 200 {
				_, more, err := f.piece(work, 1)
				f.must("a piece", err)
				if i == 0 || !more {
					a := f.ask(sub2)
					if a.Err != nil || a.Outcomes[0].Status == ledger.Applied || a.Outcomes[0].Reason != c.code {
						t.Fatalf("%s after %d pieces: it is answered %+v", name, pieces, a)
					}
					answered = answered || a.Duplicate
				}
				if !more {
					break
				}
			}
			rows := f.load(&session.ReadSet{Page: &session.EntryPage{Session: p.session, Bytes: 1 << 20, Keys: 100}})
			kept = f.load(&session.ReadSet{Page: &session.EntryPage{Session: p.session, Bytes: 1 << 20, Keys: 100, Before: true, Log: o.session}})
			if len(rows.Page)+len(kept.Page) > 0 {
				t.Errorf("%s after %d pieces: %d entries and %d others are left", name, pieces, len(rows.Page), len(kept.Page))
			}
			if list := f.due(); slices.Contains(list, work) {
				t.Errorf("%s: there is %v", name, list)
			}
		}
	}
}
