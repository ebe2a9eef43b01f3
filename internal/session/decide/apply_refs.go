package decide

// share, revoke and bumpEpoch: changes of authority. They commit under the session row's lock like
// every append, so the cut is exact.

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
)

// sharePayload is the payload of a share event: all of the new ref except its hash.
type sharePayload struct {
	Ref         string            `json:"ref"`
	Parent      string            `json:"parent"`
	Rights      capability.Rights `json:"rights"`
	Children    capability.Rights `json:"children,omitempty"`
	Methods     []string          `json:"methods,omitempty"`
	Expires     int64             `json:"expires_at,omitempty"`
	From        uint64            `json:"from,omitempty"`
	Redemptions uint32            `json:"redemptions,omitempty"`
	Message     string            `json:"message,omitempty"`
	ReadKeys    []string          `json:"read_keys,omitempty"`
	WriteKeys   []string          `json:"write_keys,omitempty"`
	Label       string            `json:"label,omitempty"`
	Actor       string            `json:"actor,omitempty"`
	Epoch       uint64            `json:"epoch"`
	Seal        string            `json:"seal,omitempty"`
}

// shareResult is the result of share.
type shareResult struct {
	changeResult
	Ref   string `json:"ref"`
	Epoch uint64 `json:"epoch"`
	Actor string `json:"actor"`
}

func (a *applier) applyShare(o *opargs.Share) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	there, err := a.v.Grant(o.Mint.ID)
	if err != nil {
		return nil, err
	}
	if there != nil && !o.Idempotent {
		return nil, fault.AlreadyExists.With("a ref with this id exists already")
	}
	now := a.v.Now
	if there != nil {
		now = there.Created
	}
	g, err := capability.Mint(a.grant, o.Mint, a.s.Row.Epoch, now)
	if err != nil {
		return nil, err
	}
	if there != nil {
		if err := capability.CheckSameMint(there, g); err != nil {
			return nil, err
		}
		return shareResult{a.unchanged(), g.ID, there.Epoch, g.Actor}, nil
	}
	a.emit(session.MethodShare, session.RefKey(g.ID), 1, rawjson.Encode(sharePayload{
		Ref: g.ID, Parent: g.Parent, Rights: g.Rights, Children: g.Children, Methods: g.Methods, Expires: g.Expires, From: g.VisibleFrom,
		Redemptions: g.MaxRedemptions, Message: g.Message, ReadKeys: g.ReadKeys, WriteKeys: g.WriteKeys, Seal: capability.SealKeyText(g.Seal), Label: g.Label, Actor: g.Actor, Epoch: g.Epoch,
	}))
	a.v.Mint(g)
	if o.Public {
		a.v.MarkPublic(g.ID)
	}
	a.audit(capability.AuditShare, g.ID)
	return shareResult{a.changed(), g.ID, g.Epoch, g.Actor}, nil
}

// cutResult is the result of revoke: nothing under the revoked authority commits after Cut.
type cutResult struct {
	changeResult
	Cut uint64 `json:"cut"`

	// The cuts in the session's children, if what ended reached them: the first, by id, and how many there are.
	Children      []ChildCut `json:"children,omitempty"`
	ChildrenCount int        `json:"children_count,omitempty"`
}

func (a *applier) applyRevoke(o *opargs.Revoke) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	target, err := a.v.Grant(o.Ref)
	if err != nil {
		return nil, err
	}
	if target == nil || target.Target != a.s.Row.ID {
		return nil, fault.NotFound.With("this session has no such ref")
	}
	if !a.grant.Owner {
		mine, err := a.v.Descends(o.Ref, a.grant.ID)
		if err != nil {
			return nil, err
		}
		if !mine || a.sub.Attenuated != nil && o.Ref == a.grant.ID {
			return nil, fault.MissingRight.With("this ref may revoke only itself and refs minted below it")
		}
	}
	if target.Revoked != 0 {
		return cutResult{changeResult: a.unchanged(), Cut: target.Cut}, nil
	}
	if a.sub.Manage && target.Owner && !o.TakeOver {
		return nil, errTakeOver("revoke")
	}
	children, err := a.reachEnding(o.Ref)
	if err != nil {
		return nil, err
	}
	if err := maintain.WithdrawUnder(a.v, a.s, a.grant, o.Ref); err != nil {
		return nil, err
	}
	ev := a.emit(session.MethodRevoke, session.RefKey(o.Ref), 1, rawjson.Encode(maintain.RevokePayload{Ref: o.Ref}))
	if err := a.v.Revoke(session.RevokedGrant{ID: o.Ref, By: a.grant.ID, At: a.v.Now, Cut: ev.Cursor}); err != nil {
		return nil, err
	}
	a.v.ChangeRow(a.s).AuthGen++
	a.audit(capability.AuditRevoke, o.Ref)
	cut := cutResult{changeResult: a.changed(), Cut: ev.Cursor}
	cut.Children, cut.ChildrenCount = a.cutChildren(children, o.Ref)
	return cut, nil
}

// epochPayload is the payload of a bumpEpoch event; the event's cursor is the cut.
type epochPayload struct {
	Epoch uint64 `json:"epoch"`
}

// epochResult is the result of bumpEpoch.
type epochResult struct {
	cutResult
	Epoch uint64 `json:"epoch"`
}

func (a *applier) applyBumpEpoch() (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	children, err := a.reachEnding("")
	if err != nil {
		return nil, err
	}
	if err := a.withdrawShared(); err != nil {
		return nil, err
	}
	next := a.s.Row.Epoch + 1
	ev := a.emit(session.MethodBumpEpoch, "epoch", 1, rawjson.Encode(epochPayload{next}))
	row := a.v.ChangeRow(a.s)
	row.Epoch, row.AuthGen = next, row.AuthGen+1
	a.audit(capability.AuditBump, "")
	cut := cutResult{changeResult: a.changed(), Cut: ev.Cursor}
	cut.Children, cut.ChildrenCount = a.cutChildren(children, a.s.Row.ID)
	return epochResult{cut, next}, nil
}

func errTakeOver(do string) *fault.Error {
	return fault.NotAnOwner.With("this would %s the ref of the session's owner, who loses the session then: say so (take over), in a call of its own, if it is meant", do)
}
