package decide

// Counting the claims in force. As with open turns, the limit of a ref applies to the ref and all its
// descendants together, and an owner's ref is limited only by the session's. So nobody who was given a
// ref makes the others' search for a free key long, or leaves them none.
//
// Claims under refs that have died count for those above: with a ref that may share and revoke, any number
// could be made otherwise. They end with their leases, within an hour.

import (
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// claimCount is the number of claims in force of a session: those of the database, which are read when
// they are first asked for, and what the group has changed since it began.
type claimCount struct {
	stored map[string]int // by the ref that they were last made or renewed under; nil: not read
	total  int            // of stored
	under  map[string]int // by ref, descendants included; nil: not summed
	change map[string]int // of the group, by ref
}

// checkClaimLimits returns the reason that the current ref may not claim one more key, or renew a claim,
// which counted for another ref until then: the batch waits until there is room.
func (a *applier) checkClaimLimits(renewed *session.Claim) *fault.Error {
	if renewed != nil && renewed.Ref == a.grant.ID {
		return nil
	}
	if err := a.v.readClaimCount(a.s); err != nil {
		return err
	}
	total := a.s.claims.total
	for _, change := range a.s.claims.change {
		total += change
	}
	switch {
	case renewed == nil && total >= session.MaxSessionClaims:
		return fault.Overloaded.With("%d keys of this session are claimed, the maximum: the op waits until some are free", total)
	case total < session.MaxRefClaims:
		return nil
	}
	return a.v.checkClaimsUnder(a.s, a.grant.ID, renewed)
}

// readClaimCount reads the counts of the database, once a group.
func (v *view) readClaimCount(s *sessionView) *fault.Error {
	if s.claims.stored != nil {
		return nil
	}
	rows, err := v.loadBounded(&session.ReadSet{CountedClaims: s.row.ID, LapsedBy: v.now})
	if err != nil {
		return err
	}
	s.claims.stored = rows.ClaimCounts
	for _, n := range rows.ClaimCounts {
		s.claims.total += n
	}
	return nil
}

// checkClaimsUnder returns the reason that a ref, or one above it, may not have one more claim: a new
// one, or a renewed one.
func (v *view) checkClaimsUnder(s *sessionView, ref string, renewed *session.Claim) *fault.Error {
	n := &s.claims
	if n.under == nil {
		refs := slices.Sorted(maps.Keys(n.stored))
		if err := v.loadMissing(&session.ReadSet{Lineages: refs}); err != nil {
			return err
		}
		under := map[string]int{}
		for _, id := range refs {
			line, err := v.lineage(s, id)
			if err != nil {
				return err
			}
			for _, g := range line {
				under[g.ID] += n.stored[id]
			}
		}
		n.under = under
	}
	line, err := v.lineage(s, ref)
	if err != nil {
		return err
	}
	change := map[string]int{}
	maps.Copy(change, n.change)
	if renewed != nil {
		change[renewed.Ref]--
	}
	changed := map[string]int{}
	for id, change := range change {
		below, err := v.lineage(s, id)
		if err != nil {
			return err
		}
		for _, g := range below {
			changed[g.ID] += change
		}
	}
	for _, g := range line {
		if sum := n.under[g.ID] + changed[g.ID]; !g.Owner && sum >= session.MaxRefClaims {
			return fault.Overloaded.With("%d keys are claimed under ref %s and refs made from it, the maximum: the op waits until some are free", sum, g.ID)
		}
	}
	return nil
}

// countClaim adds n to the count of a claim, if it is in force.
func (v *view) countClaim(s *sessionView, c *session.Claim, n int) {
	if c == nil || c.Until <= v.now {
		return
	}
	if s.claims.change == nil {
		s.claims.change = map[string]int{}
	}
	s.claims.change[c.Ref] += n
	v.journalUndo(func() { s.claims.change[c.Ref] -= n })
}
