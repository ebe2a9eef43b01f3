// The domain on a real store: session.Commit must come to the same on a
// database as in memory, and its promises must hold with many at once.

package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/ledger"
)

// commit is session.Commit in one transaction; now is the one it had.
func (f *fixture) commit(subs ...session.Submission) (answers []session.Answer, now int64) {
	f.Helper()
	err := f.Update(f.ctx, func(tx session.Tx) (err error) {
		clock := &clockTx{Tx: tx, later: f.later}
		answers, _, err = session.Commit(f.ctx, clock, subs, session.DefaultConfig())
		now = clock.now
		return err
	})
	if err != nil {
		f.Fatalf("commit: %v", err)
	}
	return answers, now
}

// applied commits and stops the test unless every op applied.
func (f *fixture) applied(sub session.Submission) {
	f.Helper()
	answers, _ := f.commit(sub)
	if answers[0].Err != nil {
		f.Fatalf("commit: %v", answers[0].Err)
	}
	for _, o := range answers[0].Outcomes {
		if o.Status != ledger.Applied {
			f.Fatalf("op did not apply: %+v", o)
		}
	}
}

// clockTx remembers its transaction's now.
type clockTx struct {
	session.Tx
	later, now int64
}

func (t *clockTx) Load(ctx context.Context, w *session.ReadSet) (*session.Rows, error) {
	rows, err := t.Tx.Load(ctx, w)
	if rows != nil {
		rows.Now += t.later
		t.now = rows.Now
	}
	return rows, err
}

// space makes a space's ref.
func (f *fixture) space() *capability.Grant {
	f.Helper()
	root := grant(newRef(newSpace()), "")
	root.Rights, root.Epoch = capability.SpaceRights, 0
	f.save(&session.Changes{Grants: []*capability.Grant{root}})
	return root
}

// twin runs the same submissions on the store and in memory, at the same time
// of their clocks, and compares all answers.
type twin struct {
	*fixture
	model *memtx.Store
	seed  uint64
}

func (w *twin) commit(subs ...session.Submission) []session.Answer {
	w.Helper()
	got, now := w.fixture.commit(subs...)
	w.model.Now = now
	var want []session.Answer
	err := w.model.Update(w.ctx, func(tx session.Tx) (err error) {
		want, _, err = session.Commit(w.ctx, tx, subs, session.DefaultConfig())
		return err
	})
	if err != nil {
		w.Fatalf("seed %d: commit in memory: %v", w.seed, err)
	}
	for i := range want {
		if w.same("answer", got[i], want[i]); w.Failed() {
			w.Fatalf("seed %d: to submission %d of %d: %+v", w.seed, i+1, len(subs), subs[i])
		}
	}
	return got
}

func (w *twin) same(what string, got, want any) {
	w.Helper()
	same(w.fixture, what, got, want)
}

// checkMeasured checks what is counted as held: exactly, where nothing was trimmed, and else not
// less than there is.
func (w *twin) checkMeasured(row *session.Row) {
	w.Helper()
	got, err := w.Measure(w.ctx, row.ID)
	w.must("measure", err)
	if row.Life == session.Live && (got > row.Bytes || row.Base == 0 && got != row.Bytes) {
		w.Errorf("%d bytes are counted, and %d are there, of a log after %d", row.Bytes, got, row.Base)
	}
}

// open opens a writer's stream on both.
func (w *twin) open(o *author) *author {
	w.Helper()
	o.secret = hash()
	_, err := w.OpenStream(w.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, o.secret, 1)
	w.must("open stream", err)
	w.model.OpenStream(o.session, o.outbox, 1)
	w.model.SetStreamSecret(o.session, o.outbox, o.secret)
	return o
}

