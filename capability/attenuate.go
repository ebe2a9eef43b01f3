package capability

// Attenuation: a live capability that permits less than its ref. It has no row of its own: it has
// its ref's, and the limits of its holder.

import (
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// Attenuate returns the grant of a live capability that permits what m asks for, within parent: a
// copy of parent with its id, and with m's rights (0: all, without LaterRights if m names methods),
// methods, expiry, first visible cursor, message, label and actor. It is not an owner's, and ends with its epoch: passing it on is a
// share. It does not check whether parent is alive; see Check. Errors as for Mint.
func Attenuate(parent *Grant, m MintRequest, epoch uint64, now int64) (*Grant, *fault.Error) {
	m.ID = parent.Target + strings.TrimPrefix(parent.ID, Target(parent.ID)) // which differ in a session that a space's ref manages
	m.Hash, m.Seal, m.MaxRedemptions = parent.Hash, parent.Seal, parent.MaxRedemptions
	if m.Rights == 0 {
		m.Rights = parent.Rights
		if m.Methods != nil { // who names the methods means no others
			m.Rights &^= LaterRights
		}
	}
	if m.Label == "" {
		m.Label = parent.Label
	}
	g, err := Mint(parent, m, epoch, now)
	if err != nil {
		return nil, err
	}
	g.ID, g.Parent, g.Redemptions, g.Created = parent.ID, parent.Parent, parent.Redemptions, parent.Created
	return g, nil
}

// CheckLive is Check for a live capability: for its ref, with the present row g, and for its
// limits, if narrow is not nil. It returns the grant that the capability acts under, also for a
// dead ref, so that its holder can be informed of it, within the same limits.
func CheckLive(g, narrow *Grant, epoch uint64, now int64, need Rights, method string) (*Grant, *fault.Error) {
	if narrow == nil || g == nil {
		return g, Check(g, epoch, now, need, method)
	}
	if err := Check(g, epoch, now, 0, ""); err != nil {
		dead := *narrow
		dead.Revoked, dead.Cut, dead.RevokedBy = g.Revoked, g.Cut, g.RevokedBy
		return &dead, err
	}
	return narrow, Check(narrow, epoch, now, need, method)
}
