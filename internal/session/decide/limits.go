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
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
	"github.com/mooring-rpc/mooring/ledger"
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

// Quotas on the bytes stored in a session. Counted are the log's payloads, plus EventCost for each
// event, and values that are only in the state since their events were trimmed. The count is in the
// session's row, which every event writes anyway; writes under a ref that is not an owner's count
// for that ref too. A value that is replaced after its event was trimmed is still counted, so the
// store measures exactly when a quota is reached (Store.Measure), and once for sessions from before
// there were quotas: the bytes stored then are exempt.

// quotaExempt are the methods that a quota permits: they free bytes or end something.
var quotaExempt = []string{session.MethodRemove, session.MethodPurge, session.MethodRevoke, session.MethodBumpEpoch, session.MethodDelete, session.MethodWithdraw, ledger.MethodVoid}

// estimateGrowth returns about how many bytes ops add to a session.
func estimateGrowth(ops []ledger.Intent) (bytes int64) {
	for i := range ops {
		op := &ops[i]
		if slices.Contains(quotaExempt, op.Method) || opargs.AbortsTurn(op) && len(op.Args) == 2 {
			continue
		}
		bytes += session.EventCost
		for _, arg := range op.Args {
			bytes += int64(len(arg.JSON))
		}
	}
	return bytes
}

// checkQuota returns the reason that the submission may not add bytes. It concerns only refs with a
// write right: ops under other refs are denied, and recorded as denied.
func (a *applier) checkQuota(bytes int64) *fault.Error {
	if bytes > 0 && a.s.Row.Life == session.Absent && a.sub.Space != "" && a.authorizeSpace() == nil {
		return a.cfg.checkQuota(a.sub.Space)
	}
	if bytes == 0 || a.s.Row.Life != session.Live || a.authorizeRef(opargs.Method{}, "", 0) != nil || a.grant.Rights&^capability.Read == 0 {
		return nil
	}
	row, lim := &a.s.Row, &a.cfg.Limits
	if exceedsQuota(row.Bytes, bytes, row.ExemptBytes, lim.SessionBytes) {
		return fault.QuotaExceeded.With("the session has %s, its quota is %s: purge some of it, or have its server's operator raise --session-quota", ibytes(row.Bytes), ibytes(int64(lim.SessionBytes)+row.ExemptBytes))
	}
	var ref *capability.Grant
	if slot := a.v.Grants[a.sub.Ref]; slot != nil {
		ref = slot.Grant
	}
	if err := CheckRefQuota(ref, bytes, lim); err != nil {
		return err
	}
	return a.cfg.checkQuota(row.ID)
}

func (c *Config) checkQuota(id string) *fault.Error {
	if c.CheckQuota == nil {
		return nil
	}
	return c.CheckQuota(id)
}

// CheckRefQuota returns the reason that bytes may not be added under a ref.
func CheckRefQuota(g *capability.Grant, bytes int64, lim *session.Limits) *fault.Error {
	if view.CountsForRef(g) && exceedsQuota(g.Bytes, bytes, g.ExemptBytes, lim.RefBytes) {
		return fault.QuotaExceeded.With("%s were written under this ref, the quota is %s: purge some of it, write under another ref, or have the server's operator raise --ref-quota", ibytes(g.Bytes), ibytes(int64(lim.RefBytes)+g.ExemptBytes))
	}
	return nil
}

func exceedsQuota(held, more, spared int64, quota int) bool {
	return quota > 0 && spared >= 0 && held+more > int64(quota)+spared
}

func ibytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
