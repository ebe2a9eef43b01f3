// The methods of internal/testschema/interop.capnp, and calling them with our vat.

package interop

import (
	"context"

	"capnproto.org/go/capnp/v3"

	wire "github.com/mooring-rpc/mooring/internal/testschema/interop"
	"github.com/mooring-rpc/mooring/rpc"
)

var (
	nodeName  = rpc.Method{Interface: wire.Node_TypeID, ID: 0}
	nodeChild = rpc.Method{Interface: wire.Node_TypeID, ID: 1}
	nodeNote  = rpc.Method{Interface: wire.Node_TypeID, ID: 2}
	nodeNoted = rpc.Method{Interface: wire.Node_TypeID, ID: 3}

	peerEcho      = rpc.Method{Interface: wire.Peer_TypeID, ID: 0}
	peerMake      = rpc.Method{Interface: wire.Peer_TypeID, ID: 1}
	peerMakeLater = rpc.Method{Interface: wire.Peer_TypeID, ID: 2}
	peerPromise   = rpc.Method{Interface: wire.Peer_TypeID, ID: 3}
	peerSettle    = rpc.Method{Interface: wire.Peer_TypeID, ID: 4}
	peerHold      = rpc.Method{Interface: wire.Peer_TypeID, ID: 5}
	peerHeld      = rpc.Method{Interface: wire.Peer_TypeID, ID: 6}
	peerCallBack  = rpc.Method{Interface: wire.Peer_TypeID, ID: 7}
	peerFail      = rpc.Method{Interface: wire.Peer_TypeID, ID: 8}
	peerNever     = rpc.Method{Interface: wire.Peer_TypeID, ID: 9}
	peerCounts    = rpc.Method{Interface: wire.Peer_TypeID, ID: 10}
	peerOpen      = rpc.Method{Interface: wire.Peer_TypeID, ID: 11}

	sinkWrite = rpc.Method{Interface: wire.Sink_TypeID, ID: 0}
	sinkDone  = rpc.Method{Interface: wire.Sink_TypeID, ID: 1}

	strangerGreet = rpc.Method{Interface: wire.Stranger_TypeID, ID: 0}
)

// words is a struct's size: words of data and pointers.
func words(data, pointers uint16) capnp.ObjectSize {
	return capnp.ObjectSize{DataSize: capnp.Size(data) * 8, PointerCount: pointers}
}

// text fills in a struct's only text.
func text(s string) func(capnp.Struct, *rpc.CapTable) error {
	return func(to capnp.Struct, _ *rpc.CapTable) error { return to.SetText(0, s) }
}

// capOf fills in a struct's only capability.
func capOf(r *rpc.Ref) func(capnp.Struct, *rpc.CapTable) error {
	return func(to capnp.Struct, caps *rpc.CapTable) error { return caps.Set(to, 0, r) }
}

// note calls note.
func note(ctx context.Context, r *rpc.Ref, n uint32) *rpc.Promise {
	return r.Call(ctx, nodeNote, words(1, 0), func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Node_note_Params(s).SetNumber(n)
		return nil
	})
}
