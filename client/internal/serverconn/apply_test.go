// That applies are written by hand as the generated code writes them, and acks
// read as it reads them.

package serverconn

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	byhand "github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/capnpfasttest"
	"github.com/mooring-rpc/mooring/ledger"
)

// randomBatch is any batch; a plain one refers to nothing.
func randomBatch(rnd *rand.Rand, plain bool) *ledger.Batch {
	b := &ledger.Batch{BatchID: capnpfasttest.Text(rnd, 30), Atomic: rnd.IntN(2) == 0, AckedThrough: rnd.Uint64()}
	b.Ops = make([]ledger.Intent, rnd.IntN(6))
	ref := func() *ledger.Ref {
		if plain || rnd.IntN(3) > 0 {
			return nil
		}
		return &ledger.Ref{Op: capnpfasttest.Text(rnd, 26), Path: capnpfasttest.Text(rnd, 5)}
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		op.OpID, op.Seq, op.Method = capnpfasttest.Text(rnd, 26), rnd.Uint64(), capnpfasttest.Text(rnd, 10)
		for !plain && rnd.IntN(3) == 0 {
			op.DependsOn = append(op.DependsOn, capnpfasttest.Text(rnd, 26))
		}
		if rnd.IntN(2) == 0 {
			op.Expected = ledger.Expect{Set: true, Cursor: rnd.Uint64(), Ref: ref()}
		}
		for range rnd.IntN(4) {
			a := ledger.Arg{Name: capnpfasttest.Text(rnd, 10), Ref: ref()}
			switch rnd.IntN(4) {
			case 0:
			case 1:
				a.JSON = []byte{}
			default:
				a.JSON = []byte(capnpfasttest.Text(rnd, 300))
			}
			op.Args = append(op.Args, a)
		}
	}
	return b
}

// generated writes a batch by the generated code alone.
func generated(s capnp.Struct, b *ledger.Batch) error {
	to, err := wire.Stream_apply_Params(s).NewBatch()
	if err != nil {
		return err
	}
	return encodeBatch(to, b)
}

func TestWrittenBatches(t *testing.T) {
	t.Parallel()
	rnd := capnpfasttest.Rand(t)
	batches := []*ledger.Batch{{}, {Ops: []ledger.Intent{}}, {Ops: make([]ledger.Intent, 3)}, hotBatch(32),
		{Ops: []ledger.Intent{{Args: make([]ledger.Arg, 2), Expected: ledger.Expect{Ref: &ledger.Ref{Op: "not set"}}}}},
		{Ops: []ledger.Intent{{Args: []ledger.Arg{{Name: "large", JSON: bytes.Repeat([]byte("x"), 3<<20)}}}}}}
	for range 5000 {
		batches = append(batches, randomBatch(rnd, true))
	}
	for n := range 6000 {
		b := randomBatch(rnd, false)
		if n < len(batches) {
			b = batches[n]
			if _, plain := fastPathSize(b); !plain {
				t.Fatalf("not plain: %+v", b)
			}
		}
		got := capnpfasttest.Segment(t, structSize(0, 2), func(s capnp.Struct) error { return fillBatch(wire.Stream_apply_Params(s), b) })
		want := capnpfasttest.Segment(t, structSize(0, 2), func(s capnp.Struct) error { return generated(s, b) })
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v is\n%x, but generated\n%x", b, got, want)
		}
	}
}

// TestBatchInManySegments is written where there is no room in one.
func TestBatchInManySegments(t *testing.T) {
	t.Parallel()
	b := hotBatch(32)
	msg, seg, err := capnp.NewMessage(capnp.MultiSegment(nil))
	if err != nil {
		t.Fatal(err)
	}
	p, err := wire.NewRootStream_apply_Params(seg)
	if err == nil {
		err = fillBatch(p, b)
	}
	if err != nil || msg.NumSegments() < 2 {
		t.Fatalf("%d segments, %v", msg.NumSegments(), err)
	}
	batch, err := p.Batch()
	if err != nil {
		t.Fatal(err)
	}
	ops, err := batch.Ops()
	if err != nil || ops.Len() != len(b.Ops) {
		t.Fatalf("%d ops, %v", ops.Len(), err)
	}
	for i := range b.Ops {
		if id, err := ops.At(i).Id(); id != b.Ops[i].OpID || err != nil {
			t.Errorf("op %d is %q, %v", i, id, err)
		}
	}
}

