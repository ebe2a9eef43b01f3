// The number of sessions, and the bytes stored in them.

package upkeep

import (
	"context"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

// countSessions sums the next {2} sessions after id {1}.
var countSessions = dialect.Both("", `
	SELECT coalesce(max(p.id), ''),
		CAST(coalesce(sum(CASE WHEN p.life = 1 THEN 1 ELSE 0 END), 0) AS bigint),
		CAST(coalesce(sum(CASE WHEN p.life = 2 THEN 1 ELSE 0 END), 0) AS bigint),
		CAST(coalesce(sum(p.cursor - p.base), 0) AS bigint),
		CAST(coalesce(sum(p.bytes), 0) AS bigint)
	FROM (SELECT s.id, s.life, s.cursor, s.base, s.bytes FROM sessions s WHERE s.id > {1} ORDER BY s.id LIMIT {2}) AS p`)

// Totals sums the next limit sessions after id after (in id order). next is the id to continue
// after; "" reports that there were none.
func (s *Upkeep) Totals(ctx context.Context, after string, limit int) (t session.Totals, next string, err error) {
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(countSessions, nil, []any{after, int64(limit)}, func(row dialect.Scanner) error {
			return row.Scan(&next, &t.Live, &t.Deleted, &t.Events, &t.Bytes)
		})
		return nil
	})
	return t, next, txn.Wrap("count sessions", err)
}
