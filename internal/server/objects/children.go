// Session.children and Session.open: the sessions that were created under a session, and one below it under the ref of
// the one above.

package objects

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// listChildren reads a page of what the ref shows of the session's children: at most maxList.
func (o *sess) listChildren(ctx context.Context, after string, limit int) (*session.ListPage, *fault.Error) {
	if limit <= 0 || limit > maxList {
		limit = maxList
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	page, err := o.service.cfg.Store.ReadChildren(ctx, o.auth.Session, after, limit, o.auth.Refs(), o.admit("children", nil))
	return page, fault.From(o.conn.log, err, "list the session's children")
}

// Children returns a page of what the ref shows of the session's children. It needs the right to read.
func (h *Capability) Children(ctx context.Context, after string, limit int) (page *session.ListPage, err error) {
	o, refused := h.session()
	if refused == nil {
		page, refused = o.listChildren(ctx, after, limit)
	}
	return page, errOrNil(refused)
}

func (o *sess) children(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_children_Params(s)
	var r codec.FieldReader
	after := r.Text(p.After())
	refused := r.Fault("the call")
	var page *session.ListPage
	if refused == nil {
		page, refused = o.listChildren(ctx, after, int(p.Limit()))
	}
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		res := wire.Session_children_Results(s)
		res.SetMore(page.Next != "")
		if err := res.SetNext(page.Next); err != nil {
			return err
		}
		return codec.EncodeSessions(page, res.NewSessions)
	})
}

func (o *sess) open(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	var r codec.FieldReader
	id := r.Text(wire.Session_open_Params(s).Session())
	refused := r.Fault("the call")
	var opened *sess
	if refused == nil {
		opened, refused = o.openChild(ctx, id)
	}
	answerObject(c, refused, opened)
}

// openChild returns the object of a session below this one, under this one's ref and with its rights in
// children. It is returned for a dead ref too, and its methods refuse what is to be refused: an outbox learns
// what was recorded.
func (o *sess) openChild(ctx context.Context, id string) (*sess, *fault.Error) {
	if !capability.IsSession(id) {
		return nil, fault.BadArgument.With("a session's id is %s and a ULID", capability.SessionPrefix)
	}
	if refused := session.CheckFeatures(session.FeatureReach, o.service.cfg.Features()); refused != nil {
		return nil, refused
	}
	auth, refused := o.auth.Child(id)
	if refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	access, err := o.service.cfg.Store.ReadAccess(ctx, id, auth.Refs())
	if err != nil {
		return nil, fault.From(o.conn.log, err, "open the session")
	}
	grant, refused := auth.Check(access, 0)
	if grant != nil && !access.Row.Below(o.auth.Session) { // below the ref's session, and not below the child that was opened by it
		if grant = nil; refused == nil {
			refused = session.NoChild()
		}
	}
	if grant == nil {
		o.service.cfg.Audit.Deny(o.conn.peer, o.auth.Ref, nil, "open", refused)
		return nil, refused
	}
	return newSess(o.service, o.conn, auth), nil
}

// OpenChild returns the capability of a session below a session, under the session's ref and with its rights in
// children.
func (h *Capability) OpenChild(ctx context.Context, id string) (*Capability, error) {
	o, refused := h.session()
	if refused == nil {
		o, refused = o.openChild(ctx, id)
	}
	if refused != nil {
		return nil, refused
	}
	return &Capability{caller: h.caller, ref: h.ref, sess: o}, nil
}
