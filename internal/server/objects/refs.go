// Listings for holders of the revoke right: the tree of refs below a ref, and the audit of the acts on
// these refs and under them.

package objects

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// maxRefs is the maximum number of refs in one answer.
const maxRefs = 500

func decodeRefsQuery(w wire.RefsQuery, err error) (q session.TreeQuery, refused *fault.Error) {
	var r codec.FieldReader
	r.Fail(err)
	q.Under, q.After = r.Text(w.Under()), r.Text(w.After())
	q.Limit = int(min(w.Limit(), maxRefs))
	return q, r.Fault("the call")
}

// refs answers with a page of the tree of the session's refs.
func (o *sess) refs(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	w, err := wire.Session_refs_Params(s).Query()
	returnTree(c, w, err, func(q session.TreeQuery) (*session.TreePage, *fault.Error) { return o.tree(ctx, q) })
}

// refs answers with a page of the tree of the space's refs.
func (o *space) refs(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	w, err := wire.Space_refs_Params(s).Query()
	returnTree(c, w, err, func(q session.TreeQuery) (*session.TreePage, *fault.Error) { return o.tree(ctx, q) })
}

// tree returns a page of the tree below the ref itself, or below a ref under it; to an owner,
// below any ref of the session.
func (o *sess) tree(ctx context.Context, q session.TreeQuery) (*session.TreePage, *fault.Error) {
	if q.Under == "" && o.auth.Manage {
		return o.trees(ctx, q)
	}
	q.Under = cmp.Or(q.Under, o.auth.Ref)
	if capability.Target(q.Under) != o.auth.Session {
		return nil, fault.NotFound.With("this session has no such ref")
	}
	page, grant, refused := o.readTree(ctx, q)
	return o.service.shownTree(o.conn, page, grant, refused)
}

// readTree reads a page of the tree below a ref of the session.
func (o *sess) readTree(ctx context.Context, q session.TreeQuery) (*session.TreePage, *capability.Grant, *fault.Error) {
	return o.service.readTree(ctx, o.conn, o.auth.Session, q, o.auth.Refs(), func(page *session.TreePage) (*capability.Grant, bool, *fault.Error) {
		grant, refused := o.check(&page.Access, capability.Revoke, "refs")
		return grant, refused == nil && (grant.Owner || slices.Contains(page.Lineage, grant.ID)) && !session.AttenuatedToKeys(page.Grants[o.auth.Ref], o.auth.Attenuated), refused
	})
}

// rootSep is, in a position among several trees, between the root of one and the position in its tree.
const rootSep = ">"

// maxTrees is the maximum number of trees of which one page has refs: each is read by a statement of its own.
const maxTrees = 64

// trees is tree under the right manage, whose ref is not one of the session: of all trees of the session, one
// after the other, that of the owner's ref that lives first.
func (o *sess) trees(ctx context.Context, q session.TreeQuery) (*session.TreePage, *fault.Error) {
	reading, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	roots, err := o.service.cfg.Store.SessionRoots(reading, o.auth.Session)
	if err != nil {
		return nil, fault.From(o.conn.log, err, "read the refs")
	}
	if len(roots) == 0 {
		return nil, fault.NotFound.With("the session has no refs")
	}
	at, after := 0, ""
	if q.After != "" {
		root, place, _ := strings.Cut(q.After, rootSep)
		if at = slices.IndexFunc(roots, func(g *capability.Grant) bool { return g.ID == root }); at < 0 {
			return nil, checkTreePage(&session.TreePage{Lineage: []string{root}, Moved: true})
		}
		after = place
	}
	limit := pageLimit(q.Limit)
	all := &session.TreePage{}
	var grant *capability.Grant
	for end := min(at+maxTrees, len(roots)); at < end && len(all.Rows) < limit; at, after = at+1, "" {
		root := roots[at].ID
		page, acting, refused := o.readTree(ctx, session.TreeQuery{Under: root, After: after, Limit: limit - len(all.Rows)})
		if refused == nil {
			refused = checkTreePage(page)
		}
		if refused != nil {
			return nil, refused
		}
		page.Rows = append(all.Rows, page.Rows...)
		all, grant = page, acting
		if page.Next != "" {
			page.Next = root + rootSep + page.Next
			break
		}
	}
	if all.Next == "" && at < len(roots) {
		all.Next = roots[at].ID + rootSep
	}
	o.service.cfg.Usage.Record(o.conn.peer, grant, "refs", cursorOf(&all.Access))
	return all, nil
}

// tree returns a page of the tree below the space's ref, or below a ref under it, including the
// refs of sessions.
func (o *space) tree(ctx context.Context, q session.TreeQuery) (*session.TreePage, *fault.Error) {
	q.Under = cmp.Or(q.Under, o.ref)
	if capability.Target(q.Under) == "" {
		return nil, fault.NotFound.With("there is no such ref here")
	}
	page, grant, refused := o.service.readTree(ctx, o.conn, "", q, []string{o.ref}, func(page *session.TreePage) (*capability.Grant, bool, *fault.Error) {
		grant, refused := o.check(&page.Access, capability.Revoke, "refs")
		return grant, slices.Contains(page.Lineage, o.ref), refused
	})
	return o.service.shownTree(o.conn, page, grant, refused)
}

