//go:build unix

// The server's decoders take anything: what a peer writes into its structs is
// its own affair, and no shape of them may do more than be refused.

package codec

import (
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/internal/server/batchtest"
	"github.com/mooring-rpc/mooring/ledger"
)

func FuzzDecode(f *testing.F) {
	seed := func(ops ...ledger.Intent) {
		for i := range ops {
			ops[i].Seq = uint64(i + 1)
		}
		msg, seg := capnp.NewSingleSegmentMessage(nil)
		b, err := wire.NewRootBatch(seg)
		if err != nil {
			f.Fatal(err)
		}
		if err := batchtest.Write(b, &ledger.Batch{BatchID: "bat_1", Ops: ops}); err != nil {
			f.Fatal(err)
		}
		raw, err := msg.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	refers := batchtest.Op("put", "key", ledger.Ref{Op: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Path: "a.b"}, "payload", map[string]int{"n": 1})
	refers.DependsOn = []string{"x", "y"}
	refers.Expected = ledger.Expect{Set: true, Cursor: 7}
	seed()
	seed(batchtest.Put(1))
	seed(refers, batchtest.Put(2))
	f.Fuzz(func(t *testing.T, raw []byte) {
		msg, err := capnp.Unmarshal(raw)
		if err != nil {
			return
		}
		msg.ResetReadLimit(1 << 20)
		root, err := msg.Root()
		if err != nil {
			return
		}
		s := root.Struct()
		b, size, refused := DecodeBatch(wire.Batch(s), "ses_x", "obx_x", 1, 1<<20)
		if refused == nil {
			if size < 200*len(b.Ops) {
				t.Errorf("%d ops weigh %d", len(b.Ops), size)
			}
			for i := range b.Ops {
				if b.Ops[i].Session != "ses_x" || b.Ops[i].Atomic != b.Atomic {
					t.Errorf("op %d is not the stream's: %+v", i, b.Ops[i])
				}
				_ = b.Ops[i].Digest()
			}
		}
		_, _ = DecodeRestore(wire.Gateway_restore_Params(s))
		_, _ = capabilities(s, 0, MaxWith)
	})
}
