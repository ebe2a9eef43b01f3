//go:build unix

// That batches are read by hand as the generated code reads them, and acks
// written as it writes them.

package codec

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	byhand "github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/capnpfasttest"
	"github.com/mooring-rpc/mooring/internal/server/batchtest"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/wirelayout"
	"github.com/mooring-rpc/mooring/ledger"
)

// randomText has any bytes, and now and then is a usual name.
func randomText(rnd *rand.Rand, limit int) string {
	if rnd.IntN(4) == 0 {
		return "payload"
	}
	return capnpfasttest.Text(rnd, limit)
}

// randomBatch is any batch; a plain one refers to nothing.
func randomBatch(rnd *rand.Rand, plain bool) *ledger.Batch {
	b := &ledger.Batch{BatchID: randomText(rnd, 30), Atomic: rnd.IntN(2) == 0, AckedThrough: rnd.Uint64()}
	b.Ops = make([]ledger.Intent, rnd.IntN(6))
	for i := range b.Ops {
		op := &b.Ops[i]
		op.OpID, op.Seq, op.Method = randomText(rnd, 26), rnd.Uint64(), randomText(rnd, 10)
		for !plain && rnd.IntN(3) == 0 {
			op.DependsOn = append(op.DependsOn, randomText(rnd, 26))
		}
		if rnd.IntN(2) == 0 {
			op.Expected = ledger.Expect{Set: true, Cursor: rnd.Uint64()}
		}
		for range rnd.IntN(4) {
			a := ledger.Arg{Name: randomText(rnd, 10), JSON: []byte(randomText(rnd, 300))}
			if !plain && rnd.IntN(3) == 0 {
				a.Ref = &ledger.Ref{Op: randomText(rnd, 26), Path: randomText(rnd, 5)}
			}
			op.Args = append(op.Args, a)
		}
	}
	return b
}

// leaner writes a batch in structs so many words larger than ours, or smaller, and
// without lists that have nothing in them.
func leaner(s capnp.Struct, b *ledger.Batch, more int) error {
	resized := func(l capnp.List, data, pointers int) (capnp.List, error) {
		to, err := capnp.NewCompositeList(s.Segment(), batchtest.StructSize(capnp.Size(data+more), uint16(pointers+more)), int32(l.Len()))
		for i := range l.Len() {
			if err == nil {
				err = to.SetStruct(i, l.Struct(i))
			}
		}
		return to, err
	}
	_, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err != nil {
		return err
	}
	from, err := wire.NewRootBatch(seg)
	if err == nil {
		err = batchtest.Write(from, b)
	}
	if err != nil {
		return err
	}
	ops, err := from.Ops()
	if err != nil {
		return err
	}
	var w FieldWriter
	for i := range ops.Len() {
		op := ops.At(i)
		args, err := op.Args()
		w.Do(err)
		if args.Len() == 0 {
			w.Do(capnp.Struct(op).SetPtr(2, capnp.Ptr{}))
		}
	}
	to, err := wire.Stream_apply_Params(s).NewBatch()
	w.Do(err)
	to.SetAtomic(b.Atomic)
	to.SetAckedThrough(b.AckedThrough)
	w.Do(to.SetId(b.BatchID))
	list, err := resized(capnp.List(ops), 3, 5)
	w.Do(err)
	for i := range list.Len() {
		p, err := list.Struct(i).Ptr(2)
		w.Do(err)
		if p.IsValid() && w.err == nil {
			args, err := resized(p.List(), 1, 2)
			w.Do(err)
			w.Do(list.Struct(i).SetPtr(2, args.ToPtr()))
		}
	}
	w.Do(capnp.Struct(to).SetPtr(1, list.ToPtr()))
	return w.err
}

