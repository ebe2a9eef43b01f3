// The calls of the schema that a connection and its streams make. Each returns the promise at once, so that further calls can be
// pipelined on it.

package serverconn

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/rpc"
)

// protocolVersion is the schema's protocolVersion that this client speaks.
const protocolVersion = wire.ProtocolVersion

func callHello(ctx context.Context, gateway *rpc.Ref, agent string) *rpc.Promise {
	return calls.Make(ctx, gateway, methods.GatewayHello, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Gateway_hello_Params(s)
		p.SetVersion(protocolVersion)
		return p.SetAgent(agent)
	})
}

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
	return calls.Make(ctx, gateway, methods.GatewayChallenge, nil)
}

func callCreate(ctx context.Context, space *rpc.Ref, session, owner string) *rpc.Promise {
	return calls.Make(ctx, space, methods.SpaceCreate, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Space_create_Params(s)
		if err := p.SetSession(session); err != nil {
			return err
		}
		return p.SetOwner(owner)
	})
}

// CallOpenStream opens an outbox's stream of a session.
func CallOpenStream(ctx context.Context, session *rpc.Ref, outbox string, secret []byte, incarnation uint64) *rpc.Promise {
	return calls.Make(ctx, session, methods.SessionOpenStream, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_openStream_Params(s)
		p.SetIncarnation(incarnation)
		if err := p.SetOutbox(outbox); err != nil {
			return err
		}
		return p.SetSecret(secret)
	})
}

// CallAcknowledge says that the outcomes of a stream's ops are stored, up to a seq.
func CallAcknowledge(ctx context.Context, stream *rpc.Ref, through uint64) *rpc.Promise {
	return calls.Make(ctx, stream, methods.StreamAcknowledge, func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Stream_acknowledge_Params(s).SetThrough(through)
		return nil
	})
}
