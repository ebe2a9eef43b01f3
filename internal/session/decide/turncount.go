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
