package e2e

// Comparing what the server shows with the model: logs, outcomes, states.

import (
	"context"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/session"
)

// openClient opens a client in this process, with a home of its own.
func openClient(t testing.TB) *client.Client {
	t.Helper()
	return openClientWith(t, client.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir())})
}

func openClientWith(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	return openClientIn(t.Context(), t, cfg)
}

func openClientIn(ctx context.Context, t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	if cfg.RetryTimeout == 0 {
		cfg.RetryTimeout = patience
	}
	c, err := client.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	return c
}

// view is a session of this process's own client, by a ref.
func view(t testing.TB, c *client.Client, ref capability.Ref) *client.Session {
	t.Helper()
	s, err := c.Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bounded is a context for what must happen in time.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// readLog gives the whole log, whose cursors must be 1, 2, 3 … and whose hashes
// must chain.
func readLog(t testing.TB, s *client.Session) []session.Event {
	t.Helper()
	var log []session.Event
	for {
		page, err := s.Events(bounded(t), uint64(len(log)), 0)
		if err != nil {
			t.Fatalf("read the log of %s after %d: %v", s.ID(), len(log), err)
		}
		for i := range page.Events {
			log = append(log, stored(&page.Events[i]))
		}
		if len(page.Events) == 0 {
			if page.Cursor != uint64(len(log)) {
				t.Fatalf("the session is at cursor %d, its log has %d events", page.Cursor, len(log))
			}
			break
		}
	}
	v := session.NewVerifier(session.Hash{}, 0)
	for i := range log {
		v.Add([]*session.Event{&log[i]})
	}
	if err := v.Err(); err != nil {
		t.Fatalf("the log of %s: %v", s.ID(), err)
	}
	return log
}

// stored is an event as the server has it, whose payload was not purged.
func stored(e *client.Event) session.Event {
	return session.Event{Session: e.Session, Cursor: e.Cursor, Method: e.Method, Key: e.Key, Schema: e.Schema, Payload: e.Payload,
		Sum: session.SumOf(e.Payload), Hash: session.Hash(e.Hash), Ref: e.Ref, Actor: e.Actor, Outbox: e.Outbox, Op: e.Op, Batch: e.Batch,
		At: e.At.UnixMilli()}
}

// checkLog fails the test unless every op of the log is of a batch, once, and
// every batch stands in one piece and in its own order.
func checkLog(t testing.TB, log []session.Event, batches []planBatch) {
	t.Helper()
	places := map[string]int{} // op → its batch's number and its place in it
	for i := range batches {
		for j := range batches[i].Ops {
			places[opID(batches[i].ID, j)] = i<<16 | j
		}
	}
	seen := map[string]bool{}
	last, ended := -1, map[int]bool{}
	for _, e := range log {
		if e.Op == "" {
			continue // the server's own
		}
		place, ok := places[e.Op]
		i, j := place>>16, place&0xffff
		switch {
		case !ok:
			t.Errorf("cursor %d: nobody committed op %s", e.Cursor, e.Op)
			continue
		case seen[e.Op]:
			t.Errorf("cursor %d: op %s is there twice", e.Cursor, e.Op)
		case e.Batch != batches[i].ID || e.Method != batches[i].Ops[j].Method:
			t.Errorf("cursor %d: op %s came as %s of batch %s, not as %s of %s", e.Cursor, e.Op, e.Method, e.Batch, batches[i].Ops[j].Method, batches[i].ID)
		case ended[i]:
			t.Errorf("cursor %d: batch %s is in two pieces", e.Cursor, e.Batch)
		case last>>16 == i && last > place:
			t.Errorf("cursor %d: batch %s is out of order", e.Cursor, e.Batch)
		}
		if last >= 0 && last>>16 != i {
			ended[last>>16] = true
		}
		seen[e.Op], last = true, place
	}
}

// begins is the cursor a session was at when a batch began, as its outcomes and its
// first event, 0 for none, tell; ok is false if they do not.
func (s *modelSession) begins(log []session.Event, first uint64, stream string, got []client.Outcome) (cursor uint64, ok bool) {
	for _, o := range got {
		if o.Status == client.Conflict {
			return o.Cursor, true
		}
	}
	if first > 0 {
		return s.before(log, first-1, stream), true
	}
	for _, o := range got {
		if o.Status == client.Applied {
			return s.before(log, o.Cursor, stream), true
		}
	}
	return 0, false
}

// before is where a session was before a stream's batch resumed its turns, if it
// did: at, or some events earlier. (One before it may have: any op that is allowed
// resumes turns, and need leave nothing else.)
func (s *modelSession) before(log []session.Event, at uint64, stream string) uint64 {
	for at > s.cursor && at <= uint64(len(log)) && s.resumes(&log[at-1], stream) {
		at--
	}
	return at
}

// advance lets the model do what the server wrote by itself, up to a cursor.
func (w *world) advance(t testing.TB, s *modelSession, to uint64) {
	t.Helper()
	log := w.logs[s.id]
	for s.cursor < min(to, uint64(len(log))) {
		e := &log[s.cursor]
		if e.Op != "" {
			t.Fatalf("cursor %d of %s: %s by op %s is not what comes now", e.Cursor, s.id, e.Method, e.Op)
		}
		if err := s.byItself(e); err != nil {
			t.Fatal(err)
		}
		w.look(s)
	}
}

// replay runs one writer's batches through the model in the order they were
// committed, and compares every outcome and event.
func (w *world) replay(t testing.TB, batches []planBatch, stream string, results map[string][]client.Outcome) {
	t.Helper()
	for i := range batches {
		w.step(t, &batches[i], stream, results[batches[i].ID])
	}
	for id, log := range w.logs {
		w.advance(t, w.session(id), uint64(len(log)))
	}
}

// replayMixed runs several writers' batches to one session through the model in
// the order of its log. floors are cursors that the session had reached when a
// batch was committed, for those that leave no trace in the log.
func (w *world) replayMixed(t testing.TB, id string, streams map[string][]planBatch, results map[string][]client.Outcome, floors map[string]uint64) {
	t.Helper()
	s, log := w.session(id), w.logs[id]
	first := map[string]uint64{} // batch → cursor of its first event
	for _, e := range slices.Backward(log) {
		first[e.Batch] = e.Cursor
	}
	queues := map[string][]planBatch{}
	for name, batches := range streams {
		queues[name] = batches
	}
	for {
		ran, left := false, 0
		for name, queue := range queues {
			for len(queue) > 0 {
				b := &queue[0]
				at, ok := s.begins(log, first[b.ID], name, results[b.ID])
				if ok && at != s.cursor || s.cursor < floors[b.ID] {
					break
				}
				w.step(t, b, name, results[b.ID])
				queue, ran = queue[1:], true
			}
			queues[name] = queue
			left += len(queue)
		}
		switch {
		case ran:
		case s.cursor < uint64(len(log)):
			w.advance(t, s, s.cursor+1)
		case left > 0:
			t.Fatalf("%d batches do not show in the log of %s", left, id)
		default:
			return
		}
	}
}

// step runs one batch and compares.
func (w *world) step(t testing.TB, b *planBatch, stream string, got []client.Outcome) {
	t.Helper()
	s := w.session(b.target())
	log := w.logs[s.id]
	first := uint64(0)
	if i := slices.IndexFunc(log, func(e session.Event) bool { return e.Batch == b.ID }); i >= 0 {
		first = log[i].Cursor
	}
	if at, ok := s.begins(log, first, stream, got); ok {
		w.advance(t, s, at)
	}
	before := s.cursor
	want := w.run(b, stream)
	w.checkOutcomes(t, b, want, got)
	for _, complaint := range w.complaints {
		t.Error(complaint)
	}
	w.complaints = nil
	if s.cursor > uint64(len(log)) {
		t.Fatalf("batch %s should have brought %s to cursor %d, its log ends at %d", b.ID, s.id, s.cursor, len(log))
	}
	for _, e := range log[before:s.cursor] {
		if e.Batch != b.ID && !s.resumes(&e, stream) {
			t.Fatalf("cursor %d of %s is of batch %s, not of %s", e.Cursor, s.id, e.Batch, b.ID)
		}
	}
	for message, turn := range s.turns {
		if s.cursor > before && turn.stream == stream && turn.status == "interrupted" {
			t.Fatalf("batch %s has events, and the turn of %s is still interrupted", b.ID, message)
		}
	}
}

// checkOutcomes compares a batch's outcomes with the model's.
func (w *world) checkOutcomes(t testing.TB, b *planBatch, want []modelOutcome, got []client.Outcome) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("batch %s has %d outcomes, not %d", b.ID, len(got), len(want))
	}
	for i, g := range got {
		m := want[i]
		w.reasons[g.OpID] = g.Reason
		wrong := g.OpID != m.op || g.Status != m.status
		switch {
		case wrong:
		case m.status == client.BatchAborted: // which of several causes is found first is free
		case m.status == client.Applied:
			wrong = canonical(parseValue(g.Result)) != canonical(m.result)
		case m.status == client.Conflict:
			wrong = g.Cursor != m.at
		case m.status == client.Skipped: // on account of any that it needs
			wrong = !slices.Contains(b.Ops[i].needs(), g.Cause) || w.done[g.Cause].status == client.Applied ||
				g.Reason != w.reasons[g.Cause]
		default:
			wrong = g.Reason != m.reason && !slices.Contains(m.or, g.Reason)
		}
		if wrong {
			t.Fatalf("batch %s op %d (%s %s, depends on %v):\n got %s %s cause %q cursor %d %s (%s)\nwant %s %s cause %q at %d %s", b.ID, i, b.Ops[i].Method, canonical(b.Ops[i].Args), b.Ops[i].DependsOn,
				g.Status, g.Reason, g.Cause, g.Cursor, g.Result, g.Message, m.status, m.reason, m.cause, m.at, canonical(m.result))
		}
	}
}

