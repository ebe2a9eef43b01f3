// What becomes of ops: promises in their arguments, ops that fail, and values that stay as they are.

package client_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestPromisesStandForValues(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	b := s.Batch()
	b.Begin("msg_1", object{"role": "assistant"})
	b.Put("part/msg_1/prt_1", object{"type": "text", "text": ""})
	one := b.AppendText("part/msg_1/prt_1", 0, "Grüß ")
	two := b.AppendText("part/msg_1/prt_1", one.Field("length"), "Gott")
	end := b.Finalize("msg_1", "completed").Arg("usage", object{"output": 2})
	applied(t, b)
	next := s.Batch()
	next.Put("session", object{"title": "t"}).Expect(end.Field("cursor"))
	applied(t, next)
	late := s.Batch()
	conflict := late.Put("session", object{"title": "u"}).Expect(two.Field("cursor"))
	late.Put(message(9), object{}).DependsOn(conflict)
	results := outcomes(t, late)
	if got := brief(results); got != "conflict/conflict skipped/conflict" {
		t.Errorf("outcomes %s", got)
	}
	if !errors.Is(results.Err(), fault.Conflict) {
		t.Errorf("the first refusal is %v", results.Err())
	}
	for _, err := range []error{results.Err(), results.Decode(conflict, new(any))} {
		if f, _ := errors.AsType[*fault.Error](err); f.Batch != late.ID() || !strings.HasSuffix(err.Error(), " (batch "+late.ID()+")") {
			t.Errorf("the batch is not named: %v", err)
		}
	}
	state, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var part struct{ Text string }
	if err := json.Unmarshal(state.Entry("part/msg_1/prt_1").Payload, &part); err != nil || part.Text != "Grüß Gott" {
		t.Errorf("the text is %q (%v)", part.Text, err)
	}
	if len(state.Turns) != 1 || state.Turns[0].Status != client.Completed {
		t.Errorf("turns %+v", state.Turns)
	}
}

// A reference of package ledger and a Promise that is no pointer are references as well, as whole arguments.
func TestEveryKindOfReference(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	b := s.Batch()
	first := b.Put("session", object{"title": "t"})
	at := ledger.Ref{Op: first.OpID(), Path: "cursor"}
	b.Put("model/m", *first)
	b.Put("model/n", ledger.Ref{Op: first.OpID()})
	b.Put("session", object{"title": "u"}).Expect(&at)
	if got := brief(outcomes(t, b)); got != "applied applied applied conflict/conflict" {
		t.Errorf("outcomes %s", got)
	}
	b = s.Batch()
	b.Put("session", (*ledger.Ref)(nil))
	if _, err := b.Commit(t.Context()); !errors.Is(err, fault.Usage) {
		t.Errorf("a nil reference: %v", err)
	}
}

func TestOneBadOpStopsNothingElse(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	b := s.Batch()
	b.Put(message(1), object{})
	b.Finalize("msg_none", "completed")
	b.Put(message(2), object{})
	if got := brief(outcomes(t, b)); got != "applied rejected/not_found applied" {
		t.Errorf("outcomes %s", got)
	}
	whole := s.Batch().Atomic()
	whole.Put(message(3), object{})
	whole.Finalize("msg_none", "completed")
	if got := brief(outcomes(t, whole)); got != "batch_aborted/not_found rejected/not_found" && got != "batch_aborted/not_found batch_aborted/not_found" {
		t.Errorf("outcomes of the atomic batch: %s", got)
	}
	state, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Entry(message(2)) == nil || state.Entry(message(3)) != nil {
		t.Errorf("state %+v", state.Entries)
	}
}

func TestImpossibleOpsAreRefusedInCommit(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	for _, tc := range []struct {
		name string
		add  func(*client.Batch)
		want fault.Code
	}{
		{"unknown method", func(b *client.Batch) { b.Do("explode") }, fault.UnknownMethod},
		{"bad key", func(b *client.Batch) { b.Put("turn/x", object{}) }, fault.BadKey},
		{"payload is no object", func(b *client.Batch) { b.Put("session", 7) }, fault.BadPayload},
		{"payload is not JSON", func(b *client.Batch) { b.Put("session", json.RawMessage(`{`)) }, fault.BadArgument},
		{"payload is JSON only if trimmed", func(b *client.Batch) { b.Put("session", json.RawMessage("\u00a0{}")) }, fault.BadArgument},
		{"a void's argument is not JSON", func(b *client.Batch) {
			b.Remove("session")
			b.Do("void", client.Arg{Name: "x", Value: json.RawMessage(`{`)})
		}, fault.Malformed},
		{"not marshalable", func(b *client.Batch) { b.Put("session", func() {}) }, fault.BadArgument},
		{"too large", func(b *client.Batch) { b.Put("session", object{"x": string(make([]byte, 5<<20))}) }, fault.TooLarge},
		{"no rights", func(b *client.Batch) { b.Share(client.ShareOptions{}) }, fault.BadArgument},
		{"no ops", func(*client.Batch) {}, fault.Usage},
		{"cursor is a text", func(b *client.Batch) { b.Remove("session").Expect("soon") }, fault.BadArgument},
	} {
		b := s.Batch()
		tc.add(b)
		if _, err := b.Commit(t.Context()); fault.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	st, err := c.Status(t.Context())
	if err != nil || st.Unfinished() != 0 || st.Failed != 0 {
		t.Errorf("the outbox has %+v (%v)", st, err)
	}
}

func TestValuesAreKeptByteForByte(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	text := `{ "n": 0.1000, "big": 12345678901234567890, "s": "<&\u00e9\ud83d\ude00é" }`
	b := s.Batch()
	b.Put("session", json.RawMessage(text))
	applied(t, b)
	state, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(state.Entry("session").Payload); got != text {
		t.Errorf("got %s", got)
	}
	var ref client.ResultRef
	if err := json.Unmarshal([]byte(`{"Op":"x","Path":"y"}`), &ref); err != nil || ref.Op != "x" {
		t.Errorf("a reference does not survive JSON: %+v, %v", ref, err)
	}
}

// TestAcksAreReadByHand: but for what comes with a stream's opening, the usual ones are.
func TestAcksAreReadByHand(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "owner")
	s := r.newSession(t, c)
	const batches = 10
	for n := range batches {
		b := s.Batch()
		b.Put(message(n), map[string]int{"n": n})
		ticket, err := b.Commit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if results, err := ticket.Wait(t.Context()); err != nil || results.Err() != nil {
			t.Fatal(err, results.Err())
		}
	}
	if n := c.FastPathAcks(); n < batches-1 {
		t.Errorf("of %d acks %d", batches, n)
	}
}
