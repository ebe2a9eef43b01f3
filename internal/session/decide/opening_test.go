package decide_test

// What one opening of a stream has come to decides over what comes behind.

import (
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestBatchesAfterADivergedOneAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	first, next, later := o.batch(false, put("message/a")), o.batch(false, put("message/b")), o.batch(false, put("message/c"))
	w.commit(first)
	events := len(w.store.Events(o.session))

	// A copy of the outbox sends its own first and next op, in one group and one by one.
	copied := func(opening *decide.Opening, s decide.Submission) decide.Submission {
		s.Batch.Ops = append([]ledger.Intent(nil), s.Batch.Ops...)
		s.Batch.Ops[0].OpID, s.Opening = ulid.Make().String(), opening
		return s
	}
	var twin, original decide.Opening
	first.Opening, next.Opening, later.Opening = &original, &original, &original
	answers, _ := w.commit(copied(&twin, first), copied(&twin, next), first)
	again, _ := w.commit(copied(&twin, next))
	for i, a := range []decide.Answer{answers[0], answers[1], again[0]} {
		if a.Err == nil || a.Err.Code != fault.OutboxDiverged {
			t.Errorf("batch %d of the copy: %+v", i, a)
		}
	}
	if !answers[2].Duplicate || len(w.store.Events(o.session)) != events {
		t.Fatalf("the original's first: %+v; %d events, were %d", answers[2], len(w.store.Events(o.session)), events)
	}
	// Another opening is none of its business, and other refusals decide over nothing.
	w.commit(later)
	answers, _ = w.commit(later, next, later)
	if answers[0].Err == nil || answers[0].Err.Code != fault.Gap || answers[1].Err != nil || answers[2].Err != nil {
		t.Errorf("the original goes on: %+v", answers)
	}
}
