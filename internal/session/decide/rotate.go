package decide

// Session.rotate: a new owner ref replaces the ref of the call. It commits under the session row's
// lock like every change of authority, so the old ref's cut is exact.

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
)

// rotatePayload is the payload of a rotate event; the event's cursor is the old ref's cut.
type rotatePayload struct {
	Ref string `json:"ref"` // the new one
	Old string `json:"old"`
}

func (a *applier) rotate(out *Answer, to *Rotation) *fault.Error {
	if cut, done, err := a.alreadyRotated(to); done || err != nil {
		out.Cut, out.Epoch = cut, a.s.Row.Epoch
		return err
	}
	before := a.v.Savepoint()
	cut, err := a.rotateOwner(to)
	if err != nil {
		return a.rollBackRefused(before, session.MethodRotate, err)
	}
	out.Cut, out.Epoch = cut, a.s.Row.Epoch
	out.Uses = []Use{{Ref: a.grant.ID, Actor: a.grant.Actor, Method: session.MethodRotate, Count: 1}}
	return nil
}

// alreadyRotated reports whether this very rotation was done before: a retry comes through the ref
// that it revoked, which permits nothing else.
func (a *applier) alreadyRotated(to *Rotation) (cut uint64, done bool, err *fault.Error) {
	id, ok := ActingRef(&a.s.Row, a.sub.Ref, a.sub.Space, a.outbox)
	if !ok {
		return 0, false, nil
	}
	if a.sub.Manage {
		if err := a.authorizeRef(opargs.Method{Owner: true}, "", 0); err != nil {
			return 0, false, nil // which rotateOwner finds, too
		}
		id = to.Old
	}
	old, err := a.v.Grant(id)
	if err != nil || old == nil || old.Target != a.s.Row.ID || old.RevokedBy != to.ID {
		return 0, false, err
	}
	now, err := a.v.Grant(to.ID)
	if err != nil {
		return 0, false, err
	}
	return old.Cut, capability.AlreadyRotated(old, now, to.ID, to.Hash), nil
}

func (a *applier) rotateOwner(to *Rotation) (cut uint64, err *fault.Error) {
	if err := a.authorizeRef(opargs.Method{Owner: true}, "", 0); err != nil {
		return 0, err
	}
	a.outbox = "" // it belongs to no stream
	if err := a.requireLive(); err != nil {
		return 0, err
	}
	old := a.grant
	if a.sub.Manage {
		if !a.sub.Direct.TakeOver {
			return 0, errTakeOver("replace")
		}
		if old, err = a.v.Grant(to.Old); err != nil {
			return 0, err
		}
		if old == nil || !old.Owner || old.Target != a.s.Row.ID || old.Revoked != 0 {
			return 0, fault.NotFound.With("the session has no owner's ref that lives, or it was replaced just now")
		}
	}
	g, err := capability.Rotate(old, to.ID, to.Hash, a.v.Now)
	if err != nil {
		return 0, err
	}
	if there, err := a.v.Grant(to.ID); err != nil {
		return 0, err
	} else if there != nil {
		return 0, fault.AlreadyExists.With("a ref with this id exists already")
	}
	if err := maintain.WithdrawReplaced(a.v, a.s, a.grant, old.ID); err != nil {
		return 0, err
	}
	ev := a.emit(session.MethodRotate, session.RefKey(g.ID), 1, rawjson.Encode(rotatePayload{Ref: g.ID, Old: old.ID}))
	a.v.Mint(g)
	a.v.Rotate(session.RotatedGrant{ID: old.ID, By: g.ID, At: a.v.Now, Cut: ev.Cursor})
	row := a.v.ChangeRow(a.s)
	row.AuthGen++
	// The creator's outbox acts as the owner without holding the owner's ref: a rotation must end
	// that too.
	row.Creator = ""
	a.audit(capability.AuditRotate, g.ID)
	return ev.Cursor, nil
}
