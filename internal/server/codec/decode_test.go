//go:build unix

// Small messages that stand for large batches: lists of structs without a size,
// and pointers that share what they point at.

package codec

import (
	"runtime"
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
		_, _, refused := DecodeBatch(b, "ses_x", "obx_x", 1, limit)
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
	if _, refused := DecodeWith(s, nil); refused == nil || refused.Code != fault.TooLarge {
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
	if _, size, refused := DecodeBatch(b, "ses_x", "obx_x", 1, 64<<20); refused != nil || size < 60_000_000 {
		t.Errorf("weighs %d, %v", size, refused)
	}
}
