//go:build unix

// Small messages that stand for large batches: lists of structs without a size,
// and pointers that share what they point at.

package objects

import (
	"runtime"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/batchtest"
	"github.com/mooring-rpc/mooring/rpc"
)

// TestASmallMessageDecodesSmall runs alone: it measures.
func TestASmallMessageDecodesSmall(t *testing.T) {
	const limit = 1 << 20
	for name, craft := range batchtest.Crafted {
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
	s, err := capnp.NewStruct(seg, batchtest.StructSize(0, 2))
	if err != nil {
		t.Fatal(err)
	}
	batchtest.Set(t, s, 1, batchtest.Voids(t, seg, batchtest.Many))
	if _, refused := decodeWith(s, nil); refused == nil || refused.Code != fault.TooLarge {
		t.Errorf("%v", refused)
	}
}

// TestBatchSize: a batch counts every text, not arguments only.
func TestBatchSize(t *testing.T) {
	t.Parallel()
	_, seg := capnp.NewSingleSegmentMessage(nil)
	b, err := wire.NewRootBatch(seg)
	if err != nil {
		t.Fatal(err)
	}
	batchtest.Crafted["one text of many dependsOn"](t, b)
	if _, size, refused := decodeBatch(b, "ses_x", "obx_x", 1, 64<<20); refused != nil || size < 60_000_000 {
		t.Errorf("weighs %d, %v", size, refused)
	}
}

// TestReadersNameLittle runs alone: it measures. Texts of a list that share their data are not copied each.
func TestReadersNameLittle(t *testing.T) {
	for name, make := range map[string]func(wire.SubscribeOptions) (capnp.TextList, error){
		"understands": func(o wire.SubscribeOptions) (capnp.TextList, error) { return o.NewUnderstands(10_000) },
		"keys":        func(o wire.SubscribeOptions) (capnp.TextList, error) { return o.NewKeys(10_000) },
	} {
		msg, seg := capnp.NewSingleSegmentMessage(nil)
		o, err := wire.NewRootSubscribeOptions(seg)
		if err != nil {
			t.Fatal(err)
		}
		list, err := make(o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := capnp.NewText(seg, strings.Repeat("k", 1<<20))
		for i := 0; err == nil && i < list.Len(); i++ {
			err = capnp.PointerList(list).Set(i, text.ToPtr())
		}
		if err != nil {
			t.Fatal(err)
		}
		msg.ResetReadLimit(uint64(rpc.DefaultLimits().Traversal))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, _, refused := (&sess{auth: &authority{}}).reading(o)
		runtime.ReadMemStats(&after)
		if (name == "keys") != (refused != nil && refused.Code == fault.BadArgument) { // names that are not known mean nothing
			t.Errorf("%s: %v", name, refused)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%s: decoding took %d KiB", name, took>>10)
		}
	}
}
