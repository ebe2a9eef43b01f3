package capability

// Rotation: a new ref takes another one's place.

import "github.com/mooring-rpc/mooring/fault"

// Rotate makes the grant that takes old's place: the same in everything but id,
// secret and how often it was redeemed. What was minted from old is minted from
// it from then on, and old alone is revoked, with the new one's id as who did it.
// Whether old may be rotated at all is its caller's to say. The error is BadArgument.
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

// AlreadyRotated says whether old was rotated to the ref id with this hash, whose row
// is now; then asking for it again changes nothing.
func AlreadyRotated(old, now *Grant, id string, hash [32]byte) bool {
	return old != nil && now != nil && old.Revoked != 0 && old.RevokedBy == id && now.ID == id && now.Hash == hash && now.Target == old.Target
}
