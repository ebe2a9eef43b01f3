package capability

// Rotation: a new ref replaces another.

import "github.com/mooring-rpc/mooring/fault"

// Rotate returns the grant that replaces old: equal except for id, secret and redemptions. The
// children of old become the new ref's, and old alone is revoked, with the new id as RevokedBy. The
// caller has checked that old may be rotated. The error is BadArgument.
func Rotate(old *Grant, id string, hash [32]byte, now int64) (*Grant, *fault.Error) {
	if Target(id) != old.Target {
		return nil, fault.BadArgument.With("the new ref's id is not one for %s", old.Target)
	}
	g := *old
	g.ID, g.Hash, g.Redemptions, g.Created = id, hash, 0, now
	g.Revoked, g.Cut, g.RevokedBy = 0, 0, ""
	if err := checkMinted(&g); err != nil {
		return nil, err
	}
	return &g, nil
}

// AlreadyRotated reports whether old was rotated to the ref id with this hash, whose row is now;
// then a repetition changes nothing.
func AlreadyRotated(old, now *Grant, id string, hash [32]byte) bool {
	return old != nil && now != nil && old.Revoked != 0 && old.RevokedBy == id && now.ID == id && now.Hash == hash && now.Target == old.Target
}
