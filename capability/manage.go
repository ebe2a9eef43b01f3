package capability

// The right manage: a space's ref acts in every session of the space.

import "github.com/mooring-rpc/mooring/fault"

// Managing returns the grant under which the holder of a space's ref acts in one of its sessions: an
// owner's of the session, with the ref's id, expiry, redemptions, seal and actor. g is the ref's row,
// narrow the limits of the live capability of the space, nil if it has none. The error is that of
// CheckLive for the right Manage; then the grant is returned too, unless there is no row, so that the
// holder of a dead ref can be informed of it. Whether the session is one of the space the caller checks.
func Managing(g, narrow *Grant, session string, now int64) (*Grant, *fault.Error) {
	acting, err := CheckLive(g, narrow, 0, now, Manage, "")
	if acting == nil {
		return nil, err
	}
	as := &Grant{ID: acting.ID, Target: session, Parent: acting.Parent, Hash: acting.Hash, Owner: true, Rights: OwnerRights,
		Expires: acting.Expires, MaxRedemptions: acting.MaxRedemptions, Redemptions: acting.Redemptions, Seal: acting.Seal,
		Label: acting.Label, Actor: acting.Actor, Created: acting.Created,
		Revoked: acting.Revoked, Cut: acting.Cut, RevokedBy: acting.RevokedBy}
	if err != nil && acting.Revoked == 0 && err.Code == fault.MissingRight {
		as.Rights, as.Owner = 0, false
	}
	return as, err
}

// CheckManageGiven returns nil unless a ref minted from parent would have the right manage although
// parent is not the space's root ref itself; attenuated says that it is a live capability of it with
// less. The error is Widening.
func CheckManageGiven(parent *Grant, attenuated bool, rights Rights) *fault.Error {
	if rights.Has(Manage) && (!parent.IsRoot() || attenuated) {
		return fault.Widening.With("the right manage is given by the space's root ref alone: leave it out")
	}
	return nil
}
