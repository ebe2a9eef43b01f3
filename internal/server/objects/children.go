// Session.children: the sessions that were created under a session.

package objects

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
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
	page, err := o.service.cfg.Store.ReadChildren(ctx, o.auth.session, after, limit, o.auth.Refs(), o.admit("children", nil))
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
	var r fieldReader
	after := r.text(p.After())
	refused := r.fault("the call")
	var page *session.ListPage
	if refused == nil {
		page, refused = o.listChildren(ctx, after, int(p.Limit()))
	}
	if refused != nil {
		fail(c, refused)
		return
	}
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
		res := wire.Session_children_Results(s)
		res.SetMore(page.Next != "")
		if err := res.SetNext(page.Next); err != nil {
			return err
		}
		return encodeSessions(page, res.NewSessions)
	})
}
