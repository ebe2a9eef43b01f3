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
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// attenuate serves Session.attenuate.
func (o *sess) attenuate(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	limits, refused := decodeAttenuation(wire.Session_attenuate_Params(s).Limits())
	var narrow *sess
	if refused == nil {
		narrow, refused = o.within(ctx, limits, false)
	}
	if refused != nil {
		fail(c, refused)
		return
	}
	answerObject(c, narrow)
}

// attenuate serves Space.attenuate.
func (o *space) attenuate(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	limits, refused := decodeAttenuation(wire.Space_attenuate_Params(s).Limits())
	var narrow *space
	if refused == nil {
		narrow, refused = o.within(ctx, limits, false)
	}
	if refused != nil {
		fail(c, refused)
		return
	}
	answerObject(c, narrow)
}

// within returns the session's object with limits below those it has. dead says that there is one of
// a dead ref, too: it repeats recorded outcomes.
func (o *sess) within(ctx context.Context, limits capability.MintRequest, dead bool) (*sess, *fault.Error) {
	if refused := session.CheckFeatures(session.MintFeatures(&limits), o.service.cfg.Features()); refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	access, err := o.service.cfg.Store.ReadAccess(ctx, o.auth.session, o.auth.Refs())
	if err != nil {
		return nil, fault.From(o.conn.log, err, "look up the ref")
	}
	grant, refused := o.auth.Check(access, 0)
	grant, refused = o.service.attenuate(o.conn, o.auth.ref, grant, refused, limits, access, dead)
	if refused != nil {
		return nil, refused
	}
	return newSess(o.service, o.conn, o.auth.attenuate(grant)), nil
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
	narrow, refused := capability.Attenuate(grant, limits, epochOf(at), at.Now)
	if refused != nil {
		return nil, refused
	}
	s.cfg.Usage.Record(from.peer, narrow, "attenuate", cursorOf(at))
	return narrow, nil
}

// answerObject answers a call whose only result is a new object.
func answerObject(c *rpc.Call, object rpc.Object) {
	cap := rpc.NewLocal(object)
	defer cap.Release()
	reply(c, func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, cap) })
}

// maxMethods bounds the methods decoded. It is above the maximum of a grant, so that package
// capability refuses them.
const maxMethods = 256

// decodeAttenuation decodes the limits of a new ref or object.
func decodeAttenuation(from wire.Attenuation, err error) (m capability.MintRequest, refused *fault.Error) {
	var r fieldReader
	r.fail(err)
	m.Expires, m.Lifetime, m.VisibleFrom = from.Expires(), from.Lifetime(), from.From()
	m.Message, m.Label, m.Actor = r.text(from.Message_()), r.text(from.Label()), r.text(from.Actor())
	if bits := from.Rights() &^ wire.KeyLimits; capability.Rights(bits)&^(capability.OwnerRights|capability.SpaceRights) != 0 {
		return m, fault.BadArgument.With("the bits %#x are not rights", bits)
	} else {
		m.Rights = capability.Rights(bits)
	}
	if bits := capability.Rights(from.Children()); bits&^(capability.OwnerRights|capability.SpaceRights) != 0 {
		return m, fault.BadArgument.With("the bits %#x are not rights in children", uint16(bits))
	} else {
		m.Children = bits
	}
	methods, err := from.Methods()
	r.fail(err)
	if n := methods.Len(); n > maxMethods {
		return m, fault.BadArgument.With("at most %d methods can be named", maxMethods)
	}
	if from.HasMethods() {
		m.Methods = []string{}
	}
	for i := range methods.Len() {
		m.Methods = append(m.Methods, r.text(methods.At(i)))
	}
	m.ReadKeys, refused = r.keys("read_keys", from.HasReadKeys(), from.ReadKeys)
	if refused == nil {
		m.WriteKeys, refused = r.keys("write_keys", from.HasWriteKeys(), from.WriteKeys)
	}
	m.AskKinds, m.AnswerKinds = r.kinds(from.HasAsk(), from.Ask), r.kinds(from.HasAnswer(), from.Answer)
	if refused == nil && from.Rights()&wire.KeyLimits != 0 && m.ReadKeys == nil && m.WriteKeys == nil {
		refused = fault.BadArgument.With("the limits are said to be of keys and name none")
	}
	if broken := r.fault("the limits"); broken != nil {
		refused = broken
	}
	return m, refused
}

// keys decodes a list of keys, nil if it is not set. Its form is checked.
func (r *fieldReader) keys(name string, set bool, read func() (capnp.TextList, error)) ([]string, *fault.Error) {
	if !set {
		return nil, nil
	}
	list, err := read()
	keys := append([]string{}, r.texts(list, err, capability.MaxKeys)...)
	if r.err != nil {
		return nil, nil
	}
	return keys, capability.CheckKeys(name, keys)
}

// maxKinds bounds the kinds decoded. It is above the maximum of a grant, so that package capability refuses them.
const maxKinds = 64

// kinds decodes a list of kinds of requests, nil if it is not set.
func (r *fieldReader) kinds(set bool, read func() (capnp.TextList, error)) []string {
	if !set {
		return nil
	}
	list, err := read()
	return append([]string{}, r.texts(list, err, maxKinds)...)
}

// share goes through the committer like a batch, so that it is in the session's order, and the
// new ref is an event of the log like any other.
func (o *sess) share(c *rpc.Call) {
	s, _ := c.Params()
	w, err := wire.Session_share_Params(s).Ref()
	m, refused := decodeNewRef(w, err)
	answer := func(a session.Answer) {
		reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
			return o.service.setRefusal(wire.Session_share_Results(s).NewRefusal, a.Err)
		})
	}
	if refused == nil {
		refused = o.queueDirect(c, &session.Direct{Share: &m}, answer)
	}
	if refused != nil {
		answer(session.Answer{Err: refused})
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
	m, refused := decodeNewRef(w, err)
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
	if refused := session.CheckFeatures(session.MintFeatures(&m), o.service.cfg.Features()); refused != nil {
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

// decodeNewRef decodes a request for a ref that a client has made.
func decodeNewRef(w wire.NewRef, err error) (m capability.MintRequest, refused *fault.Error) {
	var r fieldReader
	r.fail(err)
	m, refused = decodeAttenuation(w.Limits())
	m.ID, m.MaxRedemptions, m.Seal = r.text(w.Id()), w.Redemptions(), r.data(w.Seal())
	hash := r.data(w.Hash())
	copy(m.Hash[:], hash)
	if broken := r.fault("the new ref"); broken != nil {
		refused = broken
	}
	switch {
	case refused != nil:
	case len(hash) != len(m.Hash):
		refused = fault.BadArgument.With("the hash of a ref's secret has %d bytes", len(m.Hash))
	}
	if refused == nil {
		refused = capability.CheckClientMade(m.ID)
	}
	if len(m.Seal) == 0 {
		m.Seal = nil
	}
	return m, refused
}
