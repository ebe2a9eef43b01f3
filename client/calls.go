// The calls of capnp/mooring.capnp on the client's side. Each returns the promise at once, so
// that further calls can be pipelined on it; decode.go decodes the answers.

package client

import (
	"cmp"
	"context"
	"errors"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	sessions "github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// protocolVersion is the schema's protocolVersion that this client speaks.
const protocolVersion = wire.ProtocolVersion

// call calls a method, with the parameters that fill sets.
func call(ctx context.Context, on *rpc.Ref, m methods.Method, fill func(params capnp.Struct, caps *rpc.CapTable) error) *rpc.Promise {
	return on.Call(ctx, m.Method, m.Params, fill)
}

func callHello(ctx context.Context, gateway *rpc.Ref, agent string) *rpc.Promise {
	return call(ctx, gateway, methods.GatewayHello, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Gateway_hello_Params(s)
		p.SetVersion(protocolVersion)
		return p.SetAgent(agent)
	})
}

// understands names the features of a server that this client knows, as a reader.
var understands = sessions.AllFeatures.Names()

func callRestore(ctx context.Context, gateway *rpc.Ref, ref capability.Ref, redemption string, proof capability.Proof) *rpc.Promise {
	size := methods.GatewayRestore.Params
	if proof.Signature == nil {
		size.PointerCount = 2 // as before sealed refs; absent reads as null
	}
	return gateway.Call(ctx, methods.GatewayRestore.Method, size, func(s capnp.Struct, _ *rpc.CapTable) error {
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
	return call(ctx, gateway, methods.GatewayChallenge, nil)
}

func callCreate(ctx context.Context, space *rpc.Ref, session, owner string) *rpc.Promise {
	return call(ctx, space, methods.SpaceCreate, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Space_create_Params(s)
		if err := p.SetSession(session); err != nil {
			return err
		}
		return p.SetOwner(owner)
	})
}

func callList(ctx context.Context, space *rpc.Ref, after string, o ListOptions, limit uint32) *rpc.Promise {
	return call(ctx, space, methods.SpaceList, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Space_list_Params(s)
		p.SetLimit(limit)
		p.SetDeleted(o.Deleted)
		return errors.Join(p.SetAfter(after), p.SetOrder(string(cmp.Or(o.Order, OldestFirst))), p.SetSearch(o.Search), p.SetParent(o.Parent))
	})
}

func callOpenStream(ctx context.Context, session *rpc.Ref, outbox string, secret []byte, incarnation uint64) *rpc.Promise {
	return call(ctx, session, methods.SessionOpenStream, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_openStream_Params(s)
		p.SetIncarnation(incarnation)
		if err := p.SetOutbox(outbox); err != nil {
			return err
		}
		return p.SetSecret(secret)
	})
}

func callSnapshot(ctx context.Context, session *rpc.Ref, o SnapshotOptions, sink *rpc.Ref) *rpc.Promise {
	return call(ctx, session, methods.SessionSnapshot, func(s capnp.Struct, caps *rpc.CapTable) error {
		p := wire.Session_snapshot_Params(s)
		p.SetAt(o.At.Cursor)
		p.SetCompacted(o.Compacted)
		if err := errors.Join(o.At.encode(p.SetHash), setTexts(p.NewUnderstands, understands), setTexts(p.NewKeys, o.Keys)); err != nil {
			return err
		}
		return caps.Set(s, 0, sink)
	})
}

func callSubscribe(ctx context.Context, session *rpc.Ref, from Position, keys []string, window uint32, sink *rpc.Ref) *rpc.Promise {
	return call(ctx, session, methods.SessionSubscribe, func(s capnp.Struct, caps *rpc.CapTable) error {
		opts, err := wire.Session_subscribe_Params(s).NewOptions()
		if err != nil {
			return err
		}
		opts.SetFrom(from.Cursor)
		opts.SetWindowBytes(window)
		if err := errors.Join(from.encode(opts.SetHash), setTexts(opts.NewUnderstands, understands), setTexts(opts.NewKeys, keys)); err != nil {
			return err
		}
		return caps.Set(s, 1, sink)
	})
}

func callRevoke(ctx context.Context, session *rpc.Ref, refID string, epoch, takeOver bool) *rpc.Promise {
	return call(ctx, session, methods.SessionRevoke, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_revoke_Params(s)
		p.SetEpoch(epoch)
		p.SetTakeOver(takeOver)
		return p.SetRef(refID)
	})
}

func callEvents(ctx context.Context, session *rpc.Ref, from Position, keys []string, limit uint32) *rpc.Promise {
	return call(ctx, session, methods.SessionEvents, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_events_Params(s)
		p.SetFrom(from.Cursor)
		p.SetLimit(limit)
		return errors.Join(from.encode(p.SetHash), setTexts(p.NewUnderstands, understands), setTexts(p.NewKeys, keys))
	})
}

// callAttenuate narrows a session or, by methods.SpaceAttenuate, a space: the calls are laid out
// alike.
func callAttenuate(ctx context.Context, live *rpc.Ref, method methods.Method, o AttenuateOptions) *rpc.Promise {
	return call(ctx, live, method, func(s capnp.Struct, _ *rpc.CapTable) error {
		limits, err := wire.Session_attenuate_Params(s).NewLimits()
		if err != nil {
			return err
		}
		return encodeAttenuation(limits, o)
	})
}

func encodeAttenuation(to wire.Attenuation, o AttenuateOptions) error {
	rights := uint16(o.Rights)
	if o.ReadKeys != nil || o.WriteKeys != nil {
		rights |= wire.KeyLimits
	}
	to.SetRights(rights)
	to.SetChildren(uint16(o.Children))
	if !o.Expires.IsZero() {
		to.SetExpires(o.Expires.UnixMilli())
	}
	if o.Lifetime > 0 {
		to.SetExpires(expiryOf(o.Lifetime))
		to.SetLifetime(uint64(o.Lifetime.Milliseconds()))
	}
	to.SetFrom(o.From)
	return errors.Join(setTexts(to.NewMethods, o.Methods), setTexts(to.NewReadKeys, o.ReadKeys), setTexts(to.NewWriteKeys, o.WriteKeys), setTexts(to.NewAsk, o.AskKinds), setTexts(to.NewAnswer, o.AnswerKinds),
		to.SetMessage_(o.Message), to.SetLabel(o.Label), to.SetActor(o.Actor))
}

// setTexts sets a list of texts; nil leaves it unset.
func setTexts(make func(int32) (capnp.TextList, error), texts []string) error {
	if texts == nil {
		return nil
	}
	list, err := make(int32(len(texts)))
	for i := 0; err == nil && i < len(texts); i++ {
		err = list.Set(i, texts[i])
	}
	return err
}

// callAudit is Session.audit or Space.audit, whose parameters are laid out alike.
func callAudit(ctx context.Context, of *rpc.Ref, method methods.Method, after uint64, limit uint32) *rpc.Promise {
	return call(ctx, of, method, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_audit_Params(s)
		p.SetAfter(after)
		p.SetLimit(limit)
		return nil
	})
}

func callAcknowledge(ctx context.Context, stream *rpc.Ref, through uint64) *rpc.Promise {
	return call(ctx, stream, methods.StreamAcknowledge, func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Stream_acknowledge_Params(s).SetThrough(through)
		return nil
	})
}
