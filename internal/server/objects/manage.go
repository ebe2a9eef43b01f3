// Space.open: a session of the space, under the space's ref, by the right manage.

package objects

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/authority"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/rpc"
)

func (o *space) open(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	var r codec.FieldReader
	id := r.Text(wire.Space_open_Params(s).Session())
	refused := r.Fault("the call")
	var opened *sess
	if refused == nil {
		opened, refused = o.openSession(ctx, id)
	}
	answerObject(c, refused, opened)
}

// openSession returns the object of a session of the space, under the space's ref. The first time it
// records that, so that the session gets a cut when the ref ends. A session that the ref has opened
// before is returned whatever has become of the ref, and its methods refuse what is to be refused: an
// outbox learns what was recorded.
func (o *space) openSession(ctx context.Context, id string) (*sess, *fault.Error) {
	if !capability.IsSession(id) {
		return nil, fault.BadArgument.With("a session's id is %s and a ULID", capability.SessionPrefix)
	}
	if refused := session.CheckFeatures(session.FeatureManage, o.service.cfg.Features()); refused != nil {
		return nil, refused
	}
	auth := &authority.Authority{Session: id, Ref: o.ref, Manage: true, Outer: o.attenuated}
	reading, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	access, before, err := o.service.cfg.Store.FindManaged(reading, id, o.ref)
	if err != nil {
		return nil, fault.From(o.conn.log, err, "open the session")
	}
	if before {
		return newSess(o.service, o.conn, auth), nil
	}
	check := func(at *session.Access) *fault.Error {
		grant, refused := auth.Check(at, 0)
		if refused != nil {
			o.service.cfg.Audit.Deny(o.conn.peer, o.ref, grant, "open", refused)
		}
		return refused
	}
	if refused := check(access); refused != nil {
		return nil, refused
	}
	commit, cancel := o.service.commitContext()
	defer cancel()
	err = o.service.cfg.Store.Update(commit, func(tx session.Tx) (err error) {
		defer admission.RecoverPanic(&err)
		rows, err := tx.Load(commit, &session.ReadSet{Spaces: []string{o.id}, Grants: []string{o.ref}})
		if err != nil {
			return err
		}
		at := &session.Access{Now: rows.Now, Row: access.Row, Grants: rows.Grants}
		if refused := check(at); refused != nil {
			return refused
		}
		return maintain.OpenManaged(commit, tx, access.Row, rows.Grants[o.ref], rows.Now, o.conn.peer)
	})
	if err != nil {
		return nil, fault.From(o.conn.log, err, "open the session")
	}
	return newSess(o.service, o.conn, auth), nil
}

// Open returns the capability of a session of a space, with all rights and under the space's ref, which
// needs the right manage.
func (h *Capability) Open(ctx context.Context, id string) (*Capability, error) {
	if h.space == nil {
		return nil, fault.BadArgument.With("the ref is one of a session: name a space's")
	}
	o, refused := h.space.openSession(ctx, id)
	if refused != nil {
		return nil, refused
	}
	return &Capability{caller: h.caller, ref: h.ref, sess: o}, nil
}

// findReplaced sets the owner's ref that a rotation under manage replaces: the one that lives, or the one
// that the same rotation has replaced before.
func (o *sess) findReplaced(ctx context.Context, to *decide.Rotation) *fault.Error {
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	roots, err := o.service.cfg.Store.SessionRoots(ctx, o.auth.Session)
	if err != nil {
		return fault.From(o.conn.log, err, "look up the session's owner")
	}
	for _, g := range roots {
		switch {
		case g.Owner && g.RevokedBy == to.ID:
			to.Old = g.ID
			return nil
		case g.Owner && g.Revoked == 0:
			to.Old = g.ID
		}
	}
	return nil
}
