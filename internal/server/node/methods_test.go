// The schema's methods and the sizes of their structs, as peers call them.

package node

import (
	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/std/capnp/persistent"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/rpc"
)

var (
	gatewayHello       = rpc.Method{Interface: wire.Gateway_TypeID, ID: 0}
	gatewayRestore     = rpc.Method{Interface: wire.Gateway_TypeID, ID: 1}
	gatewayChallenge   = rpc.Method{Interface: wire.Gateway_TypeID, ID: 2}
	persistentSave     = rpc.Method{Interface: persistent.Persistent_TypeID, ID: 0}
	sessionDescribe    = rpc.Method{Interface: wire.Session_TypeID, ID: 0}
	sessionOpenStream  = rpc.Method{Interface: wire.Session_TypeID, ID: 1}
	sessionSnapshot    = rpc.Method{Interface: wire.Session_TypeID, ID: 2}
	sessionSubscribe   = rpc.Method{Interface: wire.Session_TypeID, ID: 3}
	sessionRevoke      = rpc.Method{Interface: wire.Session_TypeID, ID: 4}
	sessionEvents      = rpc.Method{Interface: wire.Session_TypeID, ID: 5}
	sessionAttenuate   = rpc.Method{Interface: wire.Session_TypeID, ID: 6}
	sessionRefs        = rpc.Method{Interface: wire.Session_TypeID, ID: 7}
	sessionRotate      = rpc.Method{Interface: wire.Session_TypeID, ID: 9}
	sessionShare       = rpc.Method{Interface: wire.Session_TypeID, ID: 10}
	sessionAudit       = rpc.Method{Interface: wire.Session_TypeID, ID: 8}
	spaceAudit         = rpc.Method{Interface: wire.Space_TypeID, ID: 7}
	subscriptionCancel = rpc.Method{Interface: wire.Subscription_TypeID, ID: 0}
	sinkEvents         = rpc.Method{Interface: wire.EventSink_TypeID, ID: 0, Name: "EventSink.events"}
	sinkState          = rpc.Method{Interface: wire.EventSink_TypeID, ID: 1, Name: "EventSink.state"}
	sinkEnded          = rpc.Method{Interface: wire.EventSink_TypeID, ID: 2, Name: "EventSink.ended"}
	spaceCreate        = rpc.Method{Interface: wire.Space_TypeID, ID: 0}
	spaceList          = rpc.Method{Interface: wire.Space_TypeID, ID: 1}
	spaceDescribe      = rpc.Method{Interface: wire.Space_TypeID, ID: 2}
	spaceAttenuate     = rpc.Method{Interface: wire.Space_TypeID, ID: 3}
	spaceShare         = rpc.Method{Interface: wire.Space_TypeID, ID: 4}
	spaceRevoke        = rpc.Method{Interface: wire.Space_TypeID, ID: 5}
	spaceRefs          = rpc.Method{Interface: wire.Space_TypeID, ID: 6}
	spaceRotate        = rpc.Method{Interface: wire.Space_TypeID, ID: 8}
	streamApply        = rpc.Method{Interface: wire.Stream_TypeID, ID: 0}
	streamAcknowledge  = rpc.Method{Interface: wire.Stream_TypeID, ID: 1}
)

// structSize returns the size of a struct, in words of data and pointers.
func structSize(data capnp.Size, pointers uint16) capnp.ObjectSize {
	return capnp.ObjectSize{DataSize: data * 8, PointerCount: pointers}
}
