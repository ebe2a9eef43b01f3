package refs

// Of several refs for the same session or space, chooseRef picks the one to use.

import (
	"cmp"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// chooseRef returns the ref to use for target, "" for any space, of the refs that fit; nil if there
// are none. want is the right that it should have, 0 for any.
//
// A confirmed ref is preferred to an unconfirmed one, and a dead one comes last. Of equal ones, a
// ref with the right is preferred; then the owner's of a session that was created here; then the
// one confirmed last.
func chooseRef(fits []*SavedRef, target string, want capability.Rights) (best *SavedRef, err error) {
	trust, made := trustDead, false
	for _, r := range fits {
		if r.foundByTarget(target) {
			trust = max(trust, r.trust())
		}
	}
	byName := target != "" && !capability.IsSession(target) && !capability.IsSpace(target)
	for _, r := range fits {
		made = made || r.Role == SessionOwner && r.trust() == trust
	}
	for _, r := range fits {
		switch {
		case !r.foundByTarget(target) || r.trust() < trust || byName && r.ofRefusedCreate():
		case byName && made && r.Role != SessionOwner: // the name was given here; others may use theirs freely
		case best != nil && best.Target() != r.Target():
			return nil, fault.Ambiguous.With("%q fits %s and %s: give the whole id", fault.Clip(target), best.Target(), r.Target())
		case best == nil || r.betterThan(best, want):
			best = r
		}
	}
	return best, nil
}

// foundByTarget reports whether target names the ref's session or space, and not the ref
// itself.
func (r *SavedRef) foundByTarget(target string) bool {
	return r.ID != target && !slices.ContainsFunc(r.replaced, func(was replacedRef) bool { return was.id == target })
}

// ofRefusedCreate reports that the ref is the owner's of a session whose creation was refused.
func (r *SavedRef) ofRefusedCreate() bool {
	return r.Role == SessionOwner && r.Dead != fault.None && r.Confirmed.IsZero()
}

// Levels of trust in a ref.
const (
	trustDead        = iota // a server said so
	trustUnconfirmed        // no server has answered
	trustConfirmed
)

func (r *SavedRef) trust() int {
	switch {
	case r.Dead != fault.None:
		return trustDead
	case r.Confirmed.IsZero() && r.Role != SessionOwner: // a ref that was made here cannot be mistyped
		return trustUnconfirmed
	}
	return trustConfirmed
}

// betterThan reports whether r is preferred to the older ref other, where the right want is
// needed.
func (r *SavedRef) betterThan(other *SavedRef, want capability.Rights) bool {
	return cmp.Or(
		cmp.Compare(r.rightsFit(want), other.rightsFit(want)),
		cmp.Compare(r.ownerRank(), other.ownerRank()),
		r.Confirmed.Compare(other.Confirmed),
	) >= 0
}

// rightsFit ranks a ref by its right: absent, possible, partial or full. Without the right break it is
// possible, where append does for the rest: claims of one's own are released without.
func (r *SavedRef) rightsFit(want capability.Rights) int {
	switch {
	case want == 0:
		return 0
	case r.Role == SessionOwner:
		return 3
	case r.Rights == 0:
		return 1
	case !r.Rights.Has(want):
		if want.Has(capability.Break) && r.Rights.Has(want&^capability.Break|capability.Append) {
			return 1
		}
		return 0
	case r.Restricted && want != capability.Read:
		return 2
	}
	return 3
}

// ownerRank ranks the owner's ref of a session that was created here above others.
func (r *SavedRef) ownerRank() int {
	if r.Role == SessionOwner {
		return 1
	}
	return 0
}
