// refs: the tree of refs below one, for who may revoke them.

package server

import (
	"cmp"
	"context"
	"slices"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/session"
)

// refsMax is the most refs one answer lists.
const refsMax = 500

// refsQuery is what is asked of a tree.
type refsQuery struct {
	under, after string
	limit        int
}

// decodeRefsQuery reads a query. under is own's id where it names none.
func decodeRefsQuery(w wire.RefsQuery, err error, own string) (q refsQuery, refused *fault.Error) {
	var r reader
	r.failed(err)
	q.under, q.after = r.text(w.Under()), r.text(w.After())
	q.under = cmp.Or(q.under, own)
	q.limit = int(min(w.Limit(), refsMax))
	if q.limit == 0 {
		q.limit = refsMax
	}
	return q, r.fault("the call")
}

// refs gives the tree below the ref itself or one below that; to an owner, below
// any of the session's.
func (o *sess) refs(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	w, err := wire.Session_refs_Params(s).Query()
	q, refused := decodeRefsQuery(w, err, o.auth.ref)
	if refused == nil && capability.Target(q.under) != o.auth.session {
		refused = fault.NotFound.With("this session has no such ref")
	}
	o.server.giveTree(ctx, c, o.link.peer, o.auth.session, q, refused, o.auth.refs(), func(page *session.TreePage) (*capability.Grant, bool, *fault.Error) {
		grant, refused := o.check(&page.Sight, capability.Revoke, "refs")
		return grant, refused == nil && (grant.Owner || slices.Contains(page.Line, grant.ID)) && !session.Beside(page.Grants[o.auth.ref], o.auth.narrow), refused
	})
}

// refs gives the tree below the space's ref or one below that, the sessions' refs
// among them.
func (o *space) refs(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	w, err := wire.Space_refs_Params(s).Query()
	q, refused := decodeRefsQuery(w, err, o.ref)
	if refused == nil && capability.Target(q.under) == "" {
		refused = fault.NotFound.With("there is no such ref here")
	}
	o.server.giveTree(ctx, c, o.link.peer, "", q, refused, []string{o.ref}, func(page *session.TreePage) (*capability.Grant, bool, *fault.Error) {
		grant, refused := o.check(&page.Sight, capability.Revoke, "refs")
		return grant, slices.Contains(page.Line, o.ref), refused
	})
}

// shown says why a page that may be seen cannot be.
func shown(page *session.TreePage) *fault.Error {
	switch {
	case len(page.Line) == 0:
		return fault.NotFound.With("there is no such ref here")
	case page.Cut:
		return fault.TooLarge.With("there are more than %d refs below this one: ask for those below one of them, which the log and its maker know, or cut it whole", session.TreeMax)
	}
	return nil
}

// giveTree answers refs, which has the same results for sessions and spaces, unless it
// is refused already. admit gives the ref that asks, and says whether that shows the page.
func (s *Server) giveTree(ctx context.Context, c *rpc.Call, peer, id string, q refsQuery, refused *fault.Error, refs []string,
	admit func(*session.TreePage) (grant *capability.Grant, shows bool, refused *fault.Error)) {
	if refused != nil {
		fail(c, refused)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	s.uses.show(ctx)
	page, err := s.cfg.Store.ReadTree(ctx, id, q.under, q.after, q.limit, refs)
	if err != nil {
		fail(c, toFault(s.log, err, "read the refs"))
		return
	}
	grant, shows, refused := admit(page)
	if refused == nil && !shows {
		refused = fault.MissingRight.With("this ref shows itself and what was minted below it; that one is not")
	}
	if refused == nil {
		s.used(peer, grant, "refs", cursorOf(&page.Sight))
		refused = shown(page)
	}
	if refused != nil {
		fail(c, refused)
		return
	}
	c.Return(words(1, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Session_refs_Results(s)
		r.SetMore(page.More)
		list, err := r.NewRefs(int32(len(page.Rows)))
		if err != nil {
			return err
		}
		for i := range page.Rows {
			if err := encodeTreeRow(list.At(i), &page.Rows[i], page.Now); err != nil {
				return err
			}
		}
		return nil
	})
}

func encodeTreeRow(to wire.RefInfo, r *session.TreeRow, now int64) error {
	var w writer
	to.SetCreated(r.Grant.Created)
	to.SetLastUsed(r.Last)
	to.SetUses(r.Uses)
	to.SetRevoked(r.Grant.Revoked)
	w.text(to.SetParent, r.Grant.Parent)
	w.text(to.SetRevokedBy, r.Grant.RevokeBy)
	info, err := to.NewGrant()
	w.do(err)
	if w.err == nil {
		w.do(encodeGrantInfo(info, r.Grant, r.Epoch, now))
	}
	return w.err
}
