package sqlstore

// The rows of streams: what has stopped, and a stream's place being taken by another.

import (
	"context"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
)

// A stop stored by the former sender does not count: the next begins by trying again.
const (
	fromStopped = ` FROM mooring_outbox_stream s JOIN mooring_outbox o ON o.box = s.box
		WHERE s.box = $1 AND s.stopped > 0 AND o.holder <> '' AND o.lease_until > $2`
	sqlStopped    = `SELECT s.stopped, s.reason` + fromStopped + ` AND s.session = $3`
	SQLAnyStopped = `SELECT 1` + fromStopped + ` LIMIT 1`
)

// Stopped returns why a session's stream has stopped, by the leases' clock; None if it has not.
func (t *Tables) Stopped(ctx context.Context, q Querier, now int64, session string) (code fault.Code, reason string, err error) {
	return t.why(ctx, q, sqlStopped, t.Box, now, session)
}

// why reads a code and its text; None if there is no row.
func (t *Tables) why(ctx context.Context, q Querier, sql string, args ...any) (code fault.Code, reason string, err error) {
	err = q.Query(ctx, sql, args, func(scan Scanner) error {
		var n int
		err := scan(&n, &reason)
		code = fault.Code(n)
		return err
	})
	return code, reason, err
}

// AnyStopped reports whether any stream has stopped.
func (t *Tables) AnyStopped(ctx context.Context, q Querier, now int64) (some bool, err error) {
	err = q.Query(ctx, SQLAnyStopped, []any{t.Box, now}, func(Scanner) error { some = true; return nil })
	return some, err
}

const sqlHalted = `SELECT CASE WHEN stopped > 0 THEN stopped ELSE halted END, CASE WHEN stopped > 0 THEN reason ELSE halted_reason END
	FROM mooring_outbox_stream WHERE box = $1 AND session = $2`

// Halted returns why a stream has stopped, or had stopped for good before its sender's term.
func (t *Tables) Halted(ctx context.Context, q Querier, session string) (code fault.Code, reason string, err error) {
	return t.why(ctx, q, sqlHalted, t.Box, session)
}

const (
	sqlRestart = `INSERT INTO mooring_outbox_stream (box, session, life, since) VALUES ($1, $2, $3, $4)
		ON CONFLICT (box, session) DO UPDATE SET life = excluded.life, since = excluded.since, last_seq = 0,
			stopped = 0, reason = '', halted = 0, halted_reason = ''`
	// The seqs of finished rows were those of the old stream.
	sqlClearFinishedSeqs = `UPDATE mooring_outbox_batch SET first_seq = 0 WHERE box = $1 AND session = $2 AND state = 2 AND first_seq > 0`
	sqlRevokeLease       = `UPDATE mooring_outbox SET incarnation = incarnation + 1, holder = '', lease_until = 0, holder_pid = 0 WHERE box = $1`

	sqlUnfinishedNums = `SELECT num FROM mooring_outbox_batch WHERE box = $1 AND session = $2 AND state < 2 ORDER BY num`
)

// Restart begins a session's next stream, under an incarnation, and takes the lease away.
func (t *Tables) Restart(q Querier, session string, since int64) {
	q.Enqueue(sqlRestart, []any{t.Box, session, ulid.Make().String(), since}, nil)
	q.Enqueue(sqlClearFinishedSeqs, []any{t.Box, session}, nil)
	q.Enqueue(sqlRevokeLease, []any{t.Box}, nil)
}

// LockUnfinished reads and locks a session's rows without outcomes, in the order in which they
// were committed.
func (t *Tables) LockUnfinished(ctx context.Context, q Querier, session string) (rows []*BatchRow, err error) {
	var nums []int64
	err = q.Query(ctx, sqlUnfinishedNums, []any{t.Box, session}, func(scan Scanner) error {
		var num int64
		err := scan(&num)
		nums = append(nums, num)
		return err
	})
	for _, num := range nums {
		var r *BatchRow
		if err == nil {
			r, err = t.BatchNum(ctx, q, num, t.DB.LockRows())
		}
		if r != nil && r.State != RowFinished {
			rows = append(rows, r)
		}
	}
	return rows, err
}

const sqlKnowsSession = `SELECT 1 FROM mooring_outbox_stream WHERE box = $1 AND session = $2
	UNION ALL SELECT 1 FROM mooring_outbox_batch WHERE box = $1 AND session = $2 LIMIT 1`

// KnowsSession reports whether the outbox has anything of a session.
func (t *Tables) KnowsSession(ctx context.Context, q Querier, session string) (known bool, err error) {
	err = q.Query(ctx, sqlKnowsSession, []any{t.Box, session}, func(Scanner) error { known = true; return nil })
	return known, err
}

const sqlClearSeq = `UPDATE mooring_outbox_batch SET first_seq = NULL, state = 0, dropping = 0, attempts = 0, next_retry_at = 0, last_error = ''
	WHERE box = $1 AND num = $2 AND state < 2`

// ClearSeq takes an unfinished row's seqs away.
func (t *Tables) ClearSeq(q Querier, num int64) { q.Enqueue(sqlClearSeq, []any{t.Box, num}, nil) }

const sqlStage = `SELECT session, state, first_seq FROM mooring_outbox_batch WHERE box = $1 AND batch = $2`

// Stage reads how far a batch is, without its ops; nil if it is not there.
func (t *Tables) Stage(ctx context.Context, q Querier, batch string) (r *BatchRow, err error) {
	err = q.Query(ctx, sqlStage, []any{t.Box, batch}, func(scan Scanner) error {
		r = new(BatchRow)
		return scan(&r.Session, &r.State, &r.FirstSeq)
	})
	return r, err
}

const SQLNextUnsequenced = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch
	WHERE box = $1 AND session = $2 AND first_seq IS NULL ORDER BY num LIMIT 1`

// NextUnsequenced returns a session's first row without a seq; nil if it has none.
func (t *Tables) NextUnsequenced(ctx context.Context, q Querier, session string) (*BatchRow, error) {
	return t.oneBatch(ctx, q, SQLNextUnsequenced, t.Box, session)
}

const sqlBatchWithSeq = `SELECT num FROM mooring_outbox_batch WHERE box = $1 AND session = $2 AND first_seq > 0 AND first_seq <= $3
	ORDER BY first_seq DESC LIMIT 1`

// BatchAt returns the row of a session whose seqs begin last, up to seq; nil if there is none.
func (t *Tables) BatchAt(ctx context.Context, q Querier, session string, seq uint64) (*BatchRow, error) {
	num := int64(-1)
	err := q.Query(ctx, sqlBatchWithSeq, []any{t.Box, session, int64(seq)}, func(scan Scanner) error { return scan(&num) })
	if err != nil || num < 0 {
		return nil, err
	}
	return t.BatchNum(ctx, q, num, "")
}
