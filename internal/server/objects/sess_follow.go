// Session.subscribe: events for a peer's EventSink.

package objects

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// subscribe answers when the first read of the log has shown that the ref may read. The reason
// of a later end goes to the sink.
func (o *sess) subscribe(c *rpc.Call) {
	s, caps := c.Params()
	p := wire.Session_subscribe_Params(s)
	options, err := p.Options()
	if err != nil {
		fail(c, fault.Malformed.Because(err, "the call cannot be decoded"))
		return
	}
	sub, refused := o.newSubscription(s, caps, 1, int(options.WindowBytes()))
	if refused != nil {
		fail(c, refused)
		return
	}
	sub.cursor = options.From()
	if sub.resumeHash, refused = hashOf(options.Hash()); refused != nil {
		sub.sink.ended(nil)
		fail(c, refused)
		return
	}
	handle := rpc.NewLocal(&subscriptionObject{sub: sub})
	sub.onStart = func(refused *fault.Error) {
		if refused != nil {
			o.server.auditDenial(o.conn.peer, o.auth.ref, &capability.Grant{Actor: sub.actor}, "subscribe", refused)
			fail(c, refused)
		} else {
			o.server.recordUse(o.conn.peer, &capability.Grant{ID: o.auth.ref, Actor: sub.actor}, "subscribe", 0)
			c.Return(structSize(0, 1), func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, handle) })
		}
		handle.Release()
	}
	var first func(context.Context)
	if options.Snapshot() {
		first = func(ctx context.Context) { o.sendInitialState(ctx, sub) }
	}
	if refused := o.server.hub.subscribe(o.auth.session, sub, first); refused != nil {
		sub.sink.ended(nil)
		fail(c, refused)
		handle.Release()
	}
}

// newSubscription makes a subscription for the sink in a call's parameters.
func (o *sess) newSubscription(s capnp.Struct, caps *rpc.CapTable, pointer uint16, window int) (*subscription, *fault.Error) {
	ptr, err := s.Ptr(pointer)
	if err != nil {
		return nil, fault.Malformed.Because(err, "the call cannot be decoded")
	}
	ref := caps.Get(ptr)
	if ref == nil {
		return nil, fault.BadArgument.With("a sink is needed: the events have nowhere to go")
	}
	if window == 0 {
		window = o.server.cfg.WindowBytes
	}
	window = min(max(window, minWindow), o.server.cfg.MaxWindowBytes)
	return &subscription{auth: o.auth, conn: o.conn, window: min(initialWindow, window), windowMax: window, sink: &peerSink{ref: ref}}, nil
}

// hashOf decodes a hash that a call may name; zero if it names none.
func hashOf(b []byte, err error) (h session.Hash, refused *fault.Error) {
	switch {
	case err != nil:
		return h, fault.Malformed.Because(err, "the call cannot be decoded")
	case len(b) == 0:
		return h, nil
	case len(b) != len(h):
		return h, fault.BadArgument.With("hash is what an event has: %d bytes", len(h))
	}
	return session.Hash(b), nil
}

// minWindow is the minimum window, in bytes: with less, every event would wait for the ack of
// the one before.
const minWindow = 4 << 10

// subscriptionObject is the peer's handle of a subscription. Releasing it cancels the
// subscription.
type subscriptionObject struct{ sub *subscription }

var subscriptionCancel = rpc.Method{Interface: wire.Subscription_TypeID, ID: 0}

// Serve implements rpc.Object.
func (o *subscriptionObject) Serve(c *rpc.Call) {
	if c.Method() != subscriptionCancel {
		unknownMethod(c, "Subscription")
		return
	}
	o.sub.end(nil)
	c.Return(structSize(0, 0), nil)
}

// Release implements rpc.Releaser.
func (o *subscriptionObject) Release() { o.sub.end(nil) }
