package decide_test

// Ops without an outbox: all or none, and only such as may be said again.

import (
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// plain is a submission without an outbox under ref.
func (o *writer) plain(ref string, ops ...anOp) decide.Submission {
	sub := o.batch(true, ops...)
	o.seq -= uint64(len(ops)) // they are none of the stream's
	return decide.Submission{Batch: ledger.Batch{Session: o.session, Ops: sub.Batch.Ops}, Ref: ref, Direct: &decide.Direct{Ops: true}}
}

func TestPlainOpsApplyWhollyOrNotAtAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	a, b := op("put", "key", "message/a", "payload", raw(`{"n":1}`)), op("put", "key", "part/a/b", "payload", raw(`{"n":2}`))
	answers, published := w.commit(o.plain(o.ref, a, b))
	if answers[0].Err != nil || answers[0].Cursor != 3 || len(eventsOf(published.Sessions[0])) != 2 {
		t.Fatalf("%+v", answers[0])
	}
	mustEqual(t, "uses", answers[0].Uses[0].Count, 2)
	mustEqual(t, "the event's outbox", o.last().Outbox, "")
	mustEqual(t, "the event's op is named", o.last().Op != "", true)

	// The same again, alone and with one more, changes only what is new.
	answers, published = w.commit(o.plain(o.ref, a, b))
	if answers[0].Err != nil || answers[0].Cursor != 3 || len(published.Sessions) != 0 {
		t.Errorf("the same again: %+v", answers[0])
	}
	answers, _ = w.commit(o.plain(o.ref, a, op("remove", "key", "part/a/b"), op("put", "key", "model/m", "payload", raw(`{}`))))
	if answers[0].Err != nil || answers[0].Cursor != 5 {
		t.Errorf("with one more: %+v", answers[0])
	}

	// One that does not apply undoes those before it.
	cursor := w.store.Session(o.session).Cursor
	reader := o.share([]string{"read"})
	cursor++
	good := op("put", "key", "message/z", "payload", raw(`{}`))
	dependent := good
	dependent.depends = []string{ulid.Make().String()}
	limits := w.cfg.Limits
	w.cfg.Limits.BatchOps, w.cfg.Limits.BatchBytes = 3, 151
	for name, c := range map[string]struct {
		sub  decide.Submission
		code fault.Code
	}{
		"a bad key":    {o.plain(o.ref, good, op("put", "key", "turn/z", "payload", raw(`{}`))), fault.BadKey},
		"no object":    {o.plain(o.ref, good, op("put", "key", "message/y", "payload", raw(`[]`))), fault.BadPayload},
		"a turn":       {o.plain(o.ref, good, op("begin", "message", "m", "payload", raw(`{}`))), fault.UnknownMethod},
		"a share":      {o.plain(o.ref, good, op("share", "ref", "x")), fault.UnknownMethod},
		"one too many": {o.plain(o.ref, puts(4)...), fault.TooLarge},
		"too large": {o.plain(o.ref, good, op("put", "key", "message/y", "payload", raw(`{"x":%q}`, strings.Repeat("x", 50))),
			op("put", "key", "message/y", "payload", raw(`{"x":%q}`, strings.Repeat("x", 51)))), fault.TooLarge},
		"not JSON":       {o.plain(o.ref, good, op("put", "key", "message/y", "payload", raw(`{`))), fault.Malformed},
		"a cursor":       {o.plain(o.ref, good.expecting(0)), fault.BadArgument},
		"a reference":    {o.plain(o.ref, good, op("put", "key", "message/y", "payload", ledger.Ref{Op: ulid.Make().String()})), fault.BadArgument},
		"a dependency":   {o.plain(o.ref, dependent), fault.BadArgument},
		"without append": {o.plain(reader, good), fault.MissingRight},
		"an unknown ref": {o.plain(capability.ServerID(o.session, ulid.Make()), good), fault.UnknownRef},
		"nothing":        {o.plain(o.ref), fault.TooLarge},
	} {
		answers, published := w.commit(c.sub)
		if err := answers[0].Err; err == nil || err.Code != c.code || len(published.Sessions) != 0 {
			t.Errorf("%s: %+v, want %s", name, answers[0], c.code)
		}
	}
	mustEqual(t, "the cursor", w.store.Session(o.session).Cursor, cursor)
	w.check(o.session)
	answers, _ = w.commit(o.plain(o.ref, puts(3)...), o.plain(o.ref, good, op("put", "key", "message/y", "payload", raw(`{"x":%q}`, strings.Repeat("x", 50))),
		op("put", "key", "message/y", "payload", raw(`{"x":%q}`, strings.Repeat("x", 50)))))
	if answers[0].Err != nil || answers[1].Err != nil {
		t.Errorf("as many and as much as may be: %+v", answers)
	}
	w.cfg.Limits = limits

	// It is no sign of life of anybody's stream.
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	w.lapse(true, o.session)
	w.commit(o.plain(o.ref, put("message/z")))
	mustEqual(t, "the turn", o.turn("m"), session.Interrupted)
}

func TestPlainCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.newWriter()
	making := func() decide.Submission {
		sub := o.plain(o.ref, op("create", "ref", o.ref, "hash", sha(o.ref), "external", "ext-1"), op("put", "key", "session", "payload", raw(`{"title":"x"}`)))
		sub.Space = w.space
		return sub
	}
	answers, _ := w.commit(making())
	if answers[0].Err == nil {
		t.Fatal("a put behind the create acts as an owner whom nothing has proven")
	}
	sub := making()
	sub.Batch.Ops = sub.Batch.Ops[:1]
	sub.Batch.Outbox = o.outbox
	answers, _ = w.commit(sub)
	if answers[0].Err != nil || answers[0].Epoch != 1 {
		t.Fatalf("%+v", answers[0])
	}
	mustEqual(t, "its use", answers[0].Uses[0].Ref, w.space)
	mustEqual(t, "its event's outbox, and who made it", o.last().Outbox+w.store.Session(o.session).Creator, "")
	sub.Batch.Outbox = ""
	answers, _ = w.commit(o.plain(o.ref, op("put", "key", "session", "payload", raw(`{"title":"x"}`))))
	if answers[0].Err != nil {
		t.Errorf("under its owner's ref: %+v", answers[0])
	}
	answers, _ = w.commit(sub)
	mustEqual(t, "the same again", answers[0].Err.Code, fault.AlreadyExists)
	for namesake, want := range map[bool]fault.Code{false: fault.AlreadyExists, true: fault.None} {
		p := w.newWriter()
		sub := p.plain(p.ref, op("create", "ref", p.ref, "hash", sha(p.ref), "external", "ext-1"))
		sub.Space, sub.Direct.SharedExternalID = w.space, namesake
		answers, _ = w.commit(sub, o.plain(o.ref)) // which is decided on what the one before has made
		got := fault.None
		if answers[0].Err != nil {
			got = answers[0].Err.Code
		}
		mustEqual(t, "the same external id", got, want)
	}
	w.check(o.session)
}
