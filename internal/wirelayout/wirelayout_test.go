package wirelayout

import (
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/internal/capnpfast"
)

// laidOut is a struct that the generated code has made and filled in, to be read by hand.
func laidOut[T ~capnp.StructKind](t *testing.T, want capnpfast.Size, make func(*capnp.Segment) (T, error), fill func(T) error) capnpfast.Struct {
	t.Helper()
	_, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err != nil {
		t.Fatal(err)
	}
	s, err := make(seg)
	if err == nil {
		err = fill(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	data := capnpfast.Segment(seg.Data())
	root, ok := data.Follow(0)
	if !ok || root.Data != want.Data || root.Pointers != want.Pointers {
		t.Fatalf("%T is %+v, not %+v", s, root, want)
	}
	m := capnpfast.NewMessage(data, root, 1000)
	return m.Root()
}

// all is the first error.
func all(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func check(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, not %v", what, got, want)
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	s := laidOut(t, capnpfast.Size{Pointers: 2}, wire.NewRootStream_apply_Params, func(p wire.Stream_apply_Params) error {
		_, err := p.NewBatch()
		return err
	})
	check(t, "a batch", s.Null(ParamsBatch), false)
	check(t, "no sessions", s.Null(ParamsWith), true)
	s = laidOut(t, capnpfast.Size{Pointers: 2}, wire.NewRootStream_apply_Params, func(p wire.Stream_apply_Params) error {
		_, err := p.NewWith(1)
		return err
	})
	check(t, "no batch", s.Null(ParamsBatch), true)
	check(t, "sessions", s.Null(ParamsWith), false)

	s = laidOut(t, Batch, wire.NewRootBatch, func(b wire.Batch) error {
		b.SetAtomic(true)
		b.SetAckedThrough(1 << 60)
		_, err := b.NewOps(3)
		return all(err, b.SetId("id"))
	})
	check(t, "atomic", s.Bit(BatchAtomic), true)
	check(t, "ackedThrough", s.Uint64(BatchAckedThrough), uint64(1<<60))
	check(t, "id", string(s.Text(BatchID)), "id")
	check(t, "ops", s.List(BatchOps).Len(), 3)
	op := s.List(BatchOps).At(1)
	check(t, "an op", capnpfast.Size{Data: op.Data, Pointers: op.Pointers}, Op)

	s = laidOut(t, Op, wire.NewRootOp, func(o wire.Op) error {
		o.SetSeq(1 << 61)
		o.Expected().SetCursor(1 << 62)
		_, err := o.NewArgs(2)
		_, err2 := o.NewDependsOn(1)
		return all(o.SetId("id"), o.SetMethod("method"), err, err2)
	})
	check(t, "seq", s.Uint64(OpSeq), uint64(1<<61))
	check(t, "expected", s.Uint16(OpExpected), uint16(wire.Op_expected_Which_cursor))
	check(t, "cursor", s.Uint64(OpExpectedCursor), uint64(1<<62))
	check(t, "id", string(s.Text(OpID)), "id")
	check(t, "method", string(s.Text(OpMethod)), "method")
	check(t, "args", s.List(OpArgs).Len(), 2)
	check(t, "dependsOn", s.Null(OpDependsOn), false)
	arg := s.List(OpArgs).At(1)
	check(t, "an argument", capnpfast.Size{Data: arg.Data, Pointers: arg.Pointers}, Arg)

	s = laidOut(t, Arg, wire.NewRootArg, func(a wire.Arg) error { return all(a.SetName("name"), a.SetJson("json")) })
	check(t, "which", s.Uint16(ArgWhich), uint16(wire.Arg_Which_json))
	check(t, "name", string(s.Text(ArgName)), "name")
	check(t, "json", string(s.Text(ArgJSON)), "json")
	s = laidOut(t, Arg, wire.NewRootArg, func(a wire.Arg) error {
		_, err := a.NewRef()
		return err
	})
	check(t, "which", s.Uint16(ArgWhich), uint16(wire.Arg_Which_ref))

	s = laidOut(t, capnpfast.Size{Pointers: 1}, wire.NewRootStream_apply_Results, func(r wire.Stream_apply_Results) error {
		_, err := r.NewReply()
		return err
	})
	check(t, "a reply", s.Null(ResultsReply), false)
	s = laidOut(t, capnpfast.Size{Data: 1, Pointers: 1}, wire.NewRootApplyReply, func(r wire.ApplyReply) error {
		_, err := r.NewAck()
		return err
	})
	check(t, "which", s.Uint16(ReplyWhich), uint16(wire.ApplyReply_Which_ack))
	check(t, "an ack", s.Null(ReplyAck), false)
	s = laidOut(t, capnpfast.Size{Data: 1, Pointers: 1}, wire.NewRootApplyReply, func(r wire.ApplyReply) error {
		_, err := r.NewRefusal()
		return err
	})
	check(t, "which", s.Uint16(ReplyWhich), uint16(wire.ApplyReply_Which_refusal))

	s = laidOut(t, Ack, wire.NewRootAck, func(a wire.Ack) error {
		a.SetCursor(1 << 63)
		_, err := a.NewOutcomes(4)
		return err
	})
	check(t, "cursor", s.Uint64(AckCursor), uint64(1<<63))
	check(t, "outcomes", s.List(AckOutcomes).Len(), 4)
	outcome := s.List(AckOutcomes).At(3)
	check(t, "an outcome", capnpfast.Size{Data: outcome.Data, Pointers: outcome.Pointers}, Outcome)

	s = laidOut(t, Outcome, wire.NewRootOutcome, func(o wire.Outcome) error {
		o.SetStatus(200)
		o.SetDuplicate(true)
		o.SetReason(60_000)
		o.SetCursor(1 << 59)
		o.SetAt(1 << 58)
		return all(o.SetOp("op"), o.SetMessage_("message"), o.SetResult("result"), o.SetCause("cause"))
	})
	check(t, "status", s.Uint8(OutcomeStatus), uint8(200))
	check(t, "duplicate", s.Bit(OutcomeDuplicate), true)
	check(t, "reason", s.Uint16(OutcomeReason), uint16(60_000))
	check(t, "cursor", s.Uint64(OutcomeCursor), uint64(1<<59))
	check(t, "at", s.Uint64(OutcomeAt), uint64(1<<58))
	for i, want := range map[int]string{OutcomeOp: "op", OutcomeMessage: "message", OutcomeResult: "result", OutcomeCause: "cause"} {
		check(t, want, string(s.Text(i)), want)
	}

	s = laidOut(t, capnpfast.Size{Pointers: 1}, wire.NewRootEventSink_events_Params, func(p wire.EventSink_events_Params) error {
		_, err := p.NewEvents(3)
		return err
	})
	check(t, "events", s.List(SinkEvents).Len(), 3)
	s = laidOut(t, capnpfast.Size{Data: 3, Pointers: 10}, wire.NewRootEvent, func(e wire.Event) error {
		e.SetCursor(1 << 63)
		e.SetSchema(1 << 31)
		e.SetAt(-2)
		return all(e.SetMethod("method"), e.SetKey("key"), e.SetPayload("payload"), e.SetRef("ref"), e.SetActor("actor"), e.SetOp("op"), e.SetBatch("batch"),
			e.SetOutbox("outbox"), e.SetHash([]byte("hash")), e.SetSum([]byte("sum")))
	})
	check(t, "cursor", s.Uint64(EventCursor), uint64(1<<63))
	check(t, "schema", s.Uint32(EventSchema), uint32(1<<31))
	check(t, "at", int64(s.Uint64(EventAt)), int64(-2))
	check(t, "purged, hidden", [2]bool{s.Bit(EventPurged), s.Bit(EventHidden)}, [2]bool{})
	for at, want := range map[int]string{EventMethod: "method", EventKey: "key", EventPayload: "payload", EventRef: "ref", EventActor: "actor", EventOp: "op",
		EventBatch: "batch", EventOutbox: "outbox"} {
		check(t, want, string(s.Text(at)), want)
	}
	check(t, "hash", string(s.Bytes(EventHash)), "hash")
	check(t, "sum", string(s.Bytes(EventSum)), "sum")
	for bit, set := range map[int]func(wire.Event, bool){EventPurged: wire.Event.SetPurged, EventHidden: wire.Event.SetHidden} {
		s = laidOut(t, capnpfast.Size{Data: 3, Pointers: 10}, wire.NewRootEvent, func(e wire.Event) error { set(e, true); return nil })
		check(t, "the bit", s.Bit(bit), true)
		check(t, "both bits", s.Bit(EventPurged) && s.Bit(EventHidden), false)
	}
}
