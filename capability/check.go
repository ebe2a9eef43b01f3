package capability

// Checks of authority: what a ref permits now, and who is a holder.

import (
	"crypto/subtle"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/humantime"
)

// Check returns nil if g permits need now, else the reason. epoch is the session's present one (0
// for a space), now the database's clock in Unix ms. method narrows Append to one op method; ""
// checks the right alone. need 0 only checks whether the ref is alive. The first reason that
// applies:
//
//	no row                                UnknownRef
//	revoked, itself or an ancestor        Revoked, At = the cut
//	minted under another epoch            StaleEpoch, At = the present epoch
//	now at or past its expiry             Expired, At = the expiry
//	a right it does not carry             MissingRight
//	Append, but not of this method        MissingRight
//
// Its own row suffices: revoking marks the whole subtree, and CheckWithin keeps every limit within
// the parent's.
func Check(g *Grant, epoch uint64, now int64, need Rights, method string) *fault.Error {
	switch {
	case g == nil:
		return unknown()
	case g.Revoked != 0 && g.Cut == 0: // a space has no cursor
		return fault.Revoked.With("the ref was revoked: ask its sharer for a new one")
	case g.Revoked != 0:
		return fault.Revoked.With("the ref was revoked at cursor %d: ask its sharer for a new one", g.Cut).Pos(g.Cut)
	case !g.Owner && g.Epoch != epoch:
		return fault.StaleEpoch.With("the ref was shared under epoch %d, the session is at epoch %d: ask its owner for a new one", g.Epoch, epoch).Pos(epoch)
	case g.Expires != 0 && now >= g.Expires:
		return fault.Expired.With("the ref expired %s ago: ask its sharer for a new one", humantime.Duration(time.Duration(now-g.Expires)*time.Millisecond)).Pos(uint64(g.Expires))
	case !g.Rights.Has(need):
		return fault.MissingRight.With("this needs %s, the ref carries %s: ask for a ref that has it", need, g.Rights)
	case need.Has(Append) && method != "" && len(g.Methods) > 0 && !slices.Contains(g.Methods, method):
		return fault.MissingRight.With("the ref may append only with some methods, and %q is not one of them", fault.Clip(method))
	}
	return nil
}

// Authenticate returns nil if s is the secret of the ref id; g is the id's row, or nil. A dead ref
// with the right secret is accepted too: Check refuses its use. The error is NotYetKnown for an
// unknown id that is derived from s, whose minting may still be under way, and UnknownRef for
// everything else, with one text, after the same work for an unknown id as for a wrong secret.
func Authenticate(g *Grant, id string, s Secret) *fault.Error {
	held := SecretMatches(g, s)
	derived := DerivedFrom(id, s)
	switch {
	case held && g.ID == id:
		return nil
	case g == nil && derived:
		return fault.NotYetKnown.With("the op that mints this ref has not arrived yet: it comes when its maker is online")
	}
	return unknown()
}

// SecretMatches reports whether s is the secret of g, in constant time and with the same work for a
// nil g.
func SecretMatches(g *Grant, s Secret) bool {
	want := [32]byte{} // a SHA-256 without a known preimage
	if g != nil {
		want = g.Hash
	}
	got := s.Hash()
	same := subtle.ConstantTimeCompare(want[:], got[:]) == 1
	return same && g != nil && !s.IsZero()
}

// MaxCountedRedemptions is how many redemptions of a ref are stored and counted one by one if
// neither it nor an ancestor has a limit. They are distinguished so that a repeated redemption is
// not counted twice, which matters only with a limit.
const MaxCountedRedemptions = 1000

// CheckRedemption returns nil if one more redemption is within the limits of g and of the ancestors
// with a limit (above): a redemption counts for these too. known means that this redemption id was
// counted before: it is free.
func CheckRedemption(g *Grant, above []*Grant, known bool) *fault.Error {
	switch {
	case known:
		return nil
	case g.MaxRedemptions != 0 && g.Redemptions >= g.MaxRedemptions:
		return fault.Exhausted.With("the ref was redeemed %d times, as often as it allows: ask its sharer for a new one", g.Redemptions)
	}
	for _, a := range above {
		if a.MaxRedemptions != 0 && a.Redemptions >= a.MaxRedemptions {
			return fault.Exhausted.With("the ref this one was made from was redeemed %d times, as often as it allows with all made from it: ask its sharer for a new one", a.Redemptions)
		}
	}
	return nil
}

func unknown() *fault.Error {
	return fault.UnknownRef.With("the ref does not exist, or its secret is wrong: check that it was copied whole")
}
