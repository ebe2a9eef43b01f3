// The calls of capnp/mooring.capnp on the client's side. Each returns the promise at once, so
// that further calls can be pipelined on it; decode.go decodes the answers.

package client

import (
	"cmp"
	"context"
	"errors"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/std/capnp/persistent"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/rpc"
)

// protocolVersion is the schema's protocolVersion that this client speaks.
const protocolVersion = wire.ProtocolVersion

var (
	methodHello          = rpc.Method{Interface: wire.Gateway_TypeID, ID: 0, Name: "Gateway.hello"}
	methodRestore        = rpc.Method{Interface: wire.Gateway_TypeID, ID: 1, Name: "Gateway.restore"}
	methodChallenge      = rpc.Method{Interface: wire.Gateway_TypeID, ID: 2, Name: "Gateway.challenge"}
	methodCreate         = rpc.Method{Interface: wire.Space_TypeID, ID: 0, Name: "Space.create"}
	methodList           = rpc.Method{Interface: wire.Space_TypeID, ID: 1, Name: "Space.list"}
	methodSpaceDescribe  = rpc.Method{Interface: wire.Space_TypeID, ID: 2, Name: "Space.describe"}
	methodDescribe       = rpc.Method{Interface: wire.Session_TypeID, ID: 0, Name: "Session.describe"}
	methodOpenStream     = rpc.Method{Interface: wire.Session_TypeID, ID: 1, Name: "Session.openStream"}
	methodSnapshot       = rpc.Method{Interface: wire.Session_TypeID, ID: 2, Name: "Session.snapshot"}
	methodSubscribe      = rpc.Method{Interface: wire.Session_TypeID, ID: 3, Name: "Session.subscribe"}
	methodRevoke         = rpc.Method{Interface: wire.Session_TypeID, ID: 4, Name: "Session.revoke"}
	methodEvents         = rpc.Method{Interface: wire.Session_TypeID, ID: 5, Name: "Session.events"}
	methodAttenuate      = rpc.Method{Interface: wire.Session_TypeID, ID: 6, Name: "Session.attenuate"}
	methodSpaceAttenuate = rpc.Method{Interface: wire.Space_TypeID, ID: 3, Name: "Space.attenuate"}
	methodAudit          = rpc.Method{Interface: wire.Session_TypeID, ID: 8, Name: "Session.audit"}
	methodSpaceAudit     = rpc.Method{Interface: wire.Space_TypeID, ID: 7, Name: "Space.audit"}
	methodApply          = rpc.Method{Interface: wire.Stream_TypeID, ID: 0, Name: "Stream.apply"}
	methodSave           = rpc.Method{Interface: persistent.Persistent_TypeID, ID: 0, Name: "Persistent.save"}
	methodAcknowledge    = rpc.Method{Interface: wire.Stream_TypeID, ID: 1, Name: "Stream.acknowledge"}
)

// structSize returns the size of a parameter struct, in the layout of the schema's compiler.
func structSize(data capnp.Size, pointers uint16) capnp.ObjectSize {
	return capnp.ObjectSize{DataSize: data * 8, PointerCount: pointers}
}

func callHello(ctx context.Context, gateway *rpc.Ref, agent string) *rpc.Promise {
	return gateway.Call(ctx, methodHello, structSize(1, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Gateway_hello_Params(s)
		p.SetVersion(protocolVersion)
		return p.SetAgent(agent)
	})
}

func callRestore(ctx context.Context, gateway *rpc.Ref, ref capability.Ref, redemption string, proof capability.Proof) *rpc.Promise {
	pointers := uint16(2) // without a proof, as before sealed refs; absent reads as null
	if proof.Signature != nil {
		pointers = 3
	}
	return gateway.Call(ctx, methodRestore, structSize(0, pointers), func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Gateway_restore_Params(s)
		sturdy, err := p.NewRef()
		if err != nil {
			return err
		}
		if err := sturdy.SetId(ref.ID); err != nil {
			return err
		}
		if err := sturdy.SetSecret(ref.Secret.Reveal()); err != nil {
			return err
		}
		if err := p.SetRedemption(redemption); err != nil || proof.Signature == nil {
			return err
		}
		shown, err := p.NewProof()
		if err != nil {
			return err
		}
		if err := shown.SetNonce(proof.Nonce); err != nil {
			return err
		}
		if err := shown.SetAudience(proof.Audience); err != nil {
			return err
		}
		return shown.SetSignature(proof.Signature)
	})
}

func callChallenge(ctx context.Context, gateway *rpc.Ref) *rpc.Promise {
	return gateway.Call(ctx, methodChallenge, structSize(0, 0), nil)
}