// compare holds everything a session has on the store against the model, whose
// log is never trimmed.
func (w *twin) compare(id string, authors []*author, refs []string) {
	w.Helper()
	page, err := w.ReadLog(w.ctx, id, 0, 1<<30, 1<<20, nil)
	w.must("read log", err)
	row, log, base := w.model.Session(id), w.model.Events(id), uint64(0)
	if row != nil && page.Row != nil {
		base, row.Base = page.Row.Base, page.Row.Base
		row.Bytes = page.Row.Bytes // the model keeps all of its log
		row.Left = page.Row.Left   // and all rows
	}
	w.same("row", page.Row, row)
	w.same("log", page.Events, append([]*session.Event(nil), log[base:]...)) // nil if empty
	if len(log) > 0 {
		head, err := chained(w.checkpoint(page), base, page.Events)
		w.must("chain", err)
		w.same("head", page.Row.Head, head)
	}
	var entries []*session.Entry
	var turns []*session.Turn
	w.must("read state", w.ReadState(w.ctx, id, nil, 1000, func(p *session.StateChunk) error {
		entries, turns = append(entries, p.Entries...), append(turns, p.Turns...)
		return nil
	}))
	wantEntries, wantTurns := w.model.State(id)
	w.same("entries", entries, wantEntries)
	w.same("turns", turns, wantTurns)
	if base == 0 && row != nil && row.Life == session.Live {
		w.follow(id)
	}

	rows := w.load(&session.ReadSet{Sessions: []string{id}, Grants: refs})
	for _, ref := range refs {
		got, want := rows.Grants[ref], w.model.Grant(ref)
		if base > 0 && got != nil && want != nil {
			want.Bytes = got.Bytes
		}
		w.same("grant", got, want)
	}
	w.checkMeasured(page.Row)
	for _, o := range authors {
		key := session.StreamKey{Session: o.session, Outbox: o.outbox}
		rows := w.load(&session.ReadSet{Streams: []session.StreamKey{key}, Records: []session.RecordRange{{Stream: key, From: 1, To: 1 << 40}}})
		got, want := rows.Streams[key], w.model.Stream(key.Session, key.Outbox)
		w.same("stream", got, want)
		if n := w.model.Records(key.Session, key.Outbox); len(rows.Records[key]) != n {
			w.Errorf("%d records of %d", len(rows.Records[key]), n)
		}
	}
	audit := w.audit(id)
	var want []*capability.AuditRow
	for _, a := range w.model.Audit() {
		if a.Target == id {
			a.Count = max(a.Count, 1)
			want = append(want, a)
		}
	}
	for i, a := range want { // the model keeps no chain
		if i < len(audit) {
			a.Seq, a.Hash = uint64(i+1), audit[i].Hash
		}
	}
	w.same("audit", audit, want)
	if w.Failed() {
		w.Fatalf("seed %d: session %s", w.seed, id)
	}
}

// followers are the grants of who follows a session, besides the owner.
var followers = map[string]*capability.Grant{"of all": everything, "of a message": {Message: "m1"}, "of lists": {ReadKeys: []string{"todo/", "part/m1/"}},
	"of some keys": {ReadKeys: []string{"todo/1", "plan", "schema/todo", "message/m0", "part/m0/"}}}

// follow checks that what each reader is shown of the log, from its beginning on, folds to what it is
// shown of the state.
func (w *twin) follow(id string) {
	w.Helper()
	log, err := w.Store.ReadLog(w.ctx, id, 0, 1<<30, 1<<20, nil)
	w.must("read log", err)
	for name, g := range followers {
		fold := session.NewFold(id)
		shown := log.Shown(g)
		if g != everything && slices.ContainsFunc(shown.Events, func(e *session.Event) bool { return session.IsRevert(e.Method) }) {
			continue // it reads the state again
		}
		for _, e := range shown.Events {
			w.must("fold what is shown "+name, fold.Apply(e))
		}
		var state session.StateChunk
		w.must("read state", w.Store.ReadState(w.ctx, id, nil, 1000, nil, func(p *session.Unscoped[*session.StateChunk]) error {
			piece := p.Shown(g)
			state.Entries, state.Turns = append(state.Entries, piece.Entries...), append(state.Turns, piece.Turns...)
			return nil
		}))
		w.same("values folded from what is shown "+name, readable(fold.Entries(), fold.Turns()), readable(state.Entries, state.Turns))
		if row := shown.Row; g == everything && fold.Hash() != session.StateHash(row.Cursor, row.Epoch, row.Life, state.Entries, state.Turns) {
			w.Errorf("the log folds to another state")
		}
	}
}

// readable is a state as a reader may compare it.
func readable(entries []*session.Entry, turns []*session.Turn) (all []string) {
	for _, e := range entries {
		claim := "free"
		if c := e.Claim; c != nil {
			claim = fmt.Sprint(c.Cursor, c.Renewed, c.Until, session.OutboxOf(c.Outbox), c.Worker, c.Ref, c.Actor)
		}
		all = append(all, fmt.Sprintf("%s@%d %d %s %s", e.Key, e.Cursor, e.Schema, e.Payload, claim))
	}
	for _, t := range turns {
		all = append(all, fmt.Sprint(t.Message, t.Status, t.Begun, t.Ended))
	}
	slices.Sort(all)
	return all
}

