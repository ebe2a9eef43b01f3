package decide_test

// Forks in pieces: what is copied while the source goes on is what a fork in one event has, and what ends them.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/ledger"
)

// forkOf is a new writer and its fork of o.
func (o *writer) forkOf(via string, args ...any) (p *writer, x anOp) {
	p = o.w.newWriter()
	p.with = []string{via}
	return p, op("fork", append([]any{"source", o.session, "via", via, "ref", p.ref, "hash", sha(p.ref)}, args...)...)
}

// begin sends a fork that is copied in pieces, and fixes what it is a copy of.
func (o *writer) begin(x anOp) decide.Submission {
	o.w.Helper()
	sub := o.batch(false, x)
	o.w.ask(sub)
	if o.w.store.Session(o.session).Forking == nil {
		o.w.Fatalf("the fork has not begun")
	}
	return sub
}

// ask sends a batch that has to wait, as a server answers it.
func (w *world) ask(sub decide.Submission) *fault.Error {
	w.Helper()
	answers, _ := w.commit(sub)
	err := answers[0].Err
	if err == nil || !err.Copying() {
		w.Fatalf("it is answered %v, %+v", err, answers[0].Outcomes)
	}
	if r := answers[0].Fork; r != nil {
		if err := w.store.Update(context.Background(), func(tx session.Tx) error { return maintain.BeginFork(context.Background(), tx, r) }); err != nil {
			w.Fatalf("begin: %v", err)
		}
	}
	return err
}

// piece copies a piece of at most a number of keys of every fork, and reports whether there are others.
func (w *world) piece(keys int) (more bool) {
	w.Helper()
	return w.pieceOf(1<<20, keys)
}

func (w *world) pieceOf(bytes, keys int) (more bool) {
	w.Helper()
	for _, work := range w.store.Forks() {
		err := w.store.Update(context.Background(), func(tx session.Tx) error {
			_, m, err := maintain.CopyFork(context.Background(), tx, work.ForkWork, bytes, keys)
			more = more || m
			return err
		})
		if err != nil {
			w.Fatalf("a piece: %v", err)
		}
	}
	return more
}

// content is a session's state in its order, without cursors, and what its compacted view leaves out.
func (w *world) content(id string) string {
	entries, _ := w.store.State(id)
	slices.SortFunc(entries, session.CompareEntries)
	row := w.store.Session(id)
	c := row.Compacted()
	heads := map[string]*session.Entry{}
	for _, e := range entries {
		if session.HeadOf(e.Key) == e.Key {
			heads[e.Key] = e
		}
	}
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %s %d %v\n", e.Key, e.Payload, e.Schema, c.LeavesOut(heads[session.HeadOf(e.Key)]))
	}
	return b.String() + c.Summary
}

func TestForksInPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t)
		g, o := w.group, w.writers[0]
		o.w = g
		if rapid.Bool().Draw(t, "by time") {
			o = g.create("order", "time")
			o.try(op("begin", "message", "m0", "payload", raw(`{"time":{"created":%d}}`, 5)), op("put", "key", "part/m0/p0", "payload", raw(`{}`)))
		}
		change := func() {
			if g.store.Session(o.session).Life == session.Live {
				g.commit(o.batch(false, w.randomOp(o, nil), w.randomOp(o, nil)))
			}
		}
		for range rapid.IntRange(0, 30).Draw(t, "before") {
			change()
		}
		revoked := func() bool { return g.store.Grant(o.ref).Revoked > 0 }
		if g.store.Session(o.session).Life != session.Live || revoked() {
			return
		}
		o.try(op("put", "key", "message/m9", "payload", raw(`{}`))) // not all that is there is hidden
		var args []any
		begun := g.store.Session(o.session).Cursor
		at, message := begun, "m9"
		if rapid.Bool().Draw(t, "earlier") {
			for range rapid.IntRange(0, 10).Draw(t, "since") {
				change()
			}
			if begun = g.store.Session(o.session).Cursor; g.store.Session(o.session).Life != session.Live || revoked() {
				return
			}
			at, message = uint64(rapid.IntRange(1, int(begun)).Draw(t, "at")), rapid.SampledFrom([]string{"m0", "m1", "m9"}).Draw(t, "message")
			args = []any{"at", at}
		}
		if rapid.Bool().Draw(t, "up to a message") {
			args = append(args, "message", message)
		}
		small, x := o.forkOf(o.ref, args...)
		answers, _ := g.commit(small.batch(false, x))
		there := answers[0].Outcomes[0]
		if there.Status != ledger.Applied {
			if there.Reason != fault.NotFound && there.Reason != fault.Reverted {
				t.Fatalf("in one event it is answered %+v", there)
			}
			if at == begun { // it is not begun
				return
			}
		}
		var want string
		if there.Status == ledger.Applied {
			want = g.content(small.session)
		}
		limits := g.cfg.Limits
		if g.cfg.Limits.ForkBytes = 1; at < begun {
			g.cfg.Limits.EventBytes = 1 // too much to read
		}
		big, x := o.forkOf(o.ref, args...)
		sub := big.begin(x)
		g.cfg.Limits = limits
		keys, size := rapid.IntRange(1, 40).Draw(t, "keys in a piece"), rapid.SampledFrom([]int{1, 50, 1 << 20}).Draw(t, "bytes in a piece")
		for more := true; more; {
			for range rapid.IntRange(0, 3).Draw(t, "meanwhile") {
				change()
			}
			if rapid.Bool().Draw(t, "swept") {
				g.store.RemoveReverted(o.session)
			}
			if more = g.pieceOf(size, keys); g.store.Session(big.session).Life != session.Absent {
				t.Fatalf("it is there already")
			}
		}
		change()
		var purged, deleted bool
		for _, e := range g.store.Events(o.session)[begun:] {
			purged, deleted = purged || e.Method == session.MethodPurge, deleted || e.Method == session.MethodDelete
		}
		g.store.Now += 10
		answers, _ = g.commit(sub)
		switch out := answers[0].Outcomes; {
		case deleted || purged || revoked():
			if len(out) != 1 || out[0].Status == ledger.Applied {
				t.Fatalf("of a source that was purged or deleted there is %+v", answers[0])
			}
			for g.piece(100) {
			}
			if n := g.store.Rows(big.session); n > 0 {
				t.Fatalf("%d rows are left", n)
			}
		case len(out) == 1 && out[0].Status == there.Status && out[0].Reason == there.Reason && there.Status != ledger.Applied:
			for g.piece(100) {
			}
		case len(out) != 1 || out[0].Status != ledger.Applied:
			t.Fatalf("it is answered %+v", answers[0])
		default:
			if got := g.content(big.session); got != want {
				t.Fatalf("in pieces it is\n%s\nin one event\n%s", got, want)
			}
			row := g.store.Session(big.session)
			if row.Cursor != at+1 || row.Base != at+1 || row.Origin.Cursor != at || row.Needs&^g.store.Session(small.session).Needs != 0 || row.Forking != nil {
				t.Fatalf("the row is %+v", row)
			}
			if left := g.store.Session(o.session).Copies; left != nil {
				t.Fatalf("the source has %+v", left)
			}
			big.with = nil
			big.apply(op("put", "key", "message/last", "payload", raw(`{}`)))
			entries, _ := g.store.State(big.session)
			slices.SortFunc(entries, session.CompareEntries)
			if e := entries[len(entries)-1]; e.Key != "message/last" {
				t.Fatalf("what is put next is before %s", e.Key)
			}
		}
		if list := g.store.Forks(); len(list) > 0 {
			t.Fatalf("there is work: %v", list)
		}
	})
}