// checkBatch reads a batch both ways, with so many bytes to be read, and to be
// stood for.
func checkBatch(t *testing.T, raw []byte, traversal uint64, limit int) (plain bool) {
	t.Helper()
	seg := bytes.Clone(raw[:len(raw)&^7])
	if len(seg) == 0 {
		return false
	}
	root, ok := byhand.Segment(seg).Follow(0)
	if !ok || root.Cost() > traversal {
		return false
	}
	got, size, ok := DecodePlain(byhand.NewMessage(seg, root, traversal-root.Cost()), "ses_x", "obx_x", 7, limit)
	if !ok {
		return false
	}
	msg := &capnp.Message{Arena: capnp.SingleSegment(bytes.Clone(raw[:len(seg)]))}
	msg.ResetReadLimit(traversal)
	ptr, err := msg.Root()
	if err != nil {
		t.Fatalf("read by hand, but %v", err)
	}
	from, err := wire.Stream_apply_Params(ptr.Struct()).Batch()
	if err != nil {
		t.Fatalf("read by hand, but %v", err)
	}
	want, wantSize, refused := DecodeBatch(from, "ses_x", "obx_x", 7, limit)
	if refused != nil || size != wantSize || !reflect.DeepEqual(got, want) {
		t.Fatalf("read by hand, of size %d\n%+v, by the generated code, of size %d (%v)\n%+v", size, got, wantSize, refused, want)
	}
	for i := range seg {
		seg[i] = 0xa7
	}
	if size-opBytes*len(got.Ops) >= len(seg)/2 { // then, and only then, the values are still in there
		for i := range got.Ops {
			for j := range got.Ops[i].Args {
				got.Ops[i].Args[j].JSON = want.Ops[i].Args[j].JSON
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("what was read has changed with the message: it is\n%+v, and was\n%+v", got, want)
	}
	if with, refused := DecodeWith(ptr.Struct(), nil); len(with) > 0 || refused != nil {
		t.Fatalf("read by hand, but with %v (%v)", with, refused)
	}
	return true
}

func TestReadBatches(t *testing.T) {
	t.Parallel()
	rnd := capnpfasttest.Rand(t)
	unusual := 0
	for n := range 3000 {
		b, more := randomBatch(rnd, n%4 > 0), 0
		if n%3 == 0 {
			more = 2 - rnd.IntN(4)
		}
		raw := capnpfasttest.Segment(t, batchtest.StructSize(0, 2), func(s capnp.Struct) error { return leaner(s, b, more) })
		plain := checkBatch(t, raw, uint64(len(raw)), 1<<20)
		if n%4 > 0 && !plain {
			t.Fatalf("not plain: %+v\n%x", b, raw)
		} else if !plain {
			unusual++
		}
		for range 20 { // what is not well-formed, read too often, or too much
			spoilt := bytes.Clone(raw)
			capnpfasttest.Corrupt(rnd, spoilt)
			checkBatch(t, spoilt, uint64(rnd.IntN(2*len(raw))), 1+rnd.IntN(2*len(raw)))
		}
	}
	if unusual < 100 {
		t.Errorf("of 750 batches that refer to something %d were not plain", unusual)
	}
}

// TestUnusualBatches are left to the generated code, which takes or refuses them.
func TestUnusualBatches(t *testing.T) {
	t.Parallel()
	for name, craft := range batchtest.Crafted {
		raw := capnpfasttest.Segment(t, batchtest.StructSize(0, 2), func(s capnp.Struct) error {
			b, err := wire.Stream_apply_Params(s).NewBatch()
			if err == nil {
				craft(t, b)
			}
			return err
		})
		if checkBatch(t, raw, 64<<20, 1<<20) {
			t.Errorf("%s: plain", name)
		}
	}
	for name, place := range map[string]func(wire.Stream_apply_Params) error{
		"no batch": func(wire.Stream_apply_Params) error { return nil },
		"sessions with it": func(p wire.Stream_apply_Params) error {
			_, err := p.NewBatch()
			if err == nil {
				_, err = p.NewWith(0)
			}
			return err
		},
		"an argument of a new kind": func(p wire.Stream_apply_Params) error {
			return oneOp(p, func(op wire.Op) error {
				args, err := op.NewArgs(1)
				capnp.Struct(args.At(0)).SetUint16(0, 2)
				return err
			})
		},
		"a new expectation": func(p wire.Stream_apply_Params) error {
			return oneOp(p, func(op wire.Op) error { capnp.Struct(op).SetUint16(8, 3); return nil })
		},
		"an expected reference": func(p wire.Stream_apply_Params) error {
			return oneOp(p, func(op wire.Op) error { _, err := op.Expected().NewRef(); return err })
		},
		"an empty list of dependencies": func(p wire.Stream_apply_Params) error {
			return oneOp(p, func(op wire.Op) error { _, err := op.NewDependsOn(0); return err })
		},
		"too many arguments": func(p wire.Stream_apply_Params) error {
			return oneOp(p, func(op wire.Op) error { _, err := op.NewArgs(maxListLen + 1); return err })
		},
		"too many ops": func(p wire.Stream_apply_Params) error {
			b, err := p.NewBatch()
			if err == nil {
				_, err = b.NewOps(ledger.MaxFrameOps + 1)
			}
			return err
		},
	} {
		raw := capnpfasttest.Segment(t, batchtest.StructSize(0, 2), func(s capnp.Struct) error { return place(wire.Stream_apply_Params(s)) })
		if checkBatch(t, raw, 64<<20, 1<<20) {
			t.Errorf("%s: plain", name)
		}
	}
	for name, place := range map[string]func(wire.Stream_apply_Params) error{
		"an empty batch": func(p wire.Stream_apply_Params) error { _, err := p.NewBatch(); return err },
		"an empty op":    func(p wire.Stream_apply_Params) error { return oneOp(p, func(wire.Op) error { return nil }) },
		"empty arguments": func(p wire.Stream_apply_Params) error {
			return oneOp(p, func(op wire.Op) error { _, err := op.NewArgs(3); return err })
		},
		"no arguments": func(p wire.Stream_apply_Params) error {
			return oneOp(p, func(op wire.Op) error { _, err := op.NewArgs(0); return err })
		},
	} {
		raw := capnpfasttest.Segment(t, batchtest.StructSize(0, 2), func(s capnp.Struct) error { return place(wire.Stream_apply_Params(s)) })
		if !checkBatch(t, raw, 64<<20, 1<<20) {
			t.Errorf("%s: not plain", name)
		}
	}
}

func oneOp(p wire.Stream_apply_Params, place func(wire.Op) error) error {
	b, err := p.NewBatch()
	if err != nil {
		return err
	}
	ops, err := b.NewOps(1)
	if err != nil {
		return err
	}
	return place(ops.At(0))
}

// TestASmallMessageIsReadSmall is TestASmallMessageDecodesSmall by hand. It runs
// alone: it measures.
func TestASmallMessageIsReadSmall(t *testing.T) {
	const limit = 1 << 20
	for name, craft := range batchtest.Crafted {
		seg := capnpfasttest.Segment(t, batchtest.StructSize(0, 2), func(s capnp.Struct) error {
			b, err := wire.Stream_apply_Params(s).NewBatch()
			if err == nil {
				craft(t, b)
			}
			return err
		})
		root, _ := byhand.Segment(seg).Follow(0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, ok := DecodePlain(byhand.NewMessage(seg, root, 64<<20), "ses_x", "obx_x", 1, limit)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; ok || took > 10*limit {
			t.Errorf("%s: read is %v, and took %d MiB", name, ok, took>>20)
		}
	}
}

// FuzzPlainBatch holds batches that are read by hand to the generated code.
func FuzzPlainBatch(f *testing.F) {
	for n := range 12 { // small ones, since the fuzzer takes long to make them smaller
		b := &ledger.Batch{BatchID: "b", Ops: make([]ledger.Intent, n%3)}
		for i := range b.Ops {
			b.Ops[i] = ledger.Intent{OpID: "op", Method: "put", Args: []ledger.Arg{{Name: "key", JSON: []byte("1")}}}
			if n%4 == 1 {
				b.Ops[i].Expected = ledger.Expect{Set: true, Cursor: 3}
			}
			if n == 10 {
				b.Ops[i].DependsOn = []string{"x"}
			}
		}
		raw := capnpfasttest.Segment(f, batchtest.StructSize(0, 2), func(s capnp.Struct) error { return leaner(s, b, n/4-1) })
		f.Add(raw, uint16(4095), uint16(4095))
	}
	f.Fuzz(func(t *testing.T, raw []byte, traversal, limit uint16) {
		checkBatch(t, raw, uint64(traversal%4096), max(int(limit), 1)) // with more, it would try batches of many ops above all
	})
}

// randomAnswer has any outcomes.
func randomAnswer(rnd *rand.Rand) *decide.Answer {
	a := &decide.Answer{Duplicate: rnd.IntN(2) == 0, Cursor: rnd.Uint64(), Outcomes: make([]ledger.Outcome, rnd.IntN(6))}
	for i := range a.Outcomes {
		o := &a.Outcomes[i]
		*o = ledger.Outcome{OpID: randomText(rnd, 26), Status: ledger.Status(rnd.Uint32()), Reason: fault.Code(rnd.Uint32()),
			Cursor: rnd.Uint64(), At: rnd.Uint64()}
		for _, text := range []*string{&o.Message, &o.Cause} {
			if rnd.IntN(2) == 0 {
				*text = randomText(rnd, 40)
			}
		}
		if rnd.IntN(3) > 0 {
			o.Result = []byte(randomText(rnd, 40))
		}
	}
	return a
}

// generatedAck writes an ack by the generated code alone.
func generatedAck(s capnp.Struct, a *decide.Answer) error {
	reply, err := wire.Stream_apply_Results(s).NewReply()
	if err != nil {
		return err
	}
	to, err := reply.NewAck()
	if err != nil {
		return err
	}
	encodeCounts(to, a)
	return encodeOutcomes(to, a)
}

func writtenAck(s capnp.Struct, a *decide.Answer) error {
	reply, err := wire.Stream_apply_Results(s).NewReply()
	if err != nil {
		return err
	}
	return EncodeAck(reply, a)
}

func TestWrittenAcks(t *testing.T) {
	t.Parallel()
	rnd := capnpfasttest.Rand(t)
	for n := range 5000 {
		a := randomAnswer(rnd)
		if n == 0 {
			a = &decide.Answer{}
		}
		got := capnpfasttest.Segment(t, batchtest.StructSize(0, 1), func(s capnp.Struct) error { return writtenAck(s, a) })
		want := capnpfasttest.Segment(t, batchtest.StructSize(0, 1), func(s capnp.Struct) error { return generatedAck(s, a) })
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v is\n%x, but generated\n%x", a, got, want)
		}
	}
}

// TestAckInManySegments is written where there is no room in one.
func TestAckInManySegments(t *testing.T) {
	t.Parallel()
	a := &decide.Answer{Outcomes: make([]ledger.Outcome, 1000)}
	for i := range a.Outcomes {
		a.Outcomes[i].OpID = fmt.Sprint(i)
	}
	msg, seg, err := capnp.NewMessage(capnp.MultiSegment(nil))
	if err != nil {
		t.Fatal(err)
	}
	s, err := wire.NewRootStream_apply_Results(seg)
	if err == nil {
		err = writtenAck(capnp.Struct(s), a)
	}
	if err != nil || msg.NumSegments() < 2 {
		t.Fatalf("%d segments, %v", msg.NumSegments(), err)
	}
	reply, err := s.Reply()
	if err != nil {
		t.Fatal(err)
	}
	ack, err := reply.Ack()
	if err != nil {
		t.Fatal(err)
	}
	list, err := ack.Outcomes()
	if err != nil || list.Len() != len(a.Outcomes) {
		t.Fatalf("%d outcomes, %v", list.Len(), err)
	}
	for i := range list.Len() {
		if id, err := list.At(i).Op(); id != fmt.Sprint(i) || err != nil {
			t.Errorf("outcome %d is of %q, %v", i, id, err)
		}
	}
}

func BenchmarkReadBatch(b *testing.B) {
	batch := &ledger.Batch{BatchID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}
	for i := range 32 {
		batch.Ops = append(batch.Ops, ledger.Intent{OpID: fmt.Sprintf("01ARZ3NDEKTSV4RRFFQ69G5F%02d", i), Seq: uint64(i), Method: "put",
			Args: []ledger.Arg{{Name: "key", JSON: []byte(`"message/msg_1"`)}, {Name: "payload", JSON: bytes.Repeat([]byte("x"), 300)}}})
	}
	seg := capnpfasttest.Segment(b, batchtest.StructSize(0, 2), func(s capnp.Struct) error { return leaner(s, batch, 0) })
	b.Run("hand", func(b *testing.B) {
		root, _ := byhand.Segment(seg).Follow(0)
		m := byhand.NewMessage(seg, root, 1<<20)
		b.ReportAllocs()
		for b.Loop() {
			if _, _, ok := DecodePlain(m, "ses_x", "obx_x", 1, 1<<20); !ok {
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
			from, err := wire.Stream_apply_Params(root.Struct()).Batch()
			if err != nil {
				b.Fatal(err)
			}
			if _, _, refused := DecodeBatch(from, "ses_x", "obx_x", 1, 1<<20); refused != nil {
				b.Fatal(refused)
			}
		}
	})
}

func BenchmarkWriteAck(b *testing.B) {
	a := &decide.Answer{Cursor: 7, Outcomes: make([]ledger.Outcome, 32)}
	for i := range a.Outcomes {
		a.Outcomes[i] = ledger.Outcome{OpID: fmt.Sprintf("01ARZ3NDEKTSV4RRFFQ69G5F%02d", i), Status: ledger.Applied, Cursor: uint64(i),
			Result: []byte(`{"cursor":12345}`)}
	}
	for name, place := range map[string]func(capnp.Struct, *decide.Answer) error{"hand": writtenAck, "generated": generatedAck} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				msg, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
				if err != nil {
					b.Fatal(err)
				}
				root, err := capnp.NewRootStruct(seg, batchtest.StructSize(0, 1))
				if err == nil {
					err = place(root, a)
				}
				if err != nil {
					b.Fatal(err)
				}
				msg.Release()
			}
		})
	}
}