// testCommitScripts runs random scripts of everything that ops can do.
func testCommitScripts(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	for _, seed := range f.seeds(1, 2) {
		s := newScript(&twin{fixture: f, model: memtx.New(), seed: seed})
		for i := range 60 {
			if i%20 == 19 {
				s.newSession()
				s.finish() // on the way, too: a purge or a delete hides what was before
			}
			s.step()
		}
		s.finish()
	}
}

// testCommitEdits runs random scripts of what ops do with values of the users' own kinds: all of it
// happens, by several writers, while leases end.
func testCommitEdits(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	happened := map[string]int{}
	for _, seed := range f.seeds(1, 2) {
		t.Logf("seed %d", seed)
		s := newScript(&twin{fixture: f, model: memtx.New(), seed: seed})
		s.authors = s.authors[:1]
		owner := s.authors[0]
		guest := clientRef(owner.session)
		s.commit(owner.batch(false, shareOp(guest, "read", "append")))
		s.refs[owner.session] = append(s.refs[owner.session], guest)
		s.authors = append(s.authors, s.open(owner.withRef(owner.ref)), s.open(owner.withRef(guest)))
		for i := range 120 {
			var group []session.Submission
			for range 1 + s.rand.IntN(3) {
				o := pick(s, s.authors)
				var ops []ledger.Intent
				for range 1 + s.rand.IntN(3) {
					ops = append(ops, s.editOrEnd(o))
				}
				group = append(group, o.batch(s.oneIn(6), ops...))
			}
			if s.oneIn(5) && len(s.sent) > 0 {
				group = append(group, pick(s, s.sent))
			}
			s.sent = append(s.sent, group...)
			for j, a := range s.commit(group...) {
				for k, out := range a.Outcomes {
					in := &group[j].Batch.Ops[k]
					what := fmt.Sprint(out.Status, " ", in.Method)
					if in.Method == session.MethodClaim {
						what += " of a " + in.Args[0].Name
					}
					happened[what]++
				}
			}
			if s.oneIn(4) {
				f.later += int64(s.rand.IntN(3000)) // a lease of a second may be over
			}
			if i%6 == 5 {
				s.finish()
			}
			if s.oneIn(10) {
				s.search()
			}
		}
		s.finish()
		for _, e := range s.model.Events(owner.session) {
			happened[e.Method]++
			if e.Method == session.MethodRelease && strings.Contains(string(e.Payload), `"broken":true`) {
				happened["break"]++
			}
			if e.Method == session.MethodClaim && strings.Contains(string(e.Payload), `"claim"`) {
				happened["renewal"]++
			}
			if strings.HasPrefix(e.Key, "schema/") {
				happened["schema"]++
			}
		}
	}
	if seed.Raced {
		return // with few seeds not all of it happens
	}
	for _, what := range []string{"put", "patch", "add", "remove", "purge", "claim", "renewal", "release", "break", "lapse", "schema", "conflict put", "conflict patch",
		"conflict add", "conflict remove", "applied claim of a prefix", "conflict claim of a key", "conflict release", "rejected put", "rejected patch", "rejected add", "rejected claim of a key", "denied purge"} {
		if happened[what] == 0 {
			t.Errorf("no %s has happened: %v", what, happened)
		}
	}
}

// testCommitClaim: a batch that comes many times at once, alone and in groups,
// is applied once and answered alike.
func testCommitClaim(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	f.applied(o.batch(false, o.create()))
	for round := range uint64(10) {
		sub := o.batch(round%2 == 0, putOp("message/a", `{"n":%d}`, round), putOp("message/b", `{"n":%d}`, round))
		const many = 6
		answers := make([]session.Answer, many)
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				if i%2 == 0 {
					got, _ := f.commit(sub)
					answers[i] = got[0]
				} else {
					got, _ := f.commit(sub, sub)
					answers[i] = got[1]
				}
			})
		}
		all.Wait()
		for _, a := range answers {
			if a.Err != nil || a.Cursor != 2*round+3 {
				t.Fatalf("answer: %+v", a)
			}
			same(f, "outcomes", a.Outcomes, answers[0].Outcomes)
		}
	}
	f.wholeLog(o.session, 21)
}