// checkState compares a snapshot with the model.
func checkState(t testing.TB, s *modelSession, got *client.State) {
	t.Helper()
	if got.Cursor != s.cursor {
		t.Fatalf("the snapshot is of cursor %d, not %d", got.Cursor, s.cursor)
	}
	seen := map[string]bool{}
	for _, e := range got.Entries {
		want := s.entries[e.Key]
		if want == nil || seen[e.Key] {
			t.Errorf("at cursor %d: %s is there and should not be, or twice", got.Cursor, e.Key)
			continue
		}
		seen[e.Key] = true
		if g, w := canonical(parseValue(e.Payload)), canonical(want.folded()); g != w {
			t.Errorf("at cursor %d: %s is\n%s\nand should be\n%s", got.Cursor, e.Key, clipped(g), clipped(w))
		}
		if canonical(e.Schema) != want.schema {
			t.Errorf("at cursor %d: %s has schema %d, not %s", got.Cursor, e.Key, e.Schema, want.schema)
		}
	}
	for key := range s.entries {
		if !seen[key] {
			t.Errorf("at cursor %d: %s is not there", got.Cursor, key)
		}
	}
	turns := map[string]bool{}
	for _, g := range got.Turns {
		w := s.turns[g.Message]
		if w == nil || turns[g.Message] || g.Status != w.status || g.Begun != w.begun || g.Ended != w.ended {
			t.Errorf("at cursor %d: turn %s is %s from %d to %d, should be %+v", got.Cursor, g.Message, g.Status, g.Begun, g.Ended, w)
		}
		turns[g.Message] = true
	}
	if len(turns) != len(s.turns) {
		t.Errorf("at cursor %d: %d turns, not %d", got.Cursor, len(turns), len(s.turns))
	}
}

func clipped(s string) string {
	if len(s) > 600 {
		return s[:300] + " … " + s[len(s)-300:]
	}
	return s
}

// mustSnapshot is a snapshot at a cursor, 0 for now.
func mustSnapshot(t testing.TB, s *client.Session, at uint64) *client.State {
	t.Helper()
	state, err := s.SnapshotAt(bounded(t), at)
	if err != nil {
		t.Fatalf("snapshot of %s at %d: %v", s.ID(), at, err)
	}
	return state
}
