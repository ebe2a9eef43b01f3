// Persistent.save: a durable name for a live capability. It is a ref minted from the object's own,
// with the same rights and limits, and dies with it: so it needs the right to share, like any
// other mint. The server makes its secret, and stores the hash; a connection that saves the same
// capability again gets the same ref. rotate replaces an owner's ref, or a space's root ref, by a new
// ref whose secret a client has made.

package objects

import (
	"context"
	"slices"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

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

// savedLabel is the label of the refs that save mints.
const savedLabel = "saved"

// savedRefs holds the refs that a connection was given by save. Its calls of save run one at a
// time: sem is held by the running one, and guards refs.
type savedRefs struct {
	sem  chan struct{}
	refs []savedRef
}

// maxSaved bounds the saved refs of a connection.
const maxSaved = 1024

type savedRef struct {
	grant  *capability.Grant // as it was minted
	secret capability.Secret
}

func newSavedRefs() *savedRefs { return &savedRefs{sem: make(chan struct{}, 1)} }

// find returns the saved ref that was minted like minted.
func (s *savedRefs) find(minted *capability.Grant) (savedRef, bool) {
	for _, r := range s.refs {
		same := *minted
		same.ID, same.Hash = r.grant.ID, r.grant.Hash
		if r.grant.Epoch == minted.Epoch && capability.CheckSameMint(r.grant, &same) == nil {
			return r, true
		}
	}
	return savedRef{}, false
}

// drop removes a dead ref.
func (s *savedRefs) drop(id string) {
	s.refs = slices.DeleteFunc(s.refs, func(r savedRef) bool { return r.grant.ID == id })
}

// save answers Persistent.save for an object with authority auth.
func (s *Service) save(c *rpc.Call, l *ConnState, auth *authority.Authority) {
	ctx, cancel := s.commitContext()
	defer cancel()
	l.saved.sem <- struct{}{}
	defer func() { <-l.saved.sem }()
	var parent *capability.Grant
	var saved savedRef
	err := s.cfg.Store.Update(ctx, func(tx session.Tx) (err error) {
		defer admission.RecoverPanic(&err)
		parent, saved, err = mintSaved(ctx, tx, auth, l, &s.cfg.Limits)
		return err
	})
	if refused := fault.From(s.cfg.Log, err, "save the capability"); refused != nil {
		s.cfg.Audit.Deny(l.peer, auth.Ref, parent, "save", refused)
		fail(c, refused)
		return
	}
	if _, again := l.saved.find(saved.grant); !again {
		l.saved.refs = append(l.saved.refs, saved)
	}
	s.cfg.Usage.Record(l.peer, parent, "save", 0)
	reply(c, func(res capnp.Struct, _ *rpc.CapTable) error {
		ref, err := wire.NewSturdyRef(res.Segment())
		if err != nil {
			return err
		}
		if err := ref.SetId(saved.grant.ID); err != nil {
			return err
		}
		if err := ref.SetSecret(saved.secret.Reveal()); err != nil {
			return err
		}
		return res.SetPtr(0, ref.ToPtr())
	})
}

// mintSaved mints, inside tx, a ref from auth's, or returns the one minted before over l, if that
// is alive. A refusal is returned as an error, so that the transaction is rolled back. parent is
// the grant of auth's ref, in any case if there is one.
func mintSaved(ctx context.Context, tx session.Tx, auth *authority.Authority, l *ConnState, lim *session.Limits) (parent *capability.Grant, saved savedRef, err error) {
	want := &session.ReadSet{Grants: auth.Refs()}
	if auth.Session != "" {
		want.Sessions = []string{auth.Session}
	} else {
		want.Spaces = []string{capability.Target(auth.Ref)}
	}
	rows, err := tx.Load(ctx, want)
	if err != nil {
		return nil, saved, err
	}
	at := &session.Access{Now: rows.Now, Row: rows.Sessions[auth.Session], Grants: rows.Grants}
	var refused *fault.Error
	if auth.Session != "" {
		parent, refused = auth.Check(at, capability.Share)
	} else {
		parent, refused = capability.CheckLive(at.Grants[auth.Ref], auth.Attenuated, 0, at.Now, capability.Share, "")
	}
	if refused == nil && len(parent.Seal) > 0 {
		// A server-made id has no mark of a seal, and the server has no key to bind it to.
		refused = fault.Widening.With("this ref is sealed, and a saved one would not be: keep the ref, or share one that is sealed to its receiver's key")
	}
	if refused != nil {
		return parent, saved, refused
	}
	saved.secret = capability.NewSecret()
	rights := parent.Rights
	if capability.CheckManageGiven(parent, auth.Attenuated != nil, rights) != nil {
		rights &^= capability.Manage
	}
	m := capability.MintRequest{ID: capability.ServerID(parent.Target, ulid.Make()), Hash: saved.secret.Hash(), Rights: rights, Children: parent.Children, Label: savedLabel}
	grant, refused := capability.Mint(parent, m, authority.EpochOf(at), at.Now)
	if refused != nil {
		return parent, saved, refused
	}
	if before, ok := l.saved.find(grant); ok {
		rows, err := tx.Load(ctx, &session.ReadSet{Grants: []string{before.grant.ID}})
		if err != nil {
			return parent, saved, err
		}
		if capability.Check(rows.Grants[before.grant.ID], authority.EpochOf(at), at.Now, 0, "") == nil {
			return parent, before, nil
		}
		l.saved.drop(before.grant.ID)
	}
	if len(l.saved.refs) >= maxSaved {
		return parent, saved, fault.Overloaded.With("%d capabilities were saved over this connection, the maximum: use another", len(l.saved.refs))
	}
	stands := rows.Grants[parent.ID]
	if refused := decide.CheckRefQuota(stands, session.EventCost, lim); refused != nil {
		return parent, saved, refused
	}
	var charges []session.Charge
	if stands != nil && !stands.Owner && auth.Session != "" && !auth.Manage {
		charges = append(charges, session.Charge{Ref: parent.ID, Bytes: session.EventCost})
	}
	saved.grant = grant
	audit := &capability.AuditRow{Target: parent.Target, At: at.Now, Act: capability.AuditSave, Ref: parent.ID, Actor: parent.Actor, Subject: grant.ID,
		Cursor: cursorOf(at), Peer: l.peer}
	return parent, saved, tx.Save(ctx, &session.Changes{Grants: []*capability.Grant{grant}, Charges: charges, Audit: []*capability.AuditRow{audit}})
}

// checkRotation checks the new ref's id, which is to be one for target.
func checkRotation(to decide.Rotation, target string) *fault.Error {
	if capability.Target(to.ID) != target { // such an id must not reach a database
		return fault.BadArgument.With("the new ref's id is not one for %s", target)
	}
	return capability.CheckClientMade(to.ID)
}

// rotate goes through the committer like a batch, so that it is in the session's order and its
// cut is exact.
func (o *sess) rotate(c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_rotate_Params(s)
	id, err := p.Ref()
	hash, hashErr := p.Hash()
	to, refused := codec.DecodeRotation(id, err, hash, hashErr)
	if refused == nil {
		refused = checkRotation(to, o.auth.Session)
	}
	answer := func(a decide.Answer) {
		reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
			r := wire.Session_rotate_Results(s)
			r.SetCut(a.Cut)
			return o.service.setRefusal(r.NewRefusal, a.Err)
		})
	}
	queue := func(refused *fault.Error) {
		if refused == nil {
			refused = o.queueDirect(c, &decide.Direct{Rotate: &to, TakeOver: p.TakeOver()}, answer)
		}
		if refused != nil {
			answer(decide.Answer{Err: refused})
		}
	}
	if refused != nil || !o.auth.Manage {
		queue(refused)
		return
	}
	c.Go(func(ctx context.Context) { queue(o.findReplaced(ctx, &to)) })
}

