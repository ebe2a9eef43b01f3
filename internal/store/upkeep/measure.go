// The bytes stored in sessions: bytes removed from their logs are subtracted, and unknown sums are
// measured.

package upkeep

import (
	"context"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	measureLog   = dialect.Both("", `SELECT `+txn.StoredBytes+` FROM events v WHERE v.session = {1} AND v.cursor > {2}`)
	measureState = dialect.Both("", `
		SELECT CAST(coalesce(sum(length(e.payload)), 0) AS bigint) FROM entries e WHERE e.session = {1} AND e.cursor <= {2}`)
	setMeasured = dialect.Both("", `UPDATE sessions SET bytes = {2}, spared = {3} WHERE id = {1}`)
	// A ref that reaches other sessions is not measured: its count is of all of them, and exact, since no server that
	// does not keep it has known such refs.
	clearGrants   = dialect.Both("", `UPDATE grants SET bytes = 0 WHERE target = {1} AND bytes > 0 AND reach = 0`)
	measureGrants = dialect.Both("", `
		UPDATE grants SET bytes = f.n FROM (
			SELECT v.ref, `+txn.StoredBytes+` AS n FROM events v WHERE v.session = {1} AND v.cursor > {2} GROUP BY v.ref) AS f
		WHERE `+txn.EventGrant+` AND owner = 0 AND reach = 0`)
	exemptGrants = dialect.Both("", `UPDATE grants SET spared = bytes WHERE target = {1} AND bytes > 0 AND reach = 0`)

	listUnmeasured = dialect.Both("", `SELECT s.id FROM sessions s WHERE s.spared < 0 ORDER BY s.id LIMIT {1}`)
)

// Unmeasured returns sessions whose size is unknown, at most limit: created before sizes were
// counted, or since then by a server of the previous version.
func (s *Upkeep) Unmeasured(ctx context.Context, limit int) (ids []string, err error) {
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(listUnmeasured, nil, []any{int64(limit)}, dialect.Collect(&ids, dialect.ScanText))
		return nil
	})
	return ids, txn.Wrap("find sessions to measure", err)
}

// Measure computes the bytes stored in a session, under its row's lock, and returns them. It reads
// all of the log except payloads. The bytes found the first time are exempt from quotas.
func (s *Upkeep) Measure(ctx context.Context, id string) (bytes int64, err error) {
	leave, err := s.db.Locks.Acquire(ctx, id)
	if err != nil {
		return 0, txn.Wrap("measure", err)
	}
	defer leave()
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		var row *session.Row
		txn.QueueRow(t.Run, txn.LockSessions, id, &row)
		if err := t.Run.Flush(ctx); err != nil || row == nil {
			return err
		}
		var log, state int64
		t.Run.Queue(measureLog, nil, []any{id, int64(row.Base)}, func(found dialect.Scanner) error { return found.Scan(&log) })
		t.Run.Queue(measureState, nil, []any{id, int64(row.Base)}, func(found dialect.Scanner) error { return found.Scan(&state) })
		t.Run.Queue(clearGrants, nil, []any{id}, nil)
		t.Run.Queue(measureGrants, nil, []any{id, int64(row.Base)}, nil)
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		bytes = log + state
		spared := row.ExemptBytes
		if spared < 0 {
			spared = bytes
			t.Run.Queue(exemptGrants, nil, []any{id}, nil)
		}
		t.Run.Queue(setMeasured, nil, []any{id, bytes, spared}, nil)
		return nil
	})
	return bytes, txn.Wrap("measure", err)
}
