package decide_test

// What Commit makes of whole submissions: the call-level answers, repeats,
// acknowledgements, and a store that fails.

import (
	"context"
	"errors"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestCallLevelAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	first := o.batch(false, put("message/a"), put("ref/x"))
	ahead := o.batch(false, put("message/b"))
	far := o.batch(false, put("message/c"))

	answers, published := w.commit(first)
	applied, duplicates, rejected := answers[0].Counts()
	if applied != 1 || duplicates != 0 || rejected != 1 || len(published.Sessions) != 1 {
		t.Fatalf("%d %d %d", applied, duplicates, rejected)
	}
	change := func(s decide.Submission, f func(*ledger.Batch)) decide.Submission {
		s.Batch.Ops = append([]ledger.Intent(nil), s.Batch.Ops...)
		f(&s.Batch)
		return s
	}
	w.store.OpenStream(o.session, o.outbox, 3) // another process took the lease over
	o.inc = 3
	for name, c := range map[string]struct {
		sub  decide.Submission
		code fault.Code
		at   uint64
	}{
		"older incarnation":  {change(ahead, func(b *ledger.Batch) { b.Incarnation = 1 }), fault.Fenced, 0},
		"older, repeated":    {change(first, func(b *ledger.Batch) { b.Incarnation = 1 }), fault.Fenced, 0},
		"acked too much":     {change(ahead, func(b *ledger.Batch) { b.Incarnation, b.AckedThrough = 3, 9 }), fault.ServerBehind, 3},
		"gap":                {change(far, func(b *ledger.Batch) { b.Incarnation = 3 }), fault.Gap, 4},
		"gap, acknowledging": {change(far, func(b *ledger.Batch) { b.Incarnation, b.AckedThrough = 3, 1 }), fault.Gap, 4},
		"another op":         {change(first, func(b *ledger.Batch) { b.Incarnation, b.Ops[0].OpID = 3, ulid.Make().String() }), fault.OutboxDiverged, 2},
		"other arguments":    {change(first, func(b *ledger.Batch) { b.Incarnation, b.Ops[1].Args = 3, nil }), fault.OutboxDiverged, 3},
		"no ops":             {change(ahead, func(b *ledger.Batch) { b.Ops = nil }), fault.Malformed, 0},
		"no stream":          {change(ahead, func(b *ledger.Batch) { b.Outbox = "obx_other" }), fault.WrongOutbox, 0},
	} {
		answers, published := w.commit(c.sub)
		if err := answers[0].Err; err == nil || err.Code != c.code || err.At != c.at || len(answers[0].Outcomes) != 0 || len(published.Sessions) != 0 {
			t.Errorf("%s: %+v, want %s at %d", name, answers[0], c.code, c.at)
		}
	}

	if st := w.store.Stream(o.session, o.outbox); st.AckedThrough != 0 || st.LastSeq != 3 || st.Incarnation != 3 {
		t.Errorf("what was refused has left %+v", st)
	}

	// One bad submission does not disturb the others of its group.
	again := change(first, func(b *ledger.Batch) { b.Incarnation = 3 })
	next := change(ahead, func(b *ledger.Batch) { b.Incarnation = 3 })
	gap := change(far, func(b *ledger.Batch) { b.Incarnation, b.Ops[0].Seq = 3, 99 })
	answers, _ = w.commit(gap, again, next, next)
	if answers[0].Err.Code != fault.Gap || !answers[1].Duplicate || answers[2].Duplicate || !answers[3].Duplicate {
		t.Fatalf("%+v", answers)
	}
	if out := answers[1].Outcomes; out[0].Status != ledger.Applied || out[1].Reason != fault.BadKey {
		t.Fatalf("repeated: %+v", out)
	}
	if _, duplicates, _ := answers[1].Counts(); duplicates != 2 {
		t.Fatalf("%d duplicates", duplicates)
	}
	mustEqual(t, "the cursor that a repeated one is told", answers[1].Cursor, 2)
	mustEqual(t, "the cursor that a refused one is told", answers[0].Cursor, 2)
	mustEqual(t, "events", len(w.store.Events(o.session)), 3)
}

