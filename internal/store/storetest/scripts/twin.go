// A store and the model in memory, which are given the same and must answer alike.

package scripts

import (
	"fmt"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// twin runs the same submissions on the store and in memory, at the same time
// of their clocks, and compares all answers.
type twin struct {
	*harness.Fixture
	model *memtx.Store
	seed  uint64
}

func (w *twin) commit(subs ...decide.Submission) []decide.Answer {
	w.Helper()
	got, now := w.Fixture.Commit(subs...)
	w.model.Now = now
	var want []decide.Answer
	err := w.model.Update(w.Ctx, func(tx session.Tx) (err error) {
		want, _, err = decide.Commit(w.Ctx, tx, subs, decide.DefaultConfig())
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
	harness.Same(w.Fixture, what, got, want)
}

// checkMeasured checks what is counted as held: exactly, where nothing was trimmed, and else not
// less than there is.
func (w *twin) checkMeasured(row *session.Row) {
	w.Helper()
	got, err := w.Measure(w.Ctx, row.ID)
	w.Must("measure", err)
	if row.Life == session.Live && (got > row.Bytes || row.Base == 0 && got != row.Bytes) {
		w.Errorf("%d bytes are counted, and %d are there, of a log after %d", row.Bytes, got, row.Base)
	}
}

// open opens a writer's stream on both.
func (w *twin) open(o *harness.Author) *harness.Author {
	w.Helper()
	o.Secret = harness.Hash()
	_, err := w.OpenStream(w.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, o.Secret, 1)
	w.Must("open stream", err)
	w.model.OpenStream(o.Session, o.Outbox, 1)
	w.model.SetStreamSecret(o.Session, o.Outbox, o.Secret)
	return o
}

// compare holds everything a session has on the store against the model, whose
// log is never trimmed.
func (w *twin) compare(id string, authors []*harness.Author, refs []string) {
	w.Helper()
	page, err := w.ReadLog(w.Ctx, id, 0, 1<<30, 1<<20, nil)
	w.Must("read log", err)
	row, log, base := w.model.Session(id), w.model.Events(id), uint64(0)
	if row != nil && page.Row != nil {
		base, row.Base = page.Row.Base, page.Row.Base
		row.Bytes = page.Row.Bytes // the model keeps all of its log
		row.Left = page.Row.Left   // and all rows
	}
	w.same("row", page.Row, row)
	w.same("log", page.Events, append([]*session.Event(nil), log[base:]...)) // nil if empty
	if len(log) > 0 {
		head, err := harness.Chained(w.Checkpoint(page), base, page.Events)
		w.Must("chain", err)
		w.same("head", page.Row.Head, head)
	}
	var entries []*session.Entry
	var turns []*session.Turn
	w.Must("read state", w.ReadState(w.Ctx, id, nil, 1000, func(p *session.StateChunk) error {
		entries, turns = append(entries, p.Entries...), append(turns, p.Turns...)
		return nil
	}))
	wantEntries, wantTurns := w.model.State(id)
	w.same("entries", entries, wantEntries)
	w.same("turns", turns, wantTurns)
	if base == 0 && row != nil && row.Life == session.Live {
		w.follow(id)
	}

	rows := w.Load(&session.ReadSet{Sessions: []string{id}, Grants: refs})
	for _, ref := range refs {
		got, want := rows.Grants[ref], w.model.Grant(ref)
		if base > 0 && got != nil && want != nil {
			want.Bytes = got.Bytes
		}
		w.same("grant", got, want)
	}
	w.checkMeasured(page.Row)
	for _, o := range authors {
		key := session.StreamKey{Session: o.Session, Outbox: o.Outbox}
		rows := w.Load(&session.ReadSet{Streams: []session.StreamKey{key}, Records: []session.RecordRange{{Stream: key, From: 1, To: 1 << 40}}})
		got, want := rows.Streams[key], w.model.Stream(key.Session, key.Outbox)
		w.same("stream", got, want)
		if n := w.model.Records(key.Session, key.Outbox); len(rows.Records[key]) != n {
			w.Errorf("%d records of %d", len(rows.Records[key]), n)
		}
	}
	audit := w.AuditOf(id)
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
var followers = map[string]*capability.Grant{"of all": harness.Everything, "of a message": {Message: "m1"}, "of lists": {ReadKeys: []string{"todo/", "part/m1/"}},
	"of some keys": {ReadKeys: []string{"todo/1", "plan", "schema/todo", "message/m0", "part/m0/"}}}

// follow checks that what each reader is shown of the log, from its beginning on, folds to what it is
// shown of the state.
func (w *twin) follow(id string) {
	w.Helper()
	log, err := w.Store.ReadLog(w.Ctx, id, 0, 1<<30, 1<<20, nil)
	w.Must("read log", err)
	for name, g := range followers {
		fold := session.NewFold(id)
		shown := log.Shown(g)
		if g != harness.Everything && slices.ContainsFunc(shown.Events, func(e *session.Event) bool { return session.IsRevert(e.Method) }) {
			continue // it reads the state again
		}
		for _, e := range shown.Events {
			w.Must("fold what is shown "+name, fold.Apply(e))
		}
		var state session.StateChunk
		w.Must("read state", w.Store.ReadState(w.Ctx, id, nil, 1000, nil, func(p *session.Unscoped[*session.StateChunk]) error {
			piece := p.Shown(g)
			state.Entries, state.Turns = append(state.Entries, piece.Entries...), append(state.Turns, piece.Turns...)
			return nil
		}))
		w.same("values folded from what is shown "+name, readable(fold.Entries(), fold.Turns()), readable(state.Entries, state.Turns))
		if row := shown.Row; g == harness.Everything && fold.Hash() != session.StateHash(row.Cursor, row.Epoch, row.Life, state.Entries, state.Turns) {
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
