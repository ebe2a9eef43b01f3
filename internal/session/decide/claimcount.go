package decide

// Counting the claims in force. As with open turns, the limit of a ref applies to the ref and all its
// descendants together, and an owner's ref is limited only by the session's. So nobody who was given a
// ref makes the others' search for a free key long, or leaves them none.
//
// Claims under refs that have died count for those above: with a ref that may share and revoke, any number
// could be made otherwise. They end with their leases, within an hour.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// checkClaimLimits returns the reason that the current ref may not claim one more key, or renew a claim,
// which counted for another ref until then: the batch waits until there is room.
func (a *applier) checkClaimLimits(renewed *session.Claim) *fault.Error {
	if renewed != nil && renewed.Ref == a.grant.ID {
		return nil
	}
	total, err := a.v.ClaimTotal(a.s)
	if err != nil {
		return err
	}
	switch {
	case renewed == nil && total >= session.MaxSessionClaims:
		return fault.Overloaded.With("%d keys of this session are claimed, the maximum: the op waits until some are free", total)
	case total < session.MaxRefClaims:
		return nil
	}
	return a.v.CheckClaimsUnder(a.s, a.grant.ID, renewed)
}
