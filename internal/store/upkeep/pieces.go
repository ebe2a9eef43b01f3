// What is done in pieces: forks that are being copied, and what settled reverts hid.

package upkeep

import (
	"context"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	// findForks uses sessions_forking, the index of the forks that are being copied.
	findForks = dialect.Both("", `
		SELECT s.id, s.forks FROM sessions s {by sessions_forking} WHERE substr(s.forks, 1, 3) = '`+txn.ForkDue+`' AND s.id > {1} ORDER BY s.id LIMIT {2}`)

	findLeft = dialect.Both("", `
		SELECT s.id FROM sessions s {by sessions_reverts_left} WHERE s.reverts_left <> '' AND s.forks = '' AND s.id > {1} ORDER BY s.id LIMIT {2}`)
)

// RemoveReverted removes rows that settled reverts hid: at most most, of one session, in a transaction. more
// reports that there may be others.
func (s *Upkeep) RemoveReverted(ctx context.Context, most int) (more bool, err error) {
	var ids []string
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(findLeft, nil, []any{"", int64(1)}, dialect.Collect(&ids, dialect.ScanText))
		return nil
	})
	if err == nil && len(ids) > 0 {
		more = true
		err = s.db.Update(ctx, func(t *txn.Tx) error { return t.RemoveReverted(ctx, ids[0], max(most, 1)) })
	}
	return more && err == nil, txn.Wrap("remove what was reverted", err)
}

// Forks returns the forks that are being copied, those with greater ids than after, at most limit.
func (s *Upkeep) Forks(ctx context.Context, after string, limit int) (list []session.ForkDue, err error) {
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(findForks, nil, []any{after, int64(limit)}, func(row dialect.Scanner) error {
			var s session.Row
			var forks string
			err := row.Scan(&s.ID, &forks)
			if err == nil {
				err = txn.ScanForks(&s, forks)
			}
			if err == nil && s.Forking != nil {
				list = append(list, s.Forking.Due(s.ID))
			}
			return err
		})
		return nil
	})
	return list, txn.Wrap("find forks", err)
}
