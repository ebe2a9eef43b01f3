package decide_test

// The world that tests play in: a space in memory, writers with their outboxes,
// and after every commit the checks that must always hold.

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/internal/valueschema"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/ledger/ledgertest"
)

// failer is what the world needs of *testing.T and *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

type world struct {
	failer
	store *memtx.Store
	cfg   decide.Config
	space string // its ref's id
	folds map[string]*session.Fold
	heads map[string]session.Hash // of the chain, where the folds are
}

func newWorld(t failer) *world {
	w := &world{failer: t, store: memtx.New(), cfg: decide.DefaultConfig(), folds: map[string]*session.Fold{}, heads: map[string]session.Hash{}}
	w.space = w.newSpace()
	return w
}

// newSpace makes a space and gives its root ref's id.
func (w *world) newSpace() string {
	space := capability.SpacePrefix + ulid.Make().String()
	id, hash := newRef(space)
	w.store.AddGrant(capability.Grant{ID: id, Target: space, Hash: hash, Rights: capability.SpaceRights})
	return id
}

func newRef(target string) (id string, hash [32]byte) {
	s := capability.NewSecret()
	return capability.DeriveID(target, s), s.Hash()
}

func hashText(h [32]byte) string { return base64.RawURLEncoding.EncodeToString(h[:]) }

// writer is one outbox's stream in one session, over one live object.
type writer struct {
	w       *world
	session string
	outbox  string
	ref     string
	space   string // "" for an object that was restored
	manage  bool   // ref is a space's, which has opened the session
	with    []string
	inc     uint64
	seq     uint64 // last used
	acked   uint64
}

// create makes a session with its owner's writer.
func (w *world) create(args ...any) *writer {
	w.Helper()
	o := w.newWriter()
	hash := sha(o.ref)
	o.apply(op("create", append([]any{"ref", o.ref, "hash", hash}, args...)...))
	return o
}

// sha stands for the hash of the secret that belongs to an id.
func sha(id string) string { return hashText(session.SumOf([]byte(id))) }

// newWriter is one for a session that is not there yet.
func (w *world) newWriter() *writer {
	id := capability.SessionPrefix + ulid.Make().String()
	ref, _ := newRef(id)
	o := &writer{w: w, session: id, outbox: "obx_" + ulid.Make().String(), ref: ref, space: w.space, inc: 1}
	w.store.OpenStream(id, o.outbox, 1)
	return o
}

// under is another outbox's writer of the same session, under another ref.
func (o *writer) under(ref string) *writer {
	p := &writer{w: o.w, session: o.session, outbox: "obx_" + ulid.Make().String(), ref: ref, inc: 1}
	o.w.store.OpenStream(o.session, p.outbox, 1)
	return p
}

// share mints a ref below the writer's own.
func (o *writer) share(rights []string, args ...any) string {
	o.w.Helper()
	id, _ := newRef(o.session)
	o.apply(op("share", append([]any{"ref", id, "hash", sha(id), "rights", rights}, args...)...))
	return id
}

// anOp is an op before its outbox has given it a place.
type anOp struct {
	method  string
	args    []ledger.Arg
	depends []string
	expect  ledger.Expect
}

// op makes one, of arguments as ledgertest.Args has them.
func op(method string, args ...any) anOp {
	return anOp{method: method, args: ledgertest.Args(args...)}
}

func (o anOp) expecting(cursor uint64) anOp {
	o.expect = ledger.Expect{Set: true, Cursor: cursor}
	return o
}

func raw(format string, args ...any) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(format, args...))
}

// batch gives ops their places: the next seqs of the stream.
func (o *writer) batch(atomic bool, ops ...anOp) decide.Submission {
	b := ledger.Batch{Session: o.session, Outbox: o.outbox, Incarnation: o.inc, AckedThrough: o.acked,
		BatchID: ulid.Make().String(), Atomic: atomic}
	for _, x := range ops {
		o.seq++
		b.Ops = append(b.Ops, ledger.Intent{OpID: ulid.Make().String(), BatchID: b.BatchID, Seq: o.seq, DependsOn: x.depends,
			Expected: x.expect, Session: o.session, Method: x.method, Args: x.args, Atomic: atomic})
	}
	return decide.Submission{Batch: b, Ref: o.ref, Space: o.space, PassedRefs: o.with, Manage: o.manage}
}

