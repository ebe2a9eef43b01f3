package decide

// create, fork and delete: a session's beginning and end.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// createResult is the result of create; fork sets all fields.
type createResult struct {
	changeResult
	Session string `json:"session"`
	Ref     string `json:"ref"`
	Source  string `json:"source,omitempty"`
	At      uint64 `json:"at,omitempty"`
}

func (a *applier) applyCreate(o *opargs.Create) (result, *fault.Error) {
	if a.s.Row.Forking != nil {
		return nil, fault.AlreadyExists.With("a session of this id is being made by a fork: make another id")
	}
	owner, err := a.mintOwner(o)
	if err != nil {
		return nil, err
	}
	parent, err := a.childOf(o)
	if err != nil {
		return nil, err
	}
	a.createSession(o, session.MethodCreate, owner, rawjson.Encode(createPayload(o, owner)))
	a.s.Row.Parent, a.s.Row.Origin = parent, o.Origin // its row is journaled by createSession
	return createResult{changeResult: a.changed(), Session: a.s.Row.ID, Ref: o.Ref}, nil
}

// childOf returns the parent of the new session, which the submission must hold under a ref that may append
// to it. Its row is locked, so a revoke in the parent comes before the child or after it.
func (a *applier) childOf(o *opargs.Create) (p session.Parent, err *fault.Error) {
	if o.Parent == "" {
		return p, nil
	}
	parent, via, err := a.passed(o.Parent, o.Via, "parent", capability.Append, session.MethodCreate)
	if err != nil {
		return p, err
	}
	switch depth := parent.Row.Parent.Depth(); {
	case parent.Row.Space != a.grant.Target:
		return p, fault.BadArgument.With("the parent is not in the space in which its child is made")
	case depth >= session.MaxDepth:
		return p, fault.TooLarge.With("the parent is a child %d levels down, the limit: make this one the child of a session above it", depth)
	case !session.WritesAll(via) && (o.Part == "" || !session.Writes(via, o.Part)):
		return p, fault.MissingRight.With("the ref of the parent is limited to some keys: name a message or part that it writes as the one that starts the child, or ask for one that covers more")
	default:
		return session.Parent{Session: o.Parent, Key: o.Part, Above: strings.TrimSpace(parent.Row.Parent.Above + " " + o.Parent)}, nil
	}
}

// mintOwner checks that the session can be created and returns its owner's grant.
func (a *applier) mintOwner(o *opargs.Create) (*capability.Grant, *fault.Error) {
	switch a.s.Row.Life {
	case session.Live:
		return nil, fault.AlreadyExists.With("the session exists already")
	case session.Deleted:
		return nil, fault.SessionDeleted.With("a session of this id was deleted: make another id")
	}
	if o.Ref != a.sub.Ref || capability.Target(o.Ref) != a.s.Row.ID {
		return nil, fault.BadArgument.With("ref is not the owner ref with which the space made the session")
	}
	if there, err := a.v.Grant(o.Ref); err != nil {
		return nil, err
	} else if there != nil {
		return nil, fault.AlreadyExists.With("a ref with this id exists already")
	}
	if o.External != "" && !o.Shared && !a.sub.sharesExternalID() {
		if taken, err := a.v.ExternalOf(a.externalID(o)); err != nil {
			return nil, err
		} else if taken != "" {
			return nil, fault.AlreadyExists.With("another session that was made under this ref has this external id: continue with that one, or give another id")
		}
	}
	return capability.MintOwner(a.grant, capability.MintRequest{ID: o.Ref, Hash: o.Hash, Label: o.Label, Actor: o.Actor}, a.v.Now)
}

// externalID returns the external id that must be free for the session.
func (a *applier) externalID(o *opargs.Create) session.ExternalID {
	return session.ExternalID{Space: a.grant.Target, SpaceRef: a.grant.ID, ID: o.External}
}

// createPayload returns the first event's payload, without fork's additions.
func createPayload(o *opargs.Create, owner *capability.Grant) session.CreatePayload {
	return session.CreatePayload{External: o.External, Ref: owner.ID, Label: owner.Label, Actor: owner.Actor, Order: o.Order.String(), Parent: o.Parent, Part: o.Part}
}

// createSession makes the session live with its first event.
func (a *applier) createSession(o *opargs.Create, method string, owner *capability.Grant, payload []byte) *session.Event {
	row := a.v.ChangeRow(a.s)
	row.Life, row.Space, row.External = session.Live, a.grant.Target, o.External
	row.Epoch, row.Created, row.Creator, row.Order = 1, a.v.Now, a.outbox, o.Order
	if o.External != "" {
		a.v.ClaimExternal(a.externalID(o), row.ID)
	}
	a.v.Mint(owner)
	ev := a.emit(method, session.RefKey(owner.ID), 1, payload)
	a.audit(capability.AuditShare, owner.ID)
	return ev
}

// passed returns the live session id, the argument name of the op, and the ref via, under which the
// submission must hold it with a right.
func (a *applier) passed(id, via, name string, need capability.Rights, method string) (*view.Session, *capability.Grant, *fault.Error) {
	if !slices.Contains(a.sub.PassedRefs, via) || capability.Target(via) != id {
		return nil, nil, fault.UnknownRef.With("the %s's live session must be passed along with the batch, under the ref named by via", name)
	}
	s := a.v.Sessions[id]
	if s == nil {
		return nil, nil, fault.BadReference.With("%s must be a value and not a reference", name)
	}
	g, err := a.v.Grant(via)
	if err != nil {
		return nil, nil, err
	}
	if err := capability.Check(g, s.Row.Epoch, a.v.Now, need, method); err != nil {
		return nil, nil, err
	}
	switch s.Row.Life {
	case session.Deleted:
		return nil, nil, fault.SessionDeleted.With("the %s was deleted", name)
	case session.Absent:
		return nil, nil, fault.NotFound.With("there is no session %s", id)
	}
	return s, g, nil
}

// emptyPayload is the payload of events that consist of their method and key.
var emptyPayload = []byte("{}")

func (a *applier) applyDelete() (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	children, err := a.reachEnding("")
	if err != nil {
		return nil, err
	}
	a.emit(session.MethodDelete, "", 1, emptyPayload)
	row := a.v.ChangeRow(a.s)
	row.Life, row.AuthGen, row.Revert, row.Left, row.Compaction = session.Deleted, row.AuthGen+1, session.Revert{}, nil, session.Compaction{}
	row.Copies = nil
	row.Bytes = int64(row.Cursor-row.Base) * session.EventCost // all payloads are removed
	a.v.DiscardPurges(a.s)
	a.v.DropState(a.s)
	a.audit(capability.AuditDelete, "")
	a.cutChildren(children, a.s.Row.ID)
	return a.changed(), nil
}