func TestAcknowledge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	two := o.batch(false, put("message/a"), put("message/b"))
	w.commit(two)
	mustEqual(t, "records", w.store.Records(o.session, o.outbox), 2)
	ack := func(through, incarnation uint64) *fault.Error {
		t.Helper()
		answers, _ := w.commit(decide.Submission{Ack: true, Ref: o.ref, Batch: ledger.Batch{
			Session: o.session, Outbox: o.outbox, Incarnation: incarnation, AckedThrough: through}})
		return answers[0].Err
	}
	if err := ack(2, 1); err != nil { // into the middle of a batch: its record stays
		t.Fatal(err)
	}
	mustEqual(t, "records", w.store.Records(o.session, o.outbox), 1)
	if err := ack(1, 1); err != nil {
		t.Fatal(err)
	}
	st := w.store.Stream(o.session, o.outbox)
	if st.AckedThrough != 2 || st.AckedOp != two.Batch.Ops[0].OpID || st.AckedDigest != two.Batch.Ops[0].Digest() {
		t.Fatalf("%+v", st)
	}
	answers, _ := w.commit(decide.Submission{Ack: true, Ref: o.ref, Batch: ledger.Batch{Session: o.session, Outbox: o.outbox, Incarnation: 1, AckedThrough: 2}})
	mustEqual(t, "the cursor that an acknowledgement is told", answers[0].Cursor, 0)
	if err := ack(7, 1); err == nil || err.Code != fault.ServerBehind {
		t.Fatal(err)
	}
	if err := ack(3, 0); err == nil || err.Code != fault.Fenced {
		t.Fatal(err)
	}
	if err := ack(3, 1); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "records", w.store.Records(o.session, o.outbox), 0)

	// What is made and acknowledged in one group leaves no record.
	at := decide.Submission{Ack: true, Ref: o.ref, Batch: ledger.Batch{Session: o.session, Outbox: o.outbox, Incarnation: 1, AckedThrough: 4}}
	made := o.batch(false, put("message/z"))
	answers, _ = w.commit(made, at, made)
	if answers[0].Err != nil || answers[1].Err != nil || !answers[2].Duplicate || answers[2].Outcomes[0].Reason != fault.Pruned {
		t.Fatalf("%+v", answers)
	}
	mustEqual(t, "records", w.store.Records(o.session, o.outbox), 0)

	answers, _ = w.commit(two)
	for _, out := range answers[0].Outcomes {
		if out.Status != 0 || out.Reason != fault.Pruned {
			t.Fatalf("%+v", out)
		}
	}
	late := op("put", "key", "message/c", "payload", raw(`{}`))
	late.depends = []string{two.Batch.Ops[0].OpID}
	o.refuse(ledger.Rejected, fault.BadReference, late) // the outcome is gone
}

// References reach ops of earlier batches of the stream, in flight together or not.
func TestReferencesBetweenBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	id, _ := newRef(o.session)
	share := o.batch(false, op("share", "ref", id, "hash", sha(id), "rights", []string{"read"}), put("ref/x"))
	w.commit(share)
	kept := o.batch(false, op("revoke", "ref", ledger.Ref{Op: share.Batch.Ops[0].OpID, Path: "ref"}))
	skipped := put("message/a")
	skipped.depends = []string{share.Batch.Ops[1].OpID}
	dependent := o.batch(false, skipped)
	far := put("message/b")
	far.depends = []string{dependent.Batch.Ops[0].OpID}
	answers, _ := w.commit(kept, dependent, o.batch(false, far, op("put", "key", "message/c", "payload", raw(`{}`), "schema_version", ledger.Ref{Op: kept.Batch.Ops[0].OpID, Path: "cut"})))
	if out := answers[0].Outcomes[0]; out.Status != ledger.Applied {
		t.Fatalf("%+v", out)
	}
	if out := answers[1].Outcomes[0]; out.Status != ledger.Skipped || out.Cause != share.Batch.Ops[1].OpID || out.Reason != fault.BadKey {
		t.Fatalf("%+v", out)
	}
	if out := answers[2].Outcomes[0]; out.Status != ledger.Skipped || out.Cause != dependent.Batch.Ops[0].OpID {
		t.Fatalf("%+v", out)
	}
	if out := answers[2].Outcomes[1]; out.Status != ledger.Applied || o.last().Schema != 3 {
		t.Fatalf("%+v", out)
	}
}

