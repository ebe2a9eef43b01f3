// Gateway, the bootstrap object: it describes the server and turns sturdy refs into live
// capabilities. It has no authority itself.

package objects

import (
	"context"
	"slices"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/server/authority"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/rpc"
)

// gateway is one connection's bootstrap object.
type gateway struct {
	service    *Service
	conn       *ConnState
	challenges authority.Challenges
}

var gatewayMethods = newMethodTable("Gateway", map[methods.Method]func(*gateway, *rpc.Call){
	methods.GatewayHello:     (*gateway).hello,
	methods.GatewayRestore:   inBackground((*gateway).restore),
	methods.GatewayChallenge: (*gateway).challenge,
})

// Serve implements rpc.Object.
func (g *gateway) Serve(c *rpc.Call) {
	g.service.cfg.Instruments.ObserveCall(c, g.service.cfg.Instruments.Gateway)
	gatewayMethods.serve(g, c)
}

// hello negotiates the lower of both sides' protocol versions.
func (g *gateway) hello(c *rpc.Call) {
	s, _ := c.Params()
	version := wire.Gateway_hello_Params(s).Version()
	if version == 0 {
		fail(c, fault.Incompatible.With("the client names no protocol version; this server speaks 1 to %d: update the client", wire.ProtocolVersion))
		return
	}
	limits := g.service.cfg.Limits
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Gateway_hello_Results(s)
		r.SetVersion(min(version, wire.ProtocolVersion))
		r.SetNow(g.service.cfg.Now().UnixMilli())
		l, err := r.NewLimits()
		if err != nil {
			return err
		}
		l.SetMessageBytes(uint64(g.service.cfg.MessageBytes))
		l.SetBatchOps(uint32(limits.BatchOps))
		l.SetBatchBytes(uint64(limits.BatchBytes))
		l.SetPayloadBytes(uint64(limits.PayloadBytes))
		l.SetBatchesInFlight(uint32(g.conn.maxBatches))
		names := append(slices.Clone(extensions), g.service.cfg.Features().Names()...)
		var w codec.FieldWriter
		w.List(r.NewFeatures, names)
		w.Do(r.SetHistory(g.service.cfg.History()))
		w.Do(r.SetServer(g.service.cfg.Name))
		return w.Err()
	})
}

// extensions names the extensions of this server to the first protocol version, which hello names
// together with the features in use.
var extensions = []string{"resume", "hints", "lifetime", "understands"}

func (g *gateway) restore(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	asked, refused := codec.DecodeRestore(wire.Gateway_restore_Params(s))
	var object rpc.Object
	if refused == nil {
		object, refused = g.redeem(ctx, asked)
	}
	switch {
	case refused == nil:
	case refused.Code == fault.UnknownRef:
		g.conn.intake.BeginThrottle()
		g.service.cfg.AuthThrottle.Respond(g.conn.peerConn, func() {
			fail(c, refused)
			g.conn.intake.EndThrottle()
		})
		return
	default:
		fail(c, refused)
		return
	}
	crashpoint.Hit(crashpoint.ServerRestoreAfter)
	cap := rpc.NewLocal(object)
	defer cap.Release()
	reply(c, func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, cap) })
}

// redeem returns the live object of a ref: a Space, or a Session. A dead session ref with the
// right secret gives a Session too, which repeats recorded outcomes and records denials.
func (g *gateway) redeem(ctx context.Context, c authority.Credential) (rpc.Object, *fault.Error) {
	grant, first, err := g.service.redeemer.Redeem(ctx, c, g.conn.peer, &g.challenges)
	if err != nil {
		return nil, fault.From(g.conn.log, err, "redeem the ref")
	}
	shown := grant.ID
	if grant.Hash == [32]byte{} { // a forgotten session's ref, of which anyone can make up others
		shown = grant.Target
	}
	g.conn.intake.Trust(shown)
	if capability.IsSpace(grant.Target) {
		return &space{service: g.service, conn: g.conn, id: grant.Target, ref: grant.ID}, nil
	}
	return newSess(g.service, g.conn, &authority.Authority{Session: grant.Target, Ref: grant.ID, FirstRedeemed: first}), nil
}

// challenge gives a nonce, which the proof of a sealed ref is for.
func (g *gateway) challenge(c *rpc.Call) {
	nonce := g.challenges.Issue(g.service.cfg.Now())
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error { return s.SetData(0, nonce) })
}