// checkTreePage returns why a page that may be shown is not valid.
func checkTreePage(page *session.TreePage) *fault.Error {
	switch {
	case len(page.Lineage) == 0:
		return fault.NotFound.With("there is no such ref here")
	case page.Moved:
		return fault.Conflict.With("the ref after which the list continues was moved by a rotation, or is not in the list: list from the start")
	}
	return nil
}

// pageLimit returns how many refs a page has at most for which limit were asked for.
func pageLimit(limit int) int {
	if limit <= 0 || limit > maxRefs {
		return maxRefs
	}
	return limit
}

// readTree reads a page. admit returns the caller's grant, which readTree returns, and whether that shows the page.
func (s *Service) readTree(ctx context.Context, from *ConnState, id string, q session.TreeQuery, refs []string,
	admit func(*session.TreePage) (grant *capability.Grant, shows bool, refused *fault.Error)) (*session.TreePage, *capability.Grant, *fault.Error) {
	q.Limit = pageLimit(q.Limit)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	s.cfg.Usage.FlushIfStale(ctx)
	page, err := s.cfg.Store.ReadTree(ctx, id, q, refs)
	if err != nil {
		return nil, nil, fault.From(from.log, err, "read the refs")
	}
	grant, shows, refused := admit(page)
	if refused == nil && !shows {
		refused = fault.MissingRight.With("this ref shows only itself and refs minted below it")
	}
	return page, grant, refused
}

// shownTree records that a page was shown, and returns it if it is valid.
func (s *Service) shownTree(from *ConnState, page *session.TreePage, grant *capability.Grant, refused *fault.Error) (*session.TreePage, *fault.Error) {
	if refused == nil {
		s.cfg.Usage.Record(from.peer, grant, "refs", cursorOf(&page.Access))
		refused = checkTreePage(page)
	}
	return page, refused
}

// returnTree answers a refs call; its results are the same for sessions and spaces.
func returnTree(c *rpc.Call, w wire.RefsQuery, err error, read func(session.TreeQuery) (*session.TreePage, *fault.Error)) {
	q, refused := decodeRefsQuery(w, err)
	var page *session.TreePage
	if refused == nil {
		page, refused = read(q)
	}
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Session_refs_Results(s)
		r.SetMore(page.Next != "")
		if err := r.SetNext(page.Next); err != nil {
			return err
		}
		return codec.EncodeList(r.NewRefs, page.Rows, func(to wire.RefInfo, row session.TreeRow) error {
			return codec.EncodeTreeRow(to, &row, page.Now)
		})
	})
}

// maxAuditPage is the maximum number of rows in one answer.
const maxAuditPage = 1000

func (o *sess) audit(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_audit_Params(s)
	page, refused := o.readAudit(ctx, p.After(), p.Limit())
	answerAudit(c, page, refused)
}

func (o *space) audit(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Space_audit_Params(s)
	page, refused := o.readAudit(ctx, p.After(), p.Limit())
	answerAudit(c, page, refused)
}

// readAudit returns a page of the session's audit to its owner.
func (o *sess) readAudit(ctx context.Context, after uint64, limit uint32) (*session.AuditPage, *fault.Error) {
	return o.service.readAudit(ctx, o.conn, o.auth.Session, after, limit, o.auth.Refs(), func(at *session.Access) (*capability.Grant, *fault.Error) {
		grant, refused := o.auth.Check(at, 0)
		if grant != nil && refused != nil && refused.Code == fault.SessionDeleted {
			refused = nil // a deleted session's audit stays readable
		}
		if refused == nil && !grant.Owner {
			refused = fault.NotAnOwner.With("only the session's owner ref shows its audit")
		}
		return grant, refused
	})
}

// readAudit returns a page of the space's audit to its root ref.
func (o *space) readAudit(ctx context.Context, after uint64, limit uint32) (*session.AuditPage, *fault.Error) {
	return o.service.readAudit(ctx, o.conn, o.id, after, limit, []string{o.ref}, func(at *session.Access) (*capability.Grant, *fault.Error) {
		grant, refused := o.grant(at, capability.Revoke)
		if refused == nil && (grant.Parent != "" || o.attenuated != nil) {
			refused = fault.MissingRight.With("only the space's root ref shows its audit, this one was made from another")
		}
		return grant, refused
	})
}

// readAudit reads at most limit rows (0: as many as one answer has) of target's audit. refs has the
// caller's ref alone. admit decides in the page's snapshot whether the caller's grant, which it
// returns, shows the audit.
func (s *Service) readAudit(ctx context.Context, from *ConnState, target string, after uint64, limit uint32, refs []string,
	admit func(*session.Access) (*capability.Grant, *fault.Error)) (*session.AuditPage, *fault.Error) {
	if limit == 0 || limit > maxAuditPage {
		limit = maxAuditPage
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	page, err := s.cfg.Store.ReadAudit(ctx, target, after, int(limit), refs)
	if err != nil {
		return nil, fault.From(from.log, err, "read the audit")
	}
	grant, refused := admit(&page.Access)
	if refused != nil {
		s.cfg.Audit.Deny(from.peer, refs[0], grant, "audit", refused)
		return nil, refused
	}
	s.cfg.Usage.Record(from.peer, grant, "audit", cursorOf(&page.Access))
	return page, nil
}

func answerAudit(c *rpc.Call, page *session.AuditPage, refused *fault.Error) {
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		to, err := wire.NewAuditPage(s.Segment())
		if err != nil {
			return err
		}
		if err := codec.EncodeAuditPage(to, page); err != nil {
			return err
		}
		return s.SetPtr(0, to.ToPtr())
	})
}
