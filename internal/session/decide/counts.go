package decide

// Counting open turns. The limit of a ref applies to the ref and all its descendants together, or
// sharing would multiply it. An owner's ref is limited only by the session's limit: otherwise one
// guest could use up all of the owner's.
//
// Turns of dead refs are not counted: no holder is left to end them. A begin that finds such turns
// marks their rows (Orphan), and later batches do not read them. So there may be any number of
// them, as of ended ones, within the session's quota; a batch reads no more than MaxSessionTurns
// turns, and the turns of refs that have died since the last begin.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// checkTurnLimits returns the reason that one more turn may not be begun. The stream's own open
// turns are a refusal that is recorded. Open turns of others are not: the batch waits until there
// is room.
func (a *applier) checkTurnLimits() *fault.Error {
	n, err := a.v.TurnCount(a.s)
	if err != nil {
		return err
	}
	switch {
	case n.ByStream[a.outbox] >= session.MaxOpenTurns:
		return fault.TooLarge.With("%d turns of this stream are open, the maximum: finalize some", n.ByStream[a.outbox])
	case n.Total >= session.MaxSessionTurns:
		return fault.Overloaded.With("%d turns of this session are open, the maximum: the op waits until some are finalized, or aborted (mooring session abort-turns)", n.Total)
	}
	line, err := a.v.Lineage(a.s, a.grant.ID)
	if err != nil {
		return err
	}
	for _, g := range line {
		if !g.Owner && n.ByRef[g.ID] >= session.MaxOpenTurns {
			return fault.Overloaded.With("%d turns are open under ref %s and refs made from it, the maximum: the op waits until some are finalized, or aborted (mooring session abort-turns)", n.ByRef[g.ID], g.ID)
		}
	}
	return nil
}

// Counting the claims in force. As with open turns, the limit of a ref applies to the ref and all its
// descendants together, and an owner's ref is limited only by the session's. So nobody who was given a
// ref makes the others' search for a free key long, or leaves them none.
//
// Claims under refs that have died count for those above: with a ref that may share and revoke, any number
// could be made otherwise. They end with their leases, within an hour.

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