// commit runs a group and checks all that must hold after it.
func (w *world) commit(subs ...decide.Submission) ([]decide.Answer, *session.Published) {
	w.Helper()
	var (
		answers   []decide.Answer
		published *session.Published
	)
	err := w.store.Update(context.Background(), func(tx session.Tx) (err error) {
		answers, published, err = decide.Commit(context.Background(), tx, subs, w.cfg)
		return err
	})
	if err != nil {
		w.Fatalf("commit: %v", err)
	}
	checked := map[string]bool{}
	for i := range subs {
		subs[i].Opening.Note(&answers[i])
		if id := subs[i].Batch.Session; !checked[id] {
			checked[id] = true
			w.check(id)
		}
	}
	return answers, published
}

// lapse runs the system op.
func (w *world) lapse(all bool, sessions ...string) *session.Published {
	w.Helper()
	var published *session.Published
	err := w.store.Update(context.Background(), func(tx session.Tx) (err error) {
		published, err = maintain.Lapse(context.Background(), tx, sessions, all)
		return err
	})
	if err != nil {
		w.Fatalf("lapse: %v", err)
	}
	for _, id := range sessions {
		w.check(id)
	}
	return published
}

// check holds a session's rows against the fold of its events.
func (w *world) check(id string) {
	w.Helper()
	f, base := w.folds[id], w.store.Session(id).Base
	if base > 0 && (f == nil || f.Cursor < base) { // it begins with a checkpoint: the events from here on are held against its state
		row := w.store.Session(id)
		entries, turns := w.store.State(id)
		f = session.FoldFrom(id, row.Cursor, row.Epoch, entries, turns)
		f.Compaction, w.heads[id] = row.Compaction, row.Head
		w.folds[id] = f
	}
	if f == nil {
		f = session.NewFold(id)
		w.folds[id] = f
	}
	events := append(make([]*session.Event, base), w.store.Events(id)...) // at cursor - 1
	head, err := chained(w.heads[id], f.Cursor, events[f.Cursor:])
	if err != nil {
		w.Fatalf("chain: %v", err)
	}
	for _, e := range events[f.Cursor:] {
		if err := f.Apply(e); err != nil {
			w.Fatalf("fold: %v", err)
		}
	}
	w.heads[id] = head
	row := w.store.Session(id)
	entries, turns := w.store.State(id)
	if row.Cursor != uint64(len(events)) || row.Head != head {
		w.Fatalf("row at cursor %d, log at %d, heads equal: %v", row.Cursor, len(events), row.Head == head)
	}
	if slices.ContainsFunc(events, func(e *session.Event) bool { return e != nil && e.Method == session.MethodPurge }) && base == 0 && row.Life == session.Live {
		w.afresh(id, f)
	}
	w.valid(entries)
	w.requests(id, entries)
	if f.Compaction != row.Compaction {
		w.Fatalf("it is folded to be compacted to %+v, row %+v", f.Compaction, row.Compaction)
	}
	if c := row.Compacted(); c.InForce() && !slices.ContainsFunc(entries, func(e *session.Entry) bool { return e.Key == c.Summary && e.Ord == c.Place }) {
		w.Fatalf("the summary of %+v is not there", c)
	}
	if f.Hash() == session.StateHash(row.Cursor, row.Epoch, row.Life, entries, turns) {
		w.same(f, entries, turns)
		return
	}
	w.Fatalf("fold and rows differ:\n%s\n%s", describe(f.Epoch, f.Life, f.Entries(), f.Turns()), describe(row.Epoch, row.Life, entries, turns))
}

