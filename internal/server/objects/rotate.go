// rotate: replaces an owner's ref, or a space's root ref, by a new ref whose secret a client has
// made.

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

// decodeRotation decodes the new ref's id and hash.
func decodeRotation(id string, err error, hash []byte, hashErr error) (session.Rotation, *fault.Error) {
	var r fieldReader
	to := session.Rotation{ID: r.text(id, err)}
	sum := r.data(hash, hashErr)
	refused := r.fault("the call")
	if refused == nil && len(sum) != len(to.Hash) {
		refused = fault.BadArgument.With("the hash of a ref's secret has %d bytes", len(to.Hash))
	}
	copy(to.Hash[:], sum)
	if refused == nil {
		refused = capability.CheckClientMade(to.ID)
	}
	return to, refused
}

// rotate goes through the committer like a batch, so that it is in the session's order and its
// cut is exact.
func (o *sess) rotate(c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_rotate_Params(s)
	id, err := p.Ref()
	hash, hashErr := p.Hash()
	to, refused := decodeRotation(id, err, hash, hashErr)
	if refused == nil && capability.Target(to.ID) != o.auth.session {
		refused = fault.BadArgument.With("the new ref's id is not one for %s", o.auth.session)
	}
	answer := func(a session.Answer) {
		c.Return(structSize(1, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
			r := wire.Session_rotate_Results(s)
			r.SetCut(a.Cut)
			return o.service.setRefusal(r.NewRefusal, a.Err)
		})
	}
	if refused == nil {
		refused = o.queueDirect(c, &session.Direct{Rotate: &to}, answer)
	}
	if refused != nil {
		answer(session.Answer{Err: refused})
	}
}

func (o *space) rotate(c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Space_rotate_Params(s)
	id, err := p.Ref()
	hash, hashErr := p.Hash()
	to, refused := decodeRotation(id, err, hash, hashErr)
	if refused == nil && capability.Target(to.ID) != o.id {
		refused = fault.BadArgument.With("the new ref's id is not one for %s", o.id)
	}
	if refused == nil {
		refused = o.updateRefs("rotate", session.ReadSet{Grants: []string{to.ID}},
			func(ctx context.Context, tx session.Tx, at *session.Access, rows *session.Rows) error {
				return o.rotateRoot(ctx, tx, at, to)
			})
	}
	c.Return(structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		return o.service.setRefusal(wire.Space_rotate_Results(s).NewRefusal, refused)
	})
}

// rotateRoot rotates the space's root ref. A repeated call with the same new ref, through the old
// one, changes nothing.
func (o *space) rotateRoot(ctx context.Context, tx session.Tx, at *session.Access, to session.Rotation) error {
	there := at.Grants[to.ID]
	if o.attenuated == nil && capability.AlreadyRotated(at.Grants[o.ref], there, to.ID, to.Hash) {
		return nil
	}
	old, refused := o.check(at, 0, "rotate")
	switch {
	case refused != nil:
		return refused
	case old.Parent != "" || o.attenuated != nil:
		refused = fault.NotAnOwner.With("only the space's root ref may be rotated: revoke this one and have its giver share another")
		o.service.cfg.Audit.Deny(o.conn.peer, o.ref, old, "rotate", refused)
		return refused
	case there != nil:
		return fault.AlreadyExists.With("there is a ref with this id already")
	}
	g, refused := capability.Rotate(old, to.ID, to.Hash, at.Now)
	if refused != nil {
		return refused
	}
	return tx.Save(ctx, &session.Changes{
		Grants: []*capability.Grant{g},
		Rotate: []session.RotatedGrant{{ID: old.ID, By: g.ID, At: at.Now}},
		Audit:  []*capability.AuditRow{{Target: o.id, At: at.Now, Act: capability.AuditRotate, Ref: old.ID, Actor: old.Actor, Subject: g.ID, Peer: o.conn.peer}},
	})
}
