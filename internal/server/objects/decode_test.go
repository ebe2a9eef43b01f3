//go:build unix

// Small messages that stand for large batches: lists of structs without a size,
// and pointers that share what they point at.

package objects

import (
	"runtime"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// many is how many structs without a size a message of a few words may list.
const many = 8_000_000

// voids is a list of n structs without a size.
func voids(t testing.TB, seg *capnp.Segment, n int32) capnp.Ptr {
	t.Helper()
	l, err := capnp.NewCompositeList(seg, capnp.ObjectSize{}, n)
	if err != nil {
		t.Fatal(err)
	}
	return l.ToPtr()
}

// pointers is a list of n pointers to the same thing.
func pointers(t testing.TB, seg *capnp.Segment, n int32, to capnp.Ptr) capnp.Ptr {
	t.Helper()
	l, err := capnp.NewPointerList(seg, n)
	for i := range n {
		if err == nil {
			err = l.Set(int(i), to)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return l.ToPtr()
}

// crafted are batches whose bytes are few.
var crafted = map[string]func(t testing.TB, b wire.Batch){
	"ops": func(t testing.TB, b wire.Batch) {
		set(t, capnp.Struct(b), 1, voids(t, b.Segment(), many))
	},
	"args": func(t testing.TB, b wire.Batch) {
		ops, _ := b.NewOps(1)
		set(t, capnp.Struct(ops.At(0)), 2, voids(t, b.Segment(), many))
	},
	"dependsOn": func(t testing.TB, b wire.Batch) {
		ops, _ := b.NewOps(1)
		set(t, capnp.Struct(ops.At(0)), 3, pointers(t, b.Segment(), 100_000, capnp.Ptr{}))
	},
	"one args of many ops": func(t testing.TB, b wire.Batch) {
		const n = 3000
		ops, _ := b.NewOps(n)
		args := voids(t, b.Segment(), maxListLen)
		for i := range n {
			set(t, capnp.Struct(ops.At(i)), 2, args)
		}
	},
	"one dependsOn of many ops": func(t testing.TB, b wire.Batch) {
		const n = 3000
		ops, _ := b.NewOps(n)
		deps := pointers(t, b.Segment(), maxListLen, capnp.Ptr{})
		for i := range n {
			set(t, capnp.Struct(ops.At(i)), 3, deps)
		}
	},
	"one text of many dependsOn": func(t testing.TB, b wire.Batch) {
		ops, _ := b.NewOps(1)
		text, _ := capnp.NewTextFromBytes(b.Segment(), make([]byte, 60_000))
		set(t, capnp.Struct(ops.At(0)), 3, pointers(t, b.Segment(), 1000, text.ToPtr()))
	},
	"one argument of many ops": func(t testing.TB, b wire.Batch) {
		const n = 1000
		ops, _ := b.NewOps(n)
		arg, _ := wire.NewArg_List(b.Segment(), 1)
		if err := arg.At(0).SetJson(string(make([]byte, 60_000))); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			set(t, capnp.Struct(ops.At(i)), 2, arg.ToPtr())
		}
	},
}

func set(t testing.TB, s capnp.Struct, pointer uint16, to capnp.Ptr) {
	t.Helper()
	if err := s.SetPtr(pointer, to); err != nil {
		t.Fatal(err)
	}
}

// TestASmallMessageDecodesSmall runs alone: it measures.
func TestASmallMessageDecodesSmall(t *testing.T) {
	const limit = 1 << 20
	for name, craft := range crafted {
		msg, seg := capnp.NewSingleSegmentMessage(nil)
		b, err := wire.NewRootBatch(seg)
		if err != nil {
			t.Fatal(err)
		}
		craft(t, b)
		if size, _ := msg.TotalSize(); size > limit {
			t.Errorf("%s: the message has %d bytes", name, size)
		}
		msg.ResetReadLimit(uint64(rpc.DefaultLimits().Traversal))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, refused := decodeBatch(b, "ses_x", "obx_x", 1, limit)
		runtime.ReadMemStats(&after)
		if refused == nil || refused.Code != fault.TooLarge {
			t.Errorf("%s: %v", name, refused)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 10*limit {
			t.Errorf("%s: decoding took %d MiB", name, took>>20)
		}
	}
}

func TestManySessionsWithABatch(t *testing.T) {
	t.Parallel()
	_, seg := capnp.NewSingleSegmentMessage(nil)
	s, err := capnp.NewStruct(seg, structSize(0, 2))
	if err != nil {
		t.Fatal(err)
	}
	set(t, s, 1, voids(t, seg, many))
	if _, refused := decodeWith(s, nil); refused == nil || refused.Code != fault.TooLarge {
		t.Errorf("%v", refused)
	}
}

// TestWhatABatchWeighs: the queue is told of every text, not of arguments alone.
func TestWhatABatchWeighs(t *testing.T) {
	t.Parallel()
	_, seg := capnp.NewSingleSegmentMessage(nil)
	b, err := wire.NewRootBatch(seg)
	if err != nil {
		t.Fatal(err)
	}
	crafted["one text of many dependsOn"](t, b)
	if _, size, refused := decodeBatch(b, "ses_x", "obx_x", 1, 64<<20); refused != nil || size < 60_000_000 {
		t.Errorf("weighs %d, %v", size, refused)
	}
}

func TestASmallMessageIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	for name, craft := range crafted {
		got := readReply(t, m.stream.Call(within(t), streamApply, structSize(0, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
			b, err := wire.Stream_apply_Params(s).NewBatch()
			craft(t, b)
			return err
		}))
		if got.refusal == nil || got.refusal.Code != fault.TooLarge && got.refusal.Code != fault.Malformed {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if ack := p.must(m.stream, m.batch(put(1))); ack.applied != 1 {
		t.Errorf("after all that: %+v", ack)
	}
}