// requests holds the rows of requests against the state: those that are open or claimed, and no others.
func (w *world) requests(id string, entries []*session.Entry) {
	w.Helper()
	states, rows := map[string]string{}, w.store.Requests(id)
	for _, e := range entries { // a request's key comes before that of its state
		request, state, ok := session.RequestOf(e.Key)
		switch {
		case !ok:
		case state && states[request] != "": // else what it asked was purged
			states[request] = gjson.GetBytes(e.Payload, "state").Str
		case !state:
			states[request] = "open"
		}
	}
	for request, state := range states {
		r := rows[request]
		if unended := state == "open" || state == "claimed"; unended != (r != nil) || r != nil && (r.Claim != nil) != (state == "claimed") {
			w.Fatalf("request %s is %s, and its row %+v", request, state, r)
		}
		delete(rows, request)
	}
	for request, r := range rows {
		w.Fatalf("request %s has a row and no state: %+v", request, r)
	}
}

// valid holds all values that were changed since their kind has its schema against that.
func (w *world) valid(entries []*session.Entry) {
	w.Helper()
	schemas := map[string]*session.Entry{}
	for _, e := range entries {
		if kind, ok := strings.CutPrefix(e.Key, "schema/"); ok {
			schemas[kind] = e
		}
	}
	for _, e := range entries {
		s := schemas[session.KindOf(e.Key)]
		if s == nil || e.Changed() <= s.Changed() {
			continue
		}
		schema, err := valueschema.Compile(s.Payload)
		if err == nil {
			err = schema.Check(e.Payload, e.Key, s.Key)
		}
		if err != nil {
			w.Fatalf("%s @%d is %s, and %s @%d is %s: %v", e.Key, e.Changed(), e.Payload, s.Key, s.Changed(), s.Payload, err)
		}
	}
}

// same holds what no state hash covers of a fold against the rows, and against a fold
// that goes on from them.
func (w *world) same(f *session.Fold, entries []*session.Entry, turns []*session.Turn) {
	w.Helper()
	var bare []*session.Entry // as a reader gets them
	for _, e := range entries {
		bare = append(bare, &session.Entry{Session: e.Session, Key: e.Key, Cursor: e.Cursor, Schema: e.Schema, Payload: e.Payload, Claim: e.Claim})
	}
	after := session.FoldFrom(f.Session, f.Cursor, f.Epoch, bare, turns)
	rows := map[string]*session.Entry{}
	for _, e := range entries {
		rows[e.Key] = e
	}
	for _, e := range f.Entries() {
		row, again := rows[e.Key], after.Entry(e.Key)
		if e.Session != row.Session || e.TextLen != row.TextLen || e.LastAppend != row.LastAppend || e.Since != row.Since || e.Ord != row.Ord || e.Sum != session.SumOf(e.Payload) {
			w.Fatalf("folded entry %+v, row %+v", e, row)
		}
		if !sameClaim(e.Claim, row.Claim) || !sameClaim(again.Claim, row.Claim) {
			w.Fatalf("folded claim %+v, from a snapshot %+v, row %+v", e.Claim, again.Claim, row.Claim)
		}
		if again.TextLen != e.TextLen || again.Sum != e.Sum || again.LastAppend != 0 {
			w.Fatalf("folded entry %+v, from a snapshot %+v", e, again)
		}
	}
	for i, t := range f.Turns() {
		if row := turns[i]; t.Session != row.Session || t.Outbox != row.Outbox {
			w.Fatalf("folded turn %+v, row %+v", t, row)
		}
	}
}

// sameClaim compares a claim as readers are shown it with a row's.
func sameClaim(shown, row *session.Claim) bool {
	if shown == nil || row == nil {
		return shown == row
	}
	a, b := *shown, *row
	a.Outbox, b.Outbox = session.OutboxOf(a.Outbox), session.OutboxOf(b.Outbox)
	return a == b
}

// chained is the last hash of events that go on from the one at cursor, whose hash
// is prev, and what is wrong with them.
func chained(prev session.Hash, cursor uint64, events []*session.Event) (session.Hash, error) {
	v := session.NewVerifier(prev, cursor)
	v.Add(events)
	return v.Head(), v.Err()
}