// failing is a Tx whose nth call fails.
type failing struct {
	session.Tx
	calls *int
}

var errAway = errors.New("the database is away")

func (f failing) Load(ctx context.Context, w *session.ReadSet) (*session.Rows, error) {
	if *f.calls--; *f.calls < 0 {
		return nil, errAway
	}
	return f.Tx.Load(ctx, w)
}

func (f failing) Save(ctx context.Context, c *session.Changes) error {
	if *f.calls--; *f.calls < 0 {
		return errAway
	}
	return f.Tx.Save(ctx, c)
}

// saving counts what is saved.
type saving struct {
	session.Tx
	saves *int
}

func (s saving) Save(ctx context.Context, c *session.Changes) error {
	*s.saves++
	return s.Tx.Save(ctx, c)
}

func TestNothingIsSavedWhereNothingChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	first := o.batch(false, put("message/a"))
	w.commit(first)
	gap := o.batch(false, put("message/b"))
	gap.Batch.Ops[0].Seq += 7
	saves := 0
	err := w.store.Update(t.Context(), func(tx session.Tx) error {
		_, published, err := decide.Commit(t.Context(), saving{tx, &saves}, []decide.Submission{first, gap, o.plain(o.ref, put("message/a"))}, w.cfg)
		mustEqual(t, "sessions published", len(published.Sessions), 0)
		return err
	})
	if err != nil || saves != 0 {
		t.Errorf("%d saves, %v", saves, err)
	}
}

func TestStoreFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{}`)))
	o.apply(op("appendText", "key", "part/m/p", "offset", 0, "text", "x"))
	o.apply(put("message/x"))
	sub := o.batch(false, op("finalize", "message", "m", "status", "completed", "usage", ledger.Ref{Op: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}),
		op("finalize", "message", "m", "status", "completed"))
	events := len(w.store.Events(o.session))
	failed := 0
	for n := 0; ; n++ {
		calls := n
		err := w.store.Update(t.Context(), func(tx session.Tx) error {
			_, _, err := decide.Commit(t.Context(), failing{tx, &calls}, []decide.Submission{sub}, w.cfg)
			return err
		})
		if err == nil {
			break
		}
		if !errors.Is(err, errAway) {
			t.Fatal(err)
		}
		failed++
		mustEqual(t, "events", len(w.store.Events(o.session)), events)
		if n > 20 {
			t.Fatal("it never comes through")
		}
	}
	if failed < 4 {
		t.Fatalf("only %d calls", failed)
	}
	w.check(o.session)
	mustEqual(t, "state", o.turn("m"), session.Completed)
}

// Wherever the store fails, whatever was asked for, the group fails with it and
// nothing of it holds. Arguments that are too long to be looked at beforehand make
// ops read what they need one by one.
func TestStoreFailsWhateverIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(w *world, o *writer) decide.Submission{
		"create": func(w *world, _ *writer) decide.Submission {
			p := w.newWriter()
			return p.batch(false, op("create", "ref", unseen(p.ref), "hash", sha(p.ref), "external", "x-1"))
		},
		"create refused": func(w *world, _ *writer) decide.Submission {
			p := w.newWriter()
			p.space, _ = newRef(capability.Target(w.space))
			return p.batch(false, put("message/a"))
		},
		"fork":         func(_ *world, o *writer) decide.Submission { return o.fork() },
		"fork earlier": func(_ *world, o *writer) decide.Submission { return o.fork("at", 3) },
		"put": func(_ *world, o *writer) decide.Submission {
			return o.batch(false, op("put", "key", unseen("part/m/p"), "payload", raw(`{"text":"x"}`)))
		},
		"remove": func(_ *world, o *writer) decide.Submission {
			return o.batch(false, op("remove", "key", unseen("message/x")))
		},
		"begin": func(_ *world, o *writer) decide.Submission {
			return o.batch(false, op("begin", "message", unseen("n"), "payload", raw(`{}`)))
		},
		"append": func(_ *world, o *writer) decide.Submission {
			return o.batch(false, op("appendText", "key", unseen("part/m/p"), "offset", 1, "text", "y"))
		},
		"finalize": func(_ *world, o *writer) decide.Submission {
			return o.batch(false, op("finalize", "message", unseen("m"), "status", "completed"))
		},
		"share": func(_ *world, o *writer) decide.Submission {
			id, _ := newRef(o.session)
			return o.batch(false, op("share", "ref", unseen(id), "hash", sha(id), "rights", []string{"read"}))
		},
		"revoke": func(_ *world, o *writer) decide.Submission {
			a := o.under(o.share(all))
			return a.batch(false, op("revoke", "ref", unseen(a.under(a.share(all)).share(all))))
		},
		"purge": func(_ *world, o *writer) decide.Submission {
			return o.batch(false, op("purge", "key", unseen("message/x")))
		},
		"repeat": func(w *world, o *writer) decide.Submission {
			sub := o.batch(false, put("message/y"))
			w.commit(sub)
			return sub
		},
		"plain": func(_ *world, o *writer) decide.Submission {
			return o.plain(o.ref, op("put", "key", unseen("message/x"), "payload", raw(`{"y":1}`)))
		},
		"rotate": func(_ *world, o *writer) decide.Submission {
			next, _ := newRef(o.session)
			return rotate(o.ref, next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			o := w.create()
			o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
			o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":""}`)))
			o.apply(op("appendText", "key", "part/m/p", "offset", 0, "text", "x"))
			o.apply(put("message/x"))
			sub := ask(w, o)
			rows, audit := len(w.store.Events(o.session)), len(w.store.Audit())
			for n := 0; ; n++ {
				calls := n
				var answers []decide.Answer
				err := w.store.Update(t.Context(), func(tx session.Tx) (err error) {
					answers, _, err = decide.Commit(t.Context(), failing{tx, &calls}, []decide.Submission{sub}, w.cfg)
					return err
				})
				if err == nil {
					if a := answers[0]; a.Err != nil || len(a.Outcomes) > 0 && a.Outcomes[0].Status != ledger.Applied && name != "create refused" {
						t.Errorf("in the end: %+v", a)
					}
					break
				}
				if !errors.Is(err, errAway) || answers != nil || n > 20 {
					t.Fatalf("call %d: %+v, %v", n+1, answers, err)
				}
				mustEqual(t, "events", len(w.store.Events(o.session)), rows)
				mustEqual(t, "audit", len(w.store.Audit()), audit)
			}
			w.check(sub.Batch.Session)
		})
	}
}

func TestLapseFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	for n := range 2 {
		calls := n
		err := w.store.Update(t.Context(), func(tx session.Tx) error {
			_, err := maintain.Lapse(t.Context(), failing{tx, &calls}, []string{o.session}, true)
			return err
		})
		if !errors.Is(err, errAway) {
			t.Fatal(err)
		}
	}
	mustEqual(t, "state", o.turn("m"), session.Streaming)
}

