// Narrower authority: Session.attenuate and Space.attenuate give a live capability, Session.share and
// Space.share mint a ref, whose secret a client has made, without an outbox.

package objects

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/authority"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/rpc"
)

// attenuate serves Session.attenuate.
func (o *sess) attenuate(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	limits, refused := codec.DecodeAttenuation(wire.Session_attenuate_Params(s).Limits())
	var narrow *sess
	if refused == nil {
		narrow, refused = o.within(ctx, limits, false)
	}
	answerObject(c, refused, narrow)
}

// attenuate serves Space.attenuate.
func (o *space) attenuate(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	limits, refused := codec.DecodeAttenuation(wire.Space_attenuate_Params(s).Limits())
	var narrow *space
	if refused == nil {
		narrow, refused = o.within(ctx, limits, false)
	}
	answerObject(c, refused, narrow)
}

// within returns the session's object with limits below those it has. dead says that there is one of
// a dead ref, too: it repeats recorded outcomes.
func (o *sess) within(ctx context.Context, limits capability.MintRequest, dead bool) (*sess, *fault.Error) {
	if refused := session.CheckFeatures(opargs.MintFeatures(&limits), o.service.cfg.Features()); refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	access, err := o.service.cfg.Store.ReadAccess(ctx, o.auth.Session, o.auth.Refs())
	if err != nil {
		return nil, fault.From(o.conn.log, err, "look up the ref")
	}
	grant, refused := o.auth.Check(access, 0)
	grant, refused = o.service.attenuate(o.conn, o.auth.Ref, grant, refused, limits, access, dead)
	if refused != nil {
		return nil, refused
	}
	return newSess(o.service, o.conn, o.auth.Attenuate(grant)), nil
}

// within is that of a session for a space.
func (o *space) within(ctx context.Context, limits capability.MintRequest, dead bool) (*space, *fault.Error) {
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	access, err := o.service.cfg.Store.ReadAccess(ctx, "", []string{o.ref})
	if err != nil {
		return nil, fault.From(o.conn.log, err, "look up the ref")
	}
	grant, refused := o.grant(access, 0)
	if grant, refused = o.service.attenuate(o.conn, o.ref, grant, refused, limits, access, dead); refused != nil {
		return nil, refused
	}
	return &space{service: o.service, conn: o.conn, id: o.id, ref: o.ref, attenuated: grant}, nil
}

// attenuate returns the grant of a live capability with limits below grant, the one that ref has now. why
// says why that is dead, if it is. Then there is no such grant unless dead says so: it is as dead.
func (s *Service) attenuate(from *ConnState, ref string, grant *capability.Grant, why *fault.Error, limits capability.MintRequest, at *session.Access, dead bool) (*capability.Grant, *fault.Error) {
	if why != nil {
		if dead && grant != nil {
			if narrow, refused := capability.Attenuate(grant, limits, grant.Epoch, at.Now); refused == nil {
				return narrow, nil
			}
		}
		s.cfg.Audit.Deny(from.peer, ref, grant, "attenuate", why)
		return nil, why
	}
	narrow, refused := capability.Attenuate(grant, limits, authority.EpochOf(at), at.Now)
	if refused != nil {
		return nil, refused
	}
	s.cfg.Usage.Record(from.peer, narrow, "attenuate", cursorOf(at))
	return narrow, nil
}

// answerObject answers a call whose only result is a new object, unless it is refused.
func answerObject(c *rpc.Call, refused *fault.Error, object rpc.Object) {
	if refused != nil {
		fail(c, refused)
		return
	}
	cap := rpc.NewLocal(object)
	defer cap.Release()
	reply(c, func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, cap) })
}

// share goes through the committer like a batch, so that it is in the session's order, and the
// new ref is an event of the log like any other.
func (o *sess) share(c *rpc.Call) {
	s, _ := c.Params()
	w, err := wire.Session_share_Params(s).Ref()
	m, refused := codec.DecodeNewRef(w, err)
	answer := func(a decide.Answer) {
		reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
			return o.service.setRefusal(wire.Session_share_Results(s).NewRefusal, a.Err)
		})
	}
	if refused == nil {
		refused = o.queueDirect(c, &decide.Direct{Share: &m}, answer)
	}
	if refused != nil {
		answer(decide.Answer{Err: refused})
	}
}

// spaceCommitFactor multiplies Config.CommitTimeout for a transaction that changes a space's
// refs: a revocation or rotation writes to all of its sessions.
const spaceCommitFactor = 20

// updateRefs runs decide in a transaction that holds the space's row exclusively, with the rows
// of its own ref and of want, and returns why it was refused. Transactions that make sessions in
// the space wait for it, and it for them, so no session is made under a ref that is being
// revoked. Once begun it is finished, even if the connection ends.
func (o *space) updateRefs(method string, want session.ReadSet, decide func(ctx context.Context, tx session.Tx, at *session.Access, rows *session.Rows) error) *fault.Error {
	var under *capability.Grant
	ctx, cancel := context.WithTimeout(o.service.cfg.Context, spaceCommitFactor*o.service.cfg.CommitTimeout)
	defer cancel()
	want.ExclusiveSpaces, want.Grants = []string{o.id}, append(want.Grants, o.ref)
	err := o.service.cfg.Store.Update(ctx, func(tx session.Tx) (err error) {
		defer admission.RecoverPanic(&err)
		rows, err := tx.Load(ctx, &want)
		if err != nil {
			return err
		}
		at := &session.Access{Now: rows.Now, Grants: rows.Grants}
		under, _ = o.grant(at, 0)
		return decide(ctx, tx, at, rows)
	})
	if err == nil && under != nil {
		o.service.cfg.Usage.Record(o.conn.peer, under, method, 0)
	}
	return fault.From(o.conn.log, err, method+" the space's ref")
}

func (o *space) share(c *rpc.Call) {
	s, _ := c.Params()
	w, err := wire.Space_share_Params(s).Ref()
	m, refused := codec.DecodeNewRef(w, err)
	if refused == nil {
		refused = o.mint(m)
	}
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
		return o.service.setRefusal(wire.Space_share_Results(s).NewRefusal, refused)
	})
}

// mint mints a ref of the space below its own. The same again changes nothing.
func (o *space) mint(m capability.MintRequest) *fault.Error {
	if capability.Target(m.ID) != o.id { // such an id must not reach a database
		return fault.BadArgument.With("the new ref's id is not one for %s", o.id)
	}
	if refused := session.CheckFeatures(opargs.MintFeatures(&m), o.service.cfg.Features()); refused != nil {
		return refused
	}
	return o.updateRefs("share", session.ReadSet{Grants: []string{m.ID}},
		func(ctx context.Context, tx session.Tx, at *session.Access, rows *session.Rows) error {
			parent, refused := o.check(at, capability.Share, "share")
			if refused != nil {
				return refused
			}
			now, there := at.Now, rows.Grants[m.ID]
			if there != nil {
				now = there.Created
			}
			if refused := capability.CheckManageGiven(parent, o.attenuated != nil, m.Rights); refused != nil {
				return refused
			}
			g, refused := capability.Mint(parent, m, 0, now)
			if refused != nil {
				return refused
			}
			if there != nil {
				if refused := capability.CheckSameMint(there, g); refused != nil {
					return refused
				}
				return nil
			}
			return tx.Save(ctx, &session.Changes{Grants: []*capability.Grant{g}, Audit: []*capability.AuditRow{
				{Target: o.id, At: at.Now, Act: capability.AuditShare, Ref: parent.ID, Actor: parent.Actor, Subject: g.ID, Peer: o.conn.peer}}})
		})
}
