// Session.open: a session below a session, under the ref of the one above.

package objects

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

func (o *sess) open(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	var r fieldReader
	id := r.text(wire.Session_open_Params(s).Session())
	refused := r.fault("the call")
	var opened *sess
	if refused == nil {
		opened, refused = o.openChild(ctx, id)
	}
	if refused != nil {
		fail(c, refused)
		return
	}
	answerObject(c, opened)
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
	auth, refused := o.auth.child(id)
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
	if grant != nil && !access.Row.Below(o.auth.session) { // below the ref's session, and not below the child that was opened by it
		if grant = nil; refused == nil {
			refused = session.NoChild()
		}
	}
	if grant == nil {
		o.service.cfg.Audit.Deny(o.conn.peer, o.auth.ref, nil, "open", refused)
		return nil, refused
	}
	return newSess(o.service, o.conn, auth), nil
}

// child returns the authority in a session below.
func (a *authority) child(id string) (*authority, *fault.Error) {
	as := &authority{session: id, ref: a.ref, reach: true, outer: a.attenuated}
	switch {
	case a.space != "" || a.manage:
		return nil, fault.MissingRight.With("the sessions below this one are opened by a ref of it that reaches them, or through the space")
	case a.reach && a.attenuated != nil:
		return nil, fault.MissingRight.With("a live capability with limits does not reach further down")
	case a.reach:
		as.outer = a.outer
	}
	return as, nil
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

// encodeCuts encodes the cuts in children.
func encodeCuts(cuts []session.ChildCut, make func(int32) (wire.ChildCut_List, error)) error {
	if len(cuts) == 0 {
		return nil
	}
	list, err := make(int32(len(cuts)))
	if err != nil {
		return err
	}
	for i, c := range cuts {
		list.At(i).SetCut(c.Cut)
		if err := list.At(i).SetSession(c.Session); err != nil {
			return err
		}
	}
	return nil
}