// afresh holds what was folded as it came, f, against the log as it is after a purge.
func (w *world) afresh(id string, f *session.Fold) {
	w.Helper()
	events := w.store.Events(id)
	if _, err := chained(session.Hash{}, 0, events); err != nil {
		w.Fatalf("the log after a purge: %v", err)
	}
	again := session.NewFold(id)
	for _, e := range events {
		if err := again.Apply(e); err != nil {
			w.Fatalf("fold after a purge: %v", err)
		}
	}
	if again.Compaction != f.Compaction {
		w.Fatalf("the log after a purge comes to be compacted to %+v, it was to %+v", again.Compaction, f.Compaction)
	}
	if again.Hash() != f.Hash() {
		w.Fatalf("the log after a purge comes to another state:\n%s\n%s", describe(again.Epoch, again.Life, again.Entries(), again.Turns()),
			describe(f.Epoch, f.Life, f.Entries(), f.Turns()))
	}
}

func describe(epoch uint64, life session.Life, entries []*session.Entry, turns []*session.Turn) string {
	s := fmt.Sprintf("epoch %d life %d\n", epoch, life)
	for _, e := range entries {
		s += fmt.Sprintf("  %s @%d v%d %s\n", e.Key, e.Cursor, e.Schema, e.Payload)
	}
	for _, t := range turns {
		s += fmt.Sprintf("  turn %s %s %d-%d\n", t.Message, t.Status, t.Begun, t.Ended)
	}
	return s
}

// try commits one batch alone and gives its outcomes.
func (o *writer) try(ops ...anOp) []ledger.Outcome {
	o.w.Helper()
	answers, _ := o.w.commit(o.batch(false, ops...))
	if answers[0].Err != nil {
		o.w.Fatalf("batch refused: %v", answers[0].Err)
	}
	return answers[0].Outcomes
}

// apply is try for one op that must apply, and gives its result's fields.
func (o *writer) apply(x anOp) map[string]any {
	o.w.Helper()
	out := o.try(x)[0]
	if out.Status != ledger.Applied {
		o.w.Fatalf("%s: %s: %s", x.method, out.Reason, out.Message)
	}
	var result map[string]any
	if err := json.Unmarshal(out.Result, &result); err != nil {
		o.w.Fatalf("%s: result %s: %v", x.method, out.Result, err)
	}
	return result
}

// refuse is try for one op that must be recorded with status and reason.
func (o *writer) refuse(status ledger.Status, reason fault.Code, x anOp) ledger.Outcome {
	o.w.Helper()
	before := o.w.store.Session(o.session).Cursor
	out := o.try(x)[0]
	if out.Status != status || out.Reason != reason {
		o.w.Fatalf("%s: status %d reason %s (%s), want status %d reason %s", x.method, out.Status, out.Reason, out.Message, status, reason)
	}
	if out.Message == "" {
		o.w.Fatalf("%s: %s without a message", x.method, reason)
	}
	if after := o.w.store.Session(o.session).Cursor; after != before {
		o.w.Fatalf("%s was refused and made an event", x.method)
	}
	return out
}

// payload is a key's whole value, "" if it has none.
func (o *writer) payload(key string) string {
	entries, _ := o.w.store.State(o.session)
	i := slices.IndexFunc(entries, func(e *session.Entry) bool { return e.Key == key })
	if i < 0 {
		return ""
	}
	return string(entries[i].Payload)
}

func (o *writer) turn(message string) session.TurnStatus {
	_, turns := o.w.store.State(o.session)
	for _, t := range turns {
		if t.Message == message {
			return t.Status
		}
	}
	return 0
}

// last is the session's newest event.
func (o *writer) last() *session.Event {
	events := o.w.store.Events(o.session)
	return events[len(events)-1]
}

func mustEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// shownTo returns events as a ref shows them.
func shownTo(g *capability.Grant, events []*session.Event, key *session.HashKey) []*session.Event {
	if len(events) == 0 {
		return nil
	}
	return new(session.ShownCache).Shown(session.NewUnscopedEvents(events), len(events), session.SightOf(g, nil), g, nil, key).Events
}

// eventsOf returns all events that were published of a session.
func eventsOf(p session.PublishedSession) []*session.Event {
	return new(session.ShownCache).Shown(p.Events, p.Events.Len(), session.Sight{}, &capability.Grant{}, nil, nil).Events
}
