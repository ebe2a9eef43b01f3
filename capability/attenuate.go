package capability

// Attenuation: a live capability that allows less than the ref it stands on. It
// has no row of its own: it is its ref's, with limits that its holder was given.

import "github.com/mooring-rpc/mooring/fault"

// Attenuate makes the grant that a live capability acts under which is to allow
// what m asks for, of what parent allows: parent's own, with the id it has, and
// m's rights (0: all of them), methods, expiry, first cursor, message, label and
// actor. It is nobody's owner, and dies with the epoch it was made in: handing it
// on is a share. Whether parent is alive is Check's to say. Errors as for Mint.
func Attenuate(parent *Grant, m MintRequest, epoch uint64, now int64) (*Grant, *fault.Error) {
	m.ID, m.Hash, m.Seal, m.MaxRedemptions = parent.ID, parent.Hash, parent.Seal, parent.MaxRedemptions
	if m.Rights == 0 {
		m.Rights = parent.Rights
	}
	if m.Label == "" {
		m.Label = parent.Label
	}
	g, err := Mint(parent, m, epoch, now)
	if err != nil {
		return nil, err
	}
	g.Parent, g.Redemptions, g.Created = parent.Parent, parent.Redemptions, parent.Created
	return g, nil
}

// CheckLive is Check for a live capability: of the ref it stands on, as its row
// is now, and of what it was narrowed to, if narrow is not nil. It gives the
// grant that it acts under; that is there for a dead ref too, so that its holder
// can be told of it, and of no more than it was narrowed to.
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
