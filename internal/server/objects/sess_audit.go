// Session.audit and Space.audit: pages of the acts on refs and under them.

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

var (
	sessionAudit = rpc.Method{Interface: wire.Session_TypeID, ID: 8}
	spaceAudit   = rpc.Method{Interface: wire.Space_TypeID, ID: 7}
)

// maxAuditPage is the maximum number of rows in one answer.
const maxAuditPage = 1000

// audit returns a page of the session's audit to its owner.
func (o *sess) audit(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_audit_Params(s)
	answerAudit(ctx, o.service, c, o.auth.session, p.After(), p.Limit(), o.auth.Refs(), func(at *session.Access) *fault.Error {
		grant, refused := o.auth.Check(at, 0)
		if grant != nil && refused != nil && refused.Code == fault.SessionDeleted {
			refused = nil // a deleted session's audit stays readable
		}
		if refused == nil && !grant.Owner {
			refused = fault.NotAnOwner.With("only the session's owner ref shows its audit")
		}
		if refused != nil {
			o.service.cfg.Audit.Deny(o.conn.peer, o.auth.ref, grant, "audit", refused)
			return refused
		}
		o.service.cfg.Usage.Record(o.conn.peer, grant, "audit", at.Row.Cursor)
		return nil
	})
}

// audit returns a page of the space's audit to its root ref.
func (o *space) audit(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Space_audit_Params(s)
	answerAudit(ctx, o.service, c, o.id, p.After(), p.Limit(), []string{o.ref}, func(at *session.Access) *fault.Error {
		grant, refused := o.grant(at, capability.Revoke)
		if refused == nil && (grant.Parent != "" || o.attenuated != nil) {
			refused = fault.MissingRight.With("only the space's root ref shows its audit, this one was made from another")
		}
		if refused != nil {
			o.service.cfg.Audit.Deny(o.conn.peer, o.ref, grant, "audit", refused)
			return refused
		}
		o.service.cfg.Usage.Record(o.conn.peer, grant, "audit", 0)
		return nil
	})
}

// answerAudit reads a page of target's audit, and returns it if admit allows that in the
// page's snapshot.
func answerAudit(ctx context.Context, service *Service, c *rpc.Call, target string, after uint64, limit uint32, refs []string, admit func(*session.Access) *fault.Error) {
	if limit == 0 || limit > maxAuditPage {
		limit = maxAuditPage
	}
	ctx, cancel := context.WithTimeout(ctx, service.cfg.ReadTimeout)
	defer cancel()
	page, err := service.cfg.Store.ReadAudit(ctx, target, after, int(limit), refs)
	if err != nil {
		fail(c, fault.From(service.cfg.Log, err, "read the audit"))
		return
	}
	if refused := admit(&page.Access); refused != nil {
		fail(c, refused)
		return
	}
	c.Return(structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		to, err := wire.NewAuditPage(s.Segment())
		if err != nil {
			return err
		}
		if err := encodeAuditPage(to, page); err != nil {
			return err
		}
		return s.SetPtr(0, to.ToPtr())
	})
}

func encodeAuditPage(to wire.AuditPage, page *session.AuditPage) error {
	to.SetSeq(page.Seq)
	if err := to.SetHead(page.Head[:]); err != nil {
		return err
	}
	list, err := to.NewRows(int32(len(page.Rows)))
	if err != nil {
		return err
	}
	for i, row := range page.Rows {
		if err := encodeAuditRow(list.At(i), row); err != nil {
			return err
		}
	}
	return nil
}

func encodeAuditRow(to wire.AuditRow, row *capability.AuditRow) error {
	var w fieldWriter
	to.SetSeq(row.Seq)
	to.SetAt(row.At)
	to.SetAct(uint8(row.Act))
	to.SetReason(uint16(row.Reason))
	to.SetCursor(row.Cursor)
	to.SetCount(row.Count)
	w.text(to.SetRef, row.Ref)
	w.text(to.SetActor, row.Actor)
	w.text(to.SetSubject, row.Subject)
	w.text(to.SetOp, row.Op)
	w.text(to.SetPeer, row.Peer)
	w.data(to.SetHash, row.Hash[:])
	return w.err
}
