// Audit rows of expired refs: one for each ref, written by whichever server finds it first.

package authority

import (
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	findExpired = dialect.Both("", `
		SELECT g.target, g.tail FROM grants g
		WHERE g.expires > 0 AND g.noted = 0 AND g.expires <= {1} ORDER BY g.expires, g.target, g.tail LIMIT {2}`)

	// lockExpired skips refs that another server has audited meanwhile.
	lockExpired = dialect.Both("tt", `
		SELECT `+txn.GrantColumns+` FROM grants g
		WHERE (g.target, g.tail) IN (SELECT a, b FROM {w}) AND g.noted = 0 ORDER BY g.target, g.tail {lock}`)

	markExpiryAudited = dialect.Both("tt", `UPDATE grants SET noted = 1 WHERE (target, tail) IN (SELECT a, b FROM {w})`)
)

// findDue returns the rows of a statement whose arguments are the database's time and a limit.
func (s *Authority) findDue(ctx context.Context, find *dialect.Statement, limit int, scan func(dialect.Scanner) ([]any, error)) (rows [][]any, err error) {
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		var now int64
		run.QueueNow(dialect.SetClock(&now))
		if err := run.Flush(ctx); err != nil {
			return err
		}
		run.Queue(find, nil, []any{now, int64(limit)}, dialect.Collect(&rows, scan))
		return nil
	})
	return rows, err
}

// AuditExpired writes audit rows of refs that have expired by the database's clock, at most limit
// of them. more reports that there may be others. A ref that was dead before its expiry gets no row
// (maintain.ExpiryAudit).
func (s *Authority) AuditExpired(ctx context.Context, limit int) (more bool, err error) {
	due, err := s.findDue(ctx, findExpired, limit, func(row dialect.Scanner) ([]any, error) {
		var target, tail string
		err := row.Scan(&target, &tail)
		return []any{target, tail}, err
	})
	if err != nil {
		return false, txn.Wrap("find expired refs", err)
	}
	// Refs of sessions are guarded by their sessions' rows, which are locked together. Refs of a
	// space have no such guard: each has its own transaction, so that it waits for no other ref's
	// lock while holding its own.
	var together [][]any
	for _, ref := range due {
		if capability.IsSession(ref[0].(string)) {
			together = append(together, ref)
		} else if err := s.auditExpired(ctx, [][]any{ref}); err != nil {
			return false, err
		}
	}
	if len(together) > 0 {
		err = s.auditExpired(ctx, together)
	}
	return len(due) == limit && limit > 0, err
}

func (s *Authority) auditExpired(ctx context.Context, due [][]any) error {
	var targets []string
	for _, ref := range due {
		targets = append(targets, ref[0].(string))
	}
	slices.Sort(targets)
	targets = slices.Compact(targets)
	err := s.db.Update(ctx, func(t *txn.Tx) error {
		rows := map[string]*session.Row{}
		t.Run.Queue(txn.LockSessions, txn.TextRows(targets), nil, txn.SessionsByID(rows))
		t.Run.QueueNow(dialect.SetClock(&t.Now))
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		var noted [][]any
		var audit []*capability.AuditRow
		if err := dialect.Query(ctx, t.Run, lockExpired, due, nil, func(found dialect.Scanner) error {
			g, err := txn.ScanGrant(found)
			if err != nil {
				return err
			}
			noted = append(noted, txn.RefRows([]string{g.ID})...)
			if row := maintain.ExpiryAudit(g, rows[g.Target], t.Now); row != nil {
				audit = append(audit, row)
			}
			return nil
		}); err != nil {
			return err
		}
		t.QueueList(markExpiryAudited, noted, nil)
		return t.SaveAudit(ctx, audit)
	})
	return txn.Wrap("note expired refs", err)
}