func (o *space) rotate(c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Space_rotate_Params(s)
	id, err := p.Ref()
	hash, hashErr := p.Hash()
	to, refused := codec.DecodeRotation(id, err, hash, hashErr)
	if refused == nil {
		refused = o.rotateTo(to)
	}
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
		return o.service.setRefusal(wire.Space_rotate_Results(s).NewRefusal, refused)
	})
}

func (o *space) rotateTo(to decide.Rotation) *fault.Error {
	if refused := checkRotation(to, o.id); refused != nil {
		return refused
	}
	var published *session.Published
	refused := o.updateRefs("rotate", session.ReadSet{Grants: []string{to.ID}},
		func(ctx context.Context, tx session.Tx, at *session.Access, rows *session.Rows) (err error) {
			published, err = o.rotateRoot(ctx, tx, at, to)
			return err
		})
	if refused == nil {
		o.service.notify(published)
	}
	return refused
}

// rotateRoot rotates the space's root ref. A repeated call with the same new ref, through the old
// one, changes nothing.
func (o *space) rotateRoot(ctx context.Context, tx session.Tx, at *session.Access, to decide.Rotation) (*session.Published, error) {
	there := at.Grants[to.ID]
	if o.attenuated == nil && capability.AlreadyRotated(at.Grants[o.ref], there, to.ID, to.Hash) {
		return nil, nil
	}
	old, refused := o.check(at, 0, "rotate")
	switch {
	case refused != nil:
		return nil, refused
	case old.Parent != "" || o.attenuated != nil:
		refused = fault.NotAnOwner.With("only the space's root ref may be rotated: revoke this one and have its giver share another")
		o.service.cfg.Audit.Deny(o.conn.peer, o.ref, old, "rotate", refused)
		return nil, refused
	case there != nil:
		return nil, fault.AlreadyExists.With("a ref with this id exists already")
	}
	g, refused := capability.Rotate(old, to.ID, to.Hash, at.Now)
	if refused != nil {
		return nil, refused
	}
	c := &session.Changes{
		Grants: []*capability.Grant{g},
		Rotate: []session.RotatedGrant{{ID: old.ID, By: g.ID, At: at.Now}},
		Audit:  []*capability.AuditRow{{Target: o.id, At: at.Now, Act: capability.AuditRotate, Ref: old.ID, Actor: old.Actor, Subject: g.ID, Peer: o.conn.peer}},
	}
	published, err := maintain.CutRotated(ctx, tx, c, old, o.conn.peer)
	if err != nil {
		return nil, err
	}
	return published, tx.Save(ctx, c)
}