// opsOf are ops of these ids, as an answer is compared with.
func opsOf(ids ...string) []ledger.Intent {
	ops := make([]ledger.Intent, len(ids))
	for i := range ops {
		ops[i].OpID = ids[i]
	}
	return ops
}

// writeAck writes outcomes of ops, in structs so many words larger than ours, or
// smaller.
func writeAck(rnd *rand.Rand, s capnp.Struct, ops []ledger.Intent, more int) error {
	reply, err := wire.Stream_apply_Results(s).NewReply()
	if err != nil {
		return err
	}
	ack, err := reply.NewAck()
	if err != nil {
		return err
	}
	ack.SetCursor(rnd.Uint64())
	list, err := capnp.NewCompositeList(s.Segment(), structSize(capnp.Size(3+more), uint16(4+more)), int32(len(ops)))
	if err != nil {
		return err
	}
	duplicate := rnd.IntN(2) == 0
	for i := range ops {
		_, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
		if err != nil {
			return err
		}
		o, err := wire.NewRootOutcome(seg)
		if err != nil {
			return err
		}
		o.SetStatus(uint8(rnd.Uint32()))
		o.SetDuplicate(duplicate && rnd.IntN(3) > 0)
		o.SetReason(uint16(rnd.Uint32()))
		o.SetCursor(rnd.Uint64())
		o.SetAt(rnd.Uint64())
		errs := []error{o.SetOp(ops[i].OpID)}
		for _, set := range []func(string) error{o.SetMessage_, o.SetResult, o.SetCause} {
			if rnd.IntN(2) == 0 {
				errs = append(errs, set(capnpfasttest.Text(rnd, 40)))
			}
		}
		for _, err := range append(errs, list.Struct(i).CopyFrom(capnp.Struct(o))) {
			if err != nil {
				return err
			}
		}
	}
	return capnp.Struct(ack).SetPtr(0, list.ToPtr())
}

