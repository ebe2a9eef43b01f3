// Space: a set of sessions, under one space ref.

package objects

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/authority"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// space serves the schema's Space.
type space struct {
	service    *Service
	conn       *ConnState
	id         string
	ref        string            // id of the ref it acts under
	attenuated *capability.Grant // limits of an attenuated object; else nil
}

// maxList is the maximum number of sessions in one answer.
const maxList = 500

var spaceMethods = newMethodTable("Space", map[methods.Method]func(*space, *rpc.Call){
	methods.SpaceCreate:      (*space).create,
	methods.SpaceList:        inBackground((*space).list),
	methods.SpaceDescribe:    inBackground((*space).describe),
	methods.SpaceAttenuate:   inBackground((*space).attenuate),
	methods.SpaceAudit:       inBackground((*space).audit),
	methods.SpaceShare:       uncanceled((*space).share),
	methods.SpaceRevoke:      uncanceled((*space).revoke),
	methods.SpaceRefs:        inBackground((*space).refs),
	methods.SpaceRotate:      uncanceled((*space).rotate),
	methods.SpaceOpen:        inBackground((*space).open),
	methods.SpaceRemoveOlder: inBackground((*space).removeOlder),
	methods.PersistentSave: uncanceled(func(o *space, c *rpc.Call) {
		o.service.save(c, o.conn, &authority.Authority{Ref: o.ref, Attenuated: o.attenuated})
	}),
})

// Serve implements rpc.Object.
func (o *space) Serve(c *rpc.Call) {
	o.service.cfg.Instruments.ObserveCall(c, o.service.cfg.Instruments.Space)
	spaceMethods.serve(o, c)
}

// create returns the object of a session that is about to be made. It does not read the
// database: the ops sent to its stream are decided.
func (o *space) create(c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Space_create_Params(s)
	var r codec.FieldReader
	id, owner := r.Text(p.Session()), r.Text(p.Owner())
	refused := r.Fault("the call")
	var made *sess
	if refused == nil {
		made, refused = o.newSession(id, owner)
	}
	answerObject(c, refused, made)
}

// newSession returns the object of the session id that is about to be made, with owner as the
// id of its owner's ref.
func (o *space) newSession(id, owner string) (*sess, *fault.Error) {
	switch {
	case !capability.IsSession(id):
		return nil, fault.BadArgument.With("a session's id is %s and a ULID", capability.SessionPrefix)
	case capability.Target(owner) != id:
		return nil, fault.BadArgument.With("the owner's ref must be one for %s", id)
	}
	return newSess(o.service, o.conn, &authority.Authority{Session: id, Ref: owner, Space: o.ref, Outer: o.attenuated}), nil
}

// grant returns the space's grant, which a dead ref has too, and why it does not allow need.
func (o *space) grant(at *session.Access, need capability.Rights) (*capability.Grant, *fault.Error) {
	return capability.CheckLive(at.Grants[o.ref], o.attenuated, 0, at.Now, need, "")
}

// check is grant, and audits a refusal.
func (o *space) check(at *session.Access, need capability.Rights, label string) (*capability.Grant, *fault.Error) {
	grant, refused := o.grant(at, need)
	if refused != nil {
		o.service.cfg.Audit.Deny(o.conn.peer, o.ref, grant, label, refused)
	}
	return grant, refused
}

// readAccess reads the space's grant, and returns why it does not allow need.
func (o *space) readAccess(ctx context.Context, need capability.Rights, label string) (*capability.Grant, *session.Access, *fault.Error) {
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	access, err := o.service.cfg.Store.ReadAccess(ctx, "", []string{o.ref})
	if err != nil {
		return nil, nil, fault.From(o.conn.log, err, "look up the ref")
	}
	grant, refused := o.check(access, need, label)
	return grant, access, refused
}

func (o *space) list(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Space_list_Params(s)
	var r codec.FieldReader
	q := session.ListQuery{After: r.Text(p.After()), Search: r.Text(p.Search()), Deleted: p.Deleted(), Parent: r.Text(p.Parent()), Limit: int(p.Limit())}
	order := r.Text(p.Order())
	refused := r.Fault("the call")
	if refused == nil {
		q.Order, refused = session.ParseListOrder(order)
	}
	var page *session.ListPage
	if refused == nil {
		page, refused = o.listPage(ctx, q)
	}
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		res := wire.Space_list_Results(s)
		res.SetMore(page.Next != "")
		if err := res.SetNext(page.Next); err != nil {
			return err
		}
		return codec.EncodeSessions(page, res.NewSessions)
	})
}

// listPage returns a page of the space's sessions: at most q.Limit, and at most maxList.
func (o *space) listPage(ctx context.Context, q session.ListQuery) (*session.ListPage, *fault.Error) {
	if q.Limit <= 0 || q.Limit > maxList {
		q.Limit = maxList
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	page, err := o.service.cfg.Store.ListSessions(ctx, o.id, q, []string{o.ref})
	if err != nil {
		return nil, fault.From(o.conn.log, err, "list the sessions")
	}
	need := capability.List
	if q.Activity { // which only those see who may read the sessions
		need |= capability.Manage
	}
	grant, refused := o.check(&page.Access, need, "list")
	if refused != nil {
		return nil, refused
	}
	o.service.cfg.Usage.Record(o.conn.peer, grant, "list", 0)
	return page, nil
}

func (o *space) describe(ctx context.Context, c *rpc.Call) {
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	access, err := o.service.cfg.Store.ReadAccess(ctx, "", []string{o.ref})
	if err != nil {
		fail(c, fault.From(o.conn.log, err, "describe the ref"))
		return
	}
	grant, refused := o.grant(access, 0)
	if grant == nil {
		fail(c, refused)
		return
	}
	if refused == nil {
		o.service.cfg.Usage.Record(o.conn.peer, grant, "describe", 0)
	}
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
		res := wire.Space_describe_Results(s)
		res.SetNow(access.Now)
		info, err := res.NewInfo()
		if err != nil {
			return err
		}
		return codec.EncodeGrantInfo(info, grant, 0, access.Now)
	})
}