// testCommitRevoke: nothing under a revoked ref commits after the cut, however
// many append.
func testCommitRevoke(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	for _, epoch := range []bool{false, true} {
		o := newAuthor(f.space().ID)
		open := func(p *author) *author {
			_, err := f.OpenStream(f.ctx, session.StreamKey{Session: p.session, Outbox: p.outbox}, hash(), 1)
			f.must("open stream", err)
			return p
		}
		open(o)
		ref := clientRef(o.session)
		f.applied(o.batch(false, o.create(), shareOp(ref, "append")))
		started := make(chan struct{}, 1000)
		last := make([]ledger.Outcome, 4)
		var all sync.WaitGroup
		for i := range last {
			p := open(o.withRef(ref))
			all.Go(func() {
				for n := 0; last[i].Status != ledger.Denied; n++ {
					got, _ := f.commit(p.batch(false, putOp("message/m"+p.outbox, `{"n":%d}`, n)))
					if got[0].Err != nil {
						t.Errorf("append: %v", got[0].Err)
						return
					}
					last[i] = got[0].Outcomes[0]
					select {
					case started <- struct{}{}:
					default:
					}
				}
			})
		}
		f.await(started, 12)
		direct := &session.Direct{Ref: ref, Epoch: epoch}
		got, _ := f.commit(session.Submission{Batch: ledger.Batch{Session: o.session}, Ref: o.ref, Direct: direct})
		if got[0].Err != nil {
			t.Fatalf("revoke: %v", got[0].Err)
		}
		all.Wait()
		cut := got[0].Cut
		want := map[bool]fault.Code{false: fault.Revoked, true: fault.StaleEpoch}[epoch]
		for _, o := range last {
			if o.Reason != want {
				t.Errorf("refused with %v, want %v", o.Reason, want)
			}
		}
		for _, e := range f.wholeLog(o.session, cut) {
			if e.Ref == ref && e.Cursor > cut {
				t.Errorf("cursor %d was committed after the cut at %d", e.Cursor, cut)
			}
		}
		if _, err := f.Lapsed(f.ctx, 0, "", 1); err != nil {
			t.Errorf("lapsed: %v", err)
		}
	}
}

// testCommitOpposite: groups that hold two sessions' batches in opposite order.
func testCommitOpposite(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	root := f.space()
	one, two := newAuthor(root.ID), newAuthor(root.ID)
	var all sync.WaitGroup
	for i := range 6 {
		a, b := one.sameSession(), two.sameSession()
		if i%2 == 1 {
			a, b = b, a
		}
		all.Go(func() {
			for _, p := range []*author{a, b} {
				_, err := f.OpenStream(f.ctx, session.StreamKey{Session: p.session, Outbox: p.outbox}, hash(), 1)
				if err != nil {
					t.Errorf("open stream: %v", err)
				}
			}
			for range 10 {
				// All try to create both; one succeeds with each.
				got, _ := f.commit(a.batch(false, a.create()), b.batch(false, b.create()))
				for _, answer := range got {
					if answer.Err != nil {
						t.Errorf("commit: %v", answer.Err)
					}
				}
			}
		})
	}
	all.Wait()
	f.wholeLog(one.session, 1)
	f.wholeLog(two.session, 1)
}

// testClockSetBack: time does not run backwards along a log, although the database's clock was
// set back, whether a batch is decided on rows that were read or on remembered ones.
func testClockSetBack(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	f.applied(o.batch(false, o.create()))
	row := f.load(&session.ReadSet{Sessions: []string{o.session}}).Sessions[o.session]
	row.Updated += time.Hour.Milliseconds() // before it was set back
	f.save(&session.Changes{Sessions: []*session.Row{row}}, o.session)
	for n := range 3 {
		f.applied(o.batch(false, putOp("message/a", `{"n":%d}`, n)))
	}
	page := f.log(o.session)
	for _, e := range page.Events[1:] {
		if e.At != row.Updated {
			t.Errorf("event %d is of %+d ms, measured from the one before", e.Cursor, e.At-row.Updated)
		}
	}
}

// testCommitFails: a store that fails under Commit fails it whole.
func testCommitFails(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := newAuthor(f.space().ID)
	ctx, cancel := context.WithCancel(f.ctx)
	err := f.Update(ctx, func(tx session.Tx) error {
		cancel()
		_, _, err := session.Commit(ctx, tx, []session.Submission{o.batch(false, o.create())}, session.DefaultConfig())
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("commit: %v", err)
	}
	sight, err := f.ReadAccess(f.ctx, o.session, []string{o.ref})
	f.must("look", err)
	if sight.Row != nil || len(sight.Grants) != 0 {
		t.Errorf("a failed commit left %+v", sight)
	}
}