// checkReply reads an answer both ways, with so many bytes to be read.
func checkReply(t *testing.T, raw []byte, limit uint64, ops []ledger.Intent) (plain bool) {
	t.Helper()
	seg := bytes.Clone(raw[:len(raw)&^7])
	if len(seg) == 0 {
		return false
	}
	root, ok := byhand.Segment(seg).Follow(0)
	if !ok || root.Cost() > limit {
		return false
	}
	got, ok := decodeReplyFast(byhand.NewMessage(seg, root, limit-root.Cost()), ops)
	if !ok {
		return false
	}
	for i := range seg { // nothing refers to it any more
		seg[i] = 0xa7
	}
	msg := &capnp.Message{Arena: capnp.SingleSegment(bytes.Clone(raw[:len(seg)]))}
	msg.ResetReadLimit(limit)
	ptr, err := msg.Root()
	if err != nil {
		t.Fatalf("read by hand, but %v", err)
	}
	want, err := DecodeReply(ptr.Struct(), ops)
	if err != nil {
		t.Fatalf("read by hand, but %v", err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("read by hand\n%+v, by the generated code\n%+v", got, want)
	}
	return true
}

func TestReadReplies(t *testing.T) {
	t.Parallel()
	rnd := capnpfasttest.Rand(t)
	for n := range 3000 {
		var ids []string
		for range rnd.IntN(6) {
			ids = append(ids, capnpfasttest.Text(rnd, 26))
		}
		ops, more := opsOf(ids...), 0
		if n%3 == 0 {
			more = 2 - rnd.IntN(5)
		}
		raw := capnpfasttest.Segment(t, structSize(0, 1), func(s capnp.Struct) error { return writeAck(rnd, s, ops, more) })
		if !checkReply(t, raw, uint64(len(raw)), ops) {
			t.Fatalf("not plain: %x", raw)
		}
		if checkReply(t, raw, uint64(len(raw)), append(ops, ledger.Intent{})) {
			t.Fatal("an outcome is missing, and it is plain")
		}
		for range 20 { // what is not well-formed, or read too often
			spoilt := bytes.Clone(raw)
			capnpfasttest.Corrupt(rnd, spoilt)
			checkReply(t, spoilt, uint64(rnd.IntN(2*len(raw))), ops)
		}
	}
}

// TestRefusedReply is none of those that are read by hand.
func TestRefusedReply(t *testing.T) {
	t.Parallel()
	for _, place := range []func(wire.Stream_apply_Results) error{
		func(wire.Stream_apply_Results) error { return nil },
		func(r wire.Stream_apply_Results) error { _, err := r.NewReply(); return err },
		func(r wire.Stream_apply_Results) error {
			reply, err := r.NewReply()
			if err == nil {
				var refusal wire.Refusal
				if refusal, err = reply.NewRefusal(); err == nil {
					refusal.SetCode(uint16(fault.TooLarge))
				}
			}
			return err
		},
	} {
		raw := capnpfasttest.Segment(t, structSize(0, 1), func(s capnp.Struct) error { return place(wire.Stream_apply_Results(s)) })
		if checkReply(t, raw, 1000, nil) {
			t.Errorf("plain: %x", raw)
		}
	}
}

// FuzzPlainReply holds acks that are read by hand to the generated code.
func FuzzPlainReply(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 8 {
		raw := capnpfasttest.Segment(f, structSize(0, 1), func(s capnp.Struct) error { return writeAck(rnd, s, opsOf("a", "bb", "")[:n%4], n/4) })
		f.Add(raw, uint16(1000), n%4)
	}
	f.Fuzz(func(t *testing.T, raw []byte, limit uint16, n int) {
		ops := opsOf("a", "bb", "")
		checkReply(t, raw, uint64(limit), ops[:min(max(n, 0), len(ops))])
	})
}

// hotBatch is the usual batch: puts of 300 bytes each.
func hotBatch(n int) *ledger.Batch {
	b := &ledger.Batch{BatchID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", AckedThrough: 7}
	for i := range n {
		b.Ops = append(b.Ops, ledger.Intent{OpID: fmt.Sprintf("01ARZ3NDEKTSV4RRFFQ69G5F%02d", i), Seq: uint64(i), Method: "put",
			Args: []ledger.Arg{{Name: "key", JSON: []byte(`"message/msg_1"`)}, {Name: "payload", JSON: bytes.Repeat([]byte("x"), 300)}}})
	}
	return b
}

func BenchmarkWriteBatch(b *testing.B) {
	batch := hotBatch(32)
	for name, place := range map[string]func(capnp.Struct) error{
		"hand":      func(s capnp.Struct) error { return fillBatch(wire.Stream_apply_Params(s), batch) },
		"generated": func(s capnp.Struct) error { return generated(s, batch) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				msg, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
				if err != nil {
					b.Fatal(err)
				}
				root, err := capnp.NewRootStruct(seg, structSize(0, 2))
				if err == nil {
					err = place(root)
				}
				if err != nil {
					b.Fatal(err)
				}
				msg.Release()
			}
		})
	}
}

func BenchmarkReadReply(b *testing.B) {
	ops := hotBatch(32).Ops
	seg := capnpfasttest.Segment(b, structSize(0, 1), func(s capnp.Struct) error {
		reply, err := wire.Stream_apply_Results(s).NewReply()
		if err != nil {
			return err
		}
		ack, err := reply.NewAck()
		if err != nil {
			return err
		}
		list, err := ack.NewOutcomes(int32(len(ops)))
		if err != nil {
			return err
		}
		for i := range ops {
			o := list.At(i)
			o.SetStatus(1)
			o.SetCursor(uint64(i))
			if err := o.SetOp(ops[i].OpID); err != nil {
				return err
			}
			if err := o.SetResult(`{"cursor":12345}`); err != nil {
				return err
			}
		}
		return nil
	})
	b.Run("hand", func(b *testing.B) {
		root, _ := byhand.Segment(seg).Follow(0)
		m := byhand.NewMessage(seg, root, 1<<20)
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := decodeReplyFast(m, ops); !ok {
				b.Fatal("not plain")
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		msg := &capnp.Message{Arena: capnp.SingleSegment(seg)}
		root, err := msg.Root()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			msg.ResetReadLimit(1 << 20)
			if _, err := DecodeReply(root.Struct(), ops); err != nil {
				b.Fatal(err)
			}
		}
	})
}
