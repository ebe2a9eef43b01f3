//go:build unix

package objects

import (
	"runtime"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/authority"
	"github.com/mooring-rpc/mooring/rpc"
)

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
		_, _, _, refused := (&sess{auth: &authority.Authority{}}).reading(o)
		runtime.ReadMemStats(&after)
		if (name == "keys") != (refused != nil && refused.Code == fault.BadArgument) { // names that are not known mean nothing
			t.Errorf("%s: %v", name, refused)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%s: decoding took %d KiB", name, took>>10)
		}
	}
}
