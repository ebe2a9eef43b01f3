// Persistent.save: a durable name for a live capability. It is a ref minted
// from the one the object stands on, with the same rights and limits, which dies
// with it. The server makes its secret, gives it out once, and keeps the hash.

package server

import (
	"context"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/std/capnp/persistent"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/session"
)

var persistentSave = rpc.Method{Interface: persistent.Persistent_TypeID, ID: 0}

// savedLabel is the label of refs that save made.
const savedLabel = "saved"

// save answers Persistent.save for an object that stands on auth.
func (s *Server) save(c *rpc.Call, l *link, auth *authority) {
	secret := capability.NewSecret()
	id := capability.ServerID(capability.Target(auth.ref), ulid.Make())
	ctx, cancel := s.writing()
	defer cancel()
	var parent *capability.Grant
	err := s.cfg.Store.Update(ctx, func(tx session.Tx) (err error) {
		defer recovered(&err)
		parent, err = mintSaved(ctx, tx, auth, l.peer, capability.Minting{ID: id, Hash: secret.Hash(), Label: savedLabel})
		return err
	})
	if refused := toFault(s.log, err, "save the capability"); refused != nil {
		s.denied(l.peer, auth.ref, parent, "save", refused)
		fail(c, refused)
		return
	}
	s.used(l.peer, parent, "save", 0)
	c.Return(words(0, 1), func(res capnp.Struct, _ *rpc.CapTable) error {
		ref, err := wire.NewSturdyRef(res.Segment())
		if err != nil {
			return err
		}
		if err := ref.SetId(id); err != nil {
			return err
		}
		if err := ref.SetSecret(secret.Reveal()); err != nil {
			return err
		}
		return res.SetPtr(0, ref.ToPtr())
	})
}

// mintSaved mints, inside tx, a ref from the one auth stands on. A refusal is an
// error like any other: nothing is left of the transaction. What auth stands on is
// given in any case, if it is there.
func mintSaved(ctx context.Context, tx session.Tx, auth *authority, peer string, m capability.Minting) (parent *capability.Grant, err error) {
	want := &session.Want{Grants: auth.refs()}
	if auth.session != "" {
		want.Sessions = []string{auth.session}
	} else {
		want.Spaces = []string{capability.Target(auth.ref)}
	}
	rows, err := tx.Load(ctx, want)
	if err != nil {
		return nil, err
	}
	at := &session.Sight{Now: rows.Now, Row: rows.Sessions[auth.session], Grants: rows.Grants}
	var refused *fault.Error
	if auth.session != "" {
		parent, refused = auth.check(at, 0)
	} else {
		parent, refused = capability.CheckLive(at.Grants[auth.ref], auth.narrow, 0, at.Now, 0, "")
	}
	if refused == nil && len(parent.Seal) > 0 {
		// A server's own ids carry no mark of a seal, and it has nobody's key to bind them to.
		refused = fault.Widening.With("this ref is bound to a key, and a saved one would be to none: keep the ref, or share one that is bound to the key of whoever it is for")
	}
	if refused != nil {
		return parent, refused
	}
	m.Rights = parent.Rights
	grant, refused := capability.Mint(parent, m, epochOf(at), at.Now)
	if refused != nil {
		return parent, refused
	}
	audit := &capability.AuditRow{Target: parent.Target, At: at.Now, Act: capability.AuditSave, Ref: parent.ID, Actor: parent.Actor, Subject: grant.ID,
		Cursor: cursorOf(at), Peer: peer}
	return parent, tx.Save(ctx, &session.Changes{Grants: []*capability.Grant{grant}, Audit: []*capability.AuditRow{audit}})
}