func callCreate(ctx context.Context, space *rpc.Ref, session, owner string) *rpc.Promise {
	return space.Call(ctx, methodCreate, structSize(0, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Space_create_Params(s)
		if err := p.SetSession(session); err != nil {
			return err
		}
		return p.SetOwner(owner)
	})
}

func callList(ctx context.Context, space *rpc.Ref, after string, o ListOptions, limit uint32) *rpc.Promise {
	return space.Call(ctx, methodList, structSize(1, 3), func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Space_list_Params(s)
		p.SetLimit(limit)
		p.SetDeleted(o.Deleted)
		return errors.Join(p.SetAfter(after), p.SetOrder(string(cmp.Or(o.Order, OldestFirst))), p.SetSearch(o.Search))
	})
}

func callOpenStream(ctx context.Context, session *rpc.Ref, outbox string, secret []byte, incarnation uint64) *rpc.Promise {
	return session.Call(ctx, methodOpenStream, structSize(1, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_openStream_Params(s)
		p.SetIncarnation(incarnation)
		if err := p.SetOutbox(outbox); err != nil {
			return err
		}
		return p.SetSecret(secret)
	})
}

func callSnapshot(ctx context.Context, session *rpc.Ref, at Position, sink *rpc.Ref) *rpc.Promise {
	return session.Call(ctx, methodSnapshot, structSize(1, 2), func(s capnp.Struct, caps *rpc.CapTable) error {
		p := wire.Session_snapshot_Params(s)
		p.SetAt(at.Cursor)
		if err := at.encode(p.SetHash); err != nil {
			return err
		}
		return caps.Set(s, 0, sink)
	})
}

func callSubscribe(ctx context.Context, session *rpc.Ref, from Position, window uint32, sink *rpc.Ref) *rpc.Promise {
	return session.Call(ctx, methodSubscribe, structSize(0, 2), func(s capnp.Struct, caps *rpc.CapTable) error {
		opts, err := wire.Session_subscribe_Params(s).NewOptions()
		if err != nil {
			return err
		}
		opts.SetFrom(from.Cursor)
		opts.SetWindowBytes(window)
		if err := from.encode(opts.SetHash); err != nil {
			return err
		}
		return caps.Set(s, 1, sink)
	})
}

func callRevoke(ctx context.Context, session *rpc.Ref, refID string, epoch bool) *rpc.Promise {
	return session.Call(ctx, methodRevoke, structSize(1, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_revoke_Params(s)
		p.SetEpoch(epoch)
		return p.SetRef(refID)
	})
}

func callEvents(ctx context.Context, session *rpc.Ref, from Position, limit uint32) *rpc.Promise {
	return session.Call(ctx, methodEvents, structSize(2, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_events_Params(s)
		p.SetFrom(from.Cursor)
		p.SetLimit(limit)
		return from.encode(p.SetHash)
	})
}

// callAttenuate narrows a session or, by methodSpaceAttenuate, a space: the calls are laid out
// alike.
func callAttenuate(ctx context.Context, live *rpc.Ref, method rpc.Method, o AttenuateOptions) *rpc.Promise {
	return live.Call(ctx, method, structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		limits, err := wire.Session_attenuate_Params(s).NewLimits()
		if err != nil {
			return err
		}
		return encodeAttenuation(limits, o)
	})
}

func encodeAttenuation(to wire.Attenuation, o AttenuateOptions) error {
	to.SetRights(uint16(o.Rights))
	if !o.Expires.IsZero() {
		to.SetExpires(o.Expires.UnixMilli())
	}
	if o.Lifetime > 0 {
		to.SetExpires(expiryOf(o.Lifetime))
		to.SetLifetime(uint64(o.Lifetime.Milliseconds()))
	}
	to.SetFrom(o.From)
	if o.Methods != nil {
		list, err := to.NewMethods(int32(len(o.Methods)))
		if err != nil {
			return err
		}
		for i, m := range o.Methods {
			if err := list.Set(i, m); err != nil {
				return err
			}
		}
	}
	if err := to.SetMessage_(o.Message); err != nil {
		return err
	}
	if err := to.SetLabel(o.Label); err != nil {
		return err
	}
	return to.SetActor(o.Actor)
}

// callAudit is Session.audit or Space.audit, whose parameters are laid out alike.
func callAudit(ctx context.Context, of *rpc.Ref, method rpc.Method, after uint64, limit uint32) *rpc.Promise {
	return of.Call(ctx, method, structSize(2, 0), func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_audit_Params(s)
		p.SetAfter(after)
		p.SetLimit(limit)
		return nil
	})
}

func callAcknowledge(ctx context.Context, stream *rpc.Ref, through uint64) *rpc.Promise {
	return stream.Call(ctx, methodAcknowledge, structSize(1, 0), func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Stream_acknowledge_Params(s).SetThrough(through)
		return nil
	})
}