// Sessions are locked in order, each once, however they were found.
func TestLapseOfSeveral(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.create(), w.create()
	for _, o := range []*writer{a, b} {
		o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	}
	gone := w.create()
	gone.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	gone.apply(op("delete"))
	p := w.lapse(true, gone.session, b.session, a.session, b.session)
	if len(p.Sessions) != 2 || p.Sessions[0].Row.ID != a.session || p.Sessions[1].Row.ID != b.session || a.turn("m")+b.turn("m") != 2*session.Interrupted {
		t.Errorf("published %+v", p)
	}
}

// A ref that has expired is audited as such at its time, unless something had ended it before.
func TestExpiry(t *testing.T) {
	t.Parallel()
	grant := capability.Grant{ID: "ref", Target: "ses", Epoch: 2, Actor: "ann", Expires: 1000}
	row := session.Row{Life: session.Live, Epoch: 2, Cursor: 41}
	audited := capability.AuditRow{Target: "ses", At: 1000, Act: capability.AuditExpiry, Ref: "ref", Actor: "ann", Cursor: 41}
	for name, c := range map[string]struct {
		change func(g *capability.Grant, row *session.Row)
		now    int64
		want   bool
	}{
		"at its time":            {func(*capability.Grant, *session.Row) {}, 1000, true},
		"long after":             {func(*capability.Grant, *session.Row) {}, 5000, true},
		"before its time":        {func(*capability.Grant, *session.Row) {}, 999, false},
		"revoked before":         {func(g *capability.Grant, _ *session.Row) { g.Revoked = 1 }, 1000, false},
		"of an epoch that ended": {func(_ *capability.Grant, row *session.Row) { row.Epoch++ }, 1000, false},
		"of a deleted session":   {func(_ *capability.Grant, row *session.Row) { row.Life = session.Deleted }, 1000, false},
	} {
		g, r := grant, row
		c.change(&g, &r)
		if got := maintain.ExpiryAudit(&g, &r, c.now); (got != nil) != c.want || got != nil && *got != audited {
			t.Errorf("%s: %+v", name, got)
		}
	}
	grant.Epoch, audited.Cursor = 0, 0
	if got := maintain.ExpiryAudit(&grant, nil, 1000); got == nil || *got != audited {
		t.Errorf("of a space: %+v", got)
	}
}

// readSetRecorder keeps what the first Load was asked for.
type readSetRecorder struct {
	session.Tx
	first **session.ReadSet
}

func (w readSetRecorder) Load(ctx context.Context, want *session.ReadSet) (*session.Rows, error) {
	if *w.first == nil {
		*w.first = want
	}
	return w.Tx.Load(ctx, want)
}

// TestNarrowedEndIsWanted: that a narrowed capability ends stands in no row, so the
// store is told.
func TestNarrowedEndIsWanted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	ends := func(narrow, spaceNarrow int64) int64 {
		sub := o.batch(false, put("message/a"))
		if narrow > 0 {
			sub.Attenuated = &capability.Grant{Target: o.session, Epoch: 1, Rights: capability.Append, Expires: narrow}
		}
		if spaceNarrow > 0 {
			sub.Outer = &capability.Grant{Expires: spaceNarrow}
		}
		var want *session.ReadSet
		err := w.store.Update(t.Context(), func(tx session.Tx) error {
			_, _, err := decide.Commit(t.Context(), readSetRecorder{tx, &want}, []decide.Submission{sub, o.batch(false, put("message/b"))}, w.cfg)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return want.ValidUntil
	}
	for _, c := range [][3]int64{{0, 0, 0}, {1 << 50, 0, 1 << 50}, {1 << 50, 1 << 49, 1 << 49}, {1 << 49, 1 << 50, 1 << 49}} {
		if got := ends(c[0], c[1]); got != c[2] {
			t.Errorf("narrowed until %d and %d: wanted until %d", c[0], c[1], got)
		}
	}
}