// As of each cursor of a session that has seen everything, a fork in pieces of one event, and of more, has what a fork in one event has.
func TestForksInPiecesOfEarlier(t *testing.T) {
	t.Parallel()
	o := story(t)
	w := o.w
	puts := func(keys ...string) {
		for _, key := range keys {
			o.apply(op("put", "key", key, "payload", raw(`{}`)))
		}
	}
	puts("message/r", "part/r/1", "part/r/2", "part/r/3", "message/s", "part/s/1", "part/s/2")
	o.apply(op("revert", "to", "part/r/2"))
	puts("message/t") // settles it
	puts("message/u", "part/u/1", "part/u/2", "message/v", "part/v/1")
	o.apply(op("revert", "to", "message/u"))
	puts("message/w", "part/u/2", "message/u", "part/u/3") // a part that comes before its message
	for _, key := range []string{"todo/a", "todo/b", "todo/c"} {
		o.apply(op("put", "key", key, "payload", raw(`{"n":1,"x":%q}`, strings.Repeat("x", 100)))) // more than there is room for in a piece
	}
	o.apply(op("patch", "key", "todo/a", "patch", raw(`{"n":2}`)))
	o.apply(op("add", "key", "todo/b", "member", "n", "by", 2))
	o.apply(op("add", "key", "todo/c", "member", "n", "by", 3))
	o.apply(op("purge", "key", "message/u"))
	puts("message/x", "part/x/1", "part/u/1")
	o.apply(op("compact", "upto", "message/w", "summary", "message/x"))
	o.apply(op("revert", "to", "part/x/1"))
	o.share(all)
	cursor := w.store.Session(o.session).Cursor
	limits := w.cfg.Limits
	for at := uint64(1); at < cursor; at++ {
		small, x := o.forkOf(o.ref, "at", at)
		small.apply(x)
		want := w.content(small.session)
		for _, keys := range []int{1, 3, 1000} {
			w.cfg.Limits.ForkBytes = 1
			big, x := o.forkOf(o.ref, "at", at)
			sub := big.begin(x)
			w.cfg.Limits = limits
			for more := true; more; {
				more = w.pieceOf(50, keys)
			}
			answers, _ := w.commit(sub)
			mustEqual(t, fmt.Sprintf("the answer as of %d", at), answers[0].Outcomes[0].Status, ledger.Applied)
			if got := w.content(big.session); got != want {
				t.Fatalf("as of %d, %d keys a piece, it is\n%s\nin one event\n%s", at, keys, got, want)
			}
		}
	}

	// The hash of the event there, a message that was not there, and a cursor that is given again.
	hash := w.store.Events(o.session)[9].Hash
	for _, c := range []struct {
		hash string
		code fault.Code
		args []any
	}{{hash.String(), 0, nil}, {session.SumOf(nil).String(), fault.BadArgument, nil}, {"", fault.NotFound, []any{"message", "x"}}} {
		w.cfg.Limits.EventBytes, w.cfg.Limits.ForkBytes = 1, 1
		args := append([]any{"at", 10}, c.args...)
		if c.hash != "" {
			args = append(args, "at_hash", c.hash)
		}
		big, x := o.forkOf(o.ref, args...)
		sub := big.begin(x)
		w.cfg.Limits = limits
		for w.piece(100) {
		}
		answers, _ := w.commit(sub)
		if out := answers[0].Outcomes; len(out) != 1 || out[0].Reason != c.code {
			t.Errorf("with %v: %+v", c, answers[0])
		}
	}
}

// What is not begun, what waits, and what ends a fork besides its source.
func TestForksInPiecesRefuse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{}`)))
	w.cfg.Limits.ForkBytes = 1
	p, x := o.forkOf(o.ref, "message", "b")
	p.refuse(ledger.Rejected, fault.NotFound, x)
	p, x = o.forkOf(o.ref)
	sub := p.begin(x)
	asked := w.store.Session(p.session).Forking.Asked
	w.store.Now += 30_000
	w.ask(sub)
	mustEqual(t, "when it was asked for, as of half a minute ago", w.store.Session(p.session).Forking.Asked, asked)
	w.store.Now += 60_000
	w.ask(sub)
	mustEqual(t, "when it was asked for", w.store.Session(p.session).Forking.Asked, w.store.Now)

	// Its id is taken, also for the same outbox under another ref.
	other := w.newWriter()
	other.session, other.with = p.session, []string{o.ref}
	other.ref, _ = newRef(p.session)
	w.store.OpenStream(other.session, other.outbox, 1)
	other.refuse(ledger.Rejected, fault.AlreadyExists, op("create", "ref", other.ref, "hash", sha(other.ref)))
	other.refuse(ledger.Rejected, fault.AlreadyExists, op("fork", "source", o.session, "via", o.ref, "ref", other.ref, "hash", sha(other.ref)))
	mustEqual(t, "the life of the session", w.store.Session(p.session).Life, session.Absent)

	for range maintain.MaxCopies - 1 {
		p, x := o.forkOf(o.ref)
		p.begin(x)
	}
	q, x := o.forkOf(o.ref)
	late := q.batch(false, x)
	answers, _ := w.commit(late)
	mustEqual(t, "one too many", answers[0].Err.Code, fault.Overloaded)
	for w.piece(1) {
	}
	answers, _ = w.commit(sub)
	mustEqual(t, "the first", answers[0].Outcomes[0].Status, ledger.Applied)
	w.ask(late) // there is room
	mustEqual(t, "the one that waited", w.store.Session(q.session).Forking != nil, true)

	// Nobody asks for the others, and then the space's ref dies.
	w.store.Now += 6 * 24 * 3600 * 1000
	w.ask(late)
	w.store.Now += 3 * 24 * 3600 * 1000
	for w.piece(1) {
	}
	mustEqual(t, "the forks of the source", len(w.store.Session(o.session).Copies.Forks), 1)
	mustEqual(t, "what is left", w.store.Session(q.session).Forking.State, session.ForkReady)
	r, x := o.forkOf(o.ref)
	r.begin(x)
	g := *w.store.Grant(w.space)
	g.Revoked = w.store.Now
	w.store.AddGrant(g)
	for w.piece(1) {
	}
	mustEqual(t, "under a dead ref of the space", w.store.Session(r.session).Forking.Code, fault.Revoked)
	mustEqual(t, "rows of it", w.store.Rows(r.session), 0)
}
