// Session.revoke and Space.revoke: they revoke a ref and every ref below it without an outbox, that of a
// space in all sessions at once.

package objects

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/rpc"
)

// revoke goes through the committer like a batch, so that it is in the session's order and
// shares a transaction with other pending commits.
func (o *sess) revoke(c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_revoke_Params(s)
	var r codec.FieldReader
	ref := r.Text(p.Ref())
	answer := func(a decide.Answer) {
		reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
			r := wire.Session_revoke_Results(s)
			r.SetCut(a.Cut)
			r.SetEpoch(a.Epoch)
			r.SetChildCount(uint32(a.ChildrenCount))
			if err := codec.EncodeCuts(a.Children, r.NewChildren); err != nil {
				return err
			}
			return o.service.setRefusal(r.NewRefusal, a.Err)
		})
	}
	refused := r.Fault("the call")
	if refused == nil && ref == "" && !p.Epoch() {
		refused = fault.BadArgument.With("name the ref to revoke, or ask for the epoch")
	}
	if refused == nil {
		refused = o.queueDirect(c, &decide.Direct{Ref: ref, Epoch: p.Epoch(), TakeOver: p.TakeOver()}, answer)
	}
	if refused != nil {
		answer(decide.Answer{Err: refused})
	}
}

// queueDirect queues a commit without an outbox. If it returns a refusal, answer is not called.
func (o *sess) queueDirect(c *rpc.Call, do *decide.Direct, answer func(decide.Answer)) *fault.Error {
	sub, refused := o.auth.Direct(do, o.conn.peer)
	if refused != nil {
		return refused
	}
	return o.service.cfg.Committer.Submit(&commit.Pending{Sub: sub, Ops: 1, Bytes: 64, Caller: c.Context(), Done: answer})
}

func (o *space) revoke(c *rpc.Call) {
	s, _ := c.Params()
	var r codec.FieldReader
	ref := r.Text(wire.Space_revoke_Params(s).Ref())
	refused := r.Fault("the call")
	var died uint64
	if refused == nil {
		died, refused = o.revokeTree(ref)
	}
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Space_revoke_Results(s)
		r.SetRefs(died)
		return o.service.setRefusal(r.NewRefusal, refused)
	})
}

// revokeTree revokes ref and the tree below it. ref must be the space's own ref or below it:
// another ref of the space, or a ref of a session made under it. It returns the number of refs
// that died.
func (o *space) revokeTree(ref string) (died uint64, refused *fault.Error) {
	if capability.Target(ref) == "" {
		return 0, fault.NotFound.With("this space has no such ref")
	}
	var published *session.Published
	refused = o.updateRefs("revoke", session.ReadSet{Lineages: []string{ref}, Trees: []string{ref}},
		func(ctx context.Context, tx session.Tx, at *session.Access, rows *session.Rows) (err error) {
			own, refused := o.check(at, capability.Revoke, "revoke")
			if refused != nil {
				return refused
			}
			up := rows.Grants[ref]
			for up != nil && up.ID != own.ID {
				up = rows.Grants[up.Parent]
			}
			switch {
			case up == nil || o.attenuated != nil && ref == own.ID: // also if ref does not exist, which is not disclosed
				refused = fault.MissingRight.With("this ref may revoke only itself and refs minted below it")
				o.service.cfg.Audit.Deny(o.conn.peer, o.ref, own, "revoke", refused)
				return refused
			case rows.Grants[ref].Revoked != 0:
				return nil
			}
			died, published, err = maintain.RevokeTree(ctx, tx, own, ref, rows.Trees[ref], o.conn.peer)
			return err
		})
	if refused != nil {
		return 0, refused
	}
	o.service.notify(published)
	return died, nil
}

// notify wakes this server's subscribers of changes of a space's refs; the other replicas are notified of
// the events. published may be nil.
func (s *Service) notify(published *session.Published) {
	if published == nil {
		return
	}
	for _, p := range published.Sessions {
		s.cfg.Hub.Notify(p.Row.ID, p.Row.Cursor, p.Row.AuthGen)
	}
}
