package decide

// Quotas on the bytes stored in a session. Counted are the log's payloads, plus EventCost for each
// event, and values that are only in the state since their events were trimmed. The count is in the
// session's row, which every event writes anyway; writes under a ref that is not an owner's count
// for that ref too. A value that is replaced after its event was trimmed is still counted, so the
// store measures exactly when a quota is reached (Store.Measure), and once for sessions from before
// there were quotas: the bytes stored then are exempt.

import (
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/view"
	"github.com/mooring-rpc/mooring/ledger"
)

// quotaExempt are the methods that a quota permits: they free bytes or end something.
var quotaExempt = []string{session.MethodRemove, session.MethodPurge, session.MethodRevoke, session.MethodBumpEpoch, session.MethodDelete, session.MethodWithdraw, ledger.MethodVoid}

// estimateGrowth returns about how many bytes ops add to a session.
func estimateGrowth(ops []ledger.Intent) (bytes int64) {
	for i := range ops {
		op := &ops[i]
		if slices.Contains(quotaExempt, op.Method) || abortsTurn(op) && len(op.Args) == 2 {
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
	if bytes == 0 || a.s.Row.Life != session.Live || a.authorizeRef(method{}, "", 0) != nil || a.grant.Rights&^capability.Read == 0 {
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
