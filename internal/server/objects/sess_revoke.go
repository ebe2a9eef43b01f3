// Session.revoke: revokes a ref, without an outbox.

package objects

import (
	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// revoke goes through the committer like a batch, so that it is in the session's order and
// shares a transaction with other pending commits.
func (o *sess) revoke(c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_revoke_Params(s)
	var r fieldReader
	ref := r.text(p.Ref())
	answer := func(a session.Answer) {
		c.Return(structSize(2, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
			r := wire.Session_revoke_Results(s)
			r.SetCut(a.Cut)
			r.SetEpoch(a.Epoch)
			return o.service.setRefusal(r.NewRefusal, a.Err)
		})
	}
	refused := r.fault("the call")
	if refused == nil && ref == "" && !p.Epoch() {
		refused = fault.BadArgument.With("name the ref to revoke, or ask for the epoch")
	}
	if refused == nil {
		refused = o.queueDirect(c, &session.Direct{Ref: ref, Epoch: p.Epoch()}, answer)
	}
	if refused != nil {
		answer(session.Answer{Err: refused})
	}
}

// queueDirect queues a commit without an outbox. If it returns a refusal, answer is not called.
func (o *sess) queueDirect(c *rpc.Call, do *session.Direct, answer func(session.Answer)) *fault.Error {
	sub, refused := o.auth.direct(do, o.conn.peer)
	if refused != nil {
		return refused
	}
	return o.service.cfg.Committer.Submit(&commit.Pending{Sub: sub, Ops: 1, Bytes: 64, Caller: c.Context(), Done: answer})
}