// TestFewValuesLeaveTheirMessage: what is kept of an op keeps no large message with it.
func TestFewValuesLeaveTheirMessage(t *testing.T) {
	t.Parallel()
	value := `{"a":"` + strings.Repeat("x", 400) + `"}` // as long as they mostly are
	b := &ledger.Batch{BatchID: "b", Ops: []ledger.Intent{{OpID: "o", Method: "put", Args: []ledger.Arg{{Name: "payload", JSON: []byte(value)}}}}}
	for _, idle := range []int32{0, 1000} {
		seg := capnpfasttest.Segment(t, batchtest.StructSize(0, 2), func(s capnp.Struct) error {
			var w FieldWriter
			to, err := wire.Stream_apply_Params(s).NewBatch()
			w.Do(err)
			w.Do(batchtest.Write(to, b))
			ops, err := to.Ops()
			w.Do(err)
			w.Do(capnp.Struct(ops.At(0)).SetPtr(wirelayout.OpDependsOn, capnp.Ptr{}))
			_, err = capnp.NewUInt64List(s.Segment(), idle) // to which nothing points
			w.Do(err)
			return w.err
		})
		root, _ := byhand.Segment(seg).Follow(0)
		got, _, ok := DecodePlain(byhand.NewMessage(seg, root, 1<<20), "ses_x", "obx_x", 7, 1<<20)
		if !ok {
			t.Fatal("not plain")
		}
		clear(seg)
		if kept := string(got.Ops[0].Args[0].JSON) == value; kept != (idle > 0) {
			t.Errorf("with %d idle words: of its own %v", idle, kept)
		}
	}
}
