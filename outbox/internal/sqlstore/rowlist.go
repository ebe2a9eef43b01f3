package sqlstore

// Reads of Status and List: counts, unfinished streams and pages of rows.

import (
	"context"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
)

// unfinishedRows is a table expression for the rows that have no outcome yet. It does not read
// the finished ones: rows below the low-water mark have no seq or are finished. (num + 0 keeps
// the databases from walking all rows below the mark.)
func unfinishedRows(columns string) string {
	return `(SELECT ` + columns + ` FROM mooring_outbox_batch
			WHERE box = $1 AND state < 2 AND num >= (SELECT low FROM mooring_outbox WHERE box = $1)
		UNION ALL SELECT ` + columns + ` FROM mooring_outbox_batch
			WHERE box = $1 AND first_seq IS NULL AND num + 0 < (SELECT low FROM mooring_outbox WHERE box = $1)) AS unfinished`
}

var (
	SQLPendingCounts = `SELECT CASE WHEN state = 1 AND first_seq > 0 THEN 1 ELSE 0 END, SUM(ops), SUM(bytes),
			SUM(failed), SUM(skipped), SUM(voided)
		FROM ` + unfinishedRows("state, first_seq, ops, bytes, failed, skipped, voided") + ` GROUP BY 1`
	SQLStreams = `SELECT b.session, b.ops, b.seq, b.attempts, b.next_retry_at, b.last_error, COALESCE(s.stopped, 0), COALESCE(s.reason, '')
		FROM (SELECT session, SUM(ops - failed - skipped - voided) AS ops, COALESCE(MAX(first_seq), 0) AS seq,
				MAX(attempts) AS attempts, MAX(next_retry_at) AS next_retry_at, MAX(last_error) AS last_error
			FROM ` + unfinishedRows("session, ops, failed, skipped, voided, first_seq, attempts, next_retry_at, last_error") + ` GROUP BY session) b
		LEFT JOIN mooring_outbox_stream s ON s.box = $1 AND s.session = b.session ORDER BY b.session`
)

const SQLFinishedCounts = `SELECT COALESCE(SUM(ops), 0), COALESCE(SUM(failed), 0), COALESCE(SUM(skipped), 0), COALESCE(SUM(voided), 0)
	FROM mooring_outbox_batch WHERE box = $1 AND state = 2`

// unfinishedStream is the state of a session that has unfinished rows.
type unfinishedStream struct {
	Session    string
	Unfinished int   // ops
	MaxSeq     int64 // highest seq of the unfinished rows; 0 for none
	Attempts   int
	NextRetry  int64
	LastError  string // why it stopped, if it has stopped
	Stopped    fault.Code
}

// UnfinishedStreams lists the sessions that have unfinished rows.
func (t *Tables) UnfinishedStreams(ctx context.Context, q Querier) (streams []unfinishedStream, err error) {
	err = q.Query(ctx, SQLStreams, []any{t.Box}, func(scan Scanner) error {
		var s unfinishedStream
		var code int
		var reason string
		if err := scan(&s.Session, &s.Unfinished, &s.MaxSeq, &s.Attempts, &s.NextRetry, &s.LastError, &code, &reason); err != nil {
			return err
		}
		if s.Stopped = fault.Code(code); s.Stopped != fault.None {
			s.LastError, s.NextRetry = reason, 0
		}
		streams = append(streams, s)
		return nil
	})
	return streams, err
}

// UnfinishedCounts counts the unfinished rows' ops, in flight and not.
func (t *Tables) UnfinishedCounts(ctx context.Context, q Querier, add func(inFlight bool, ops int, bytes int64, n intent.Tally)) error {
	return q.Query(ctx, SQLPendingCounts, []any{t.Box}, func(scan Scanner) error {
		var inFlight, ops int
		var bytes int64
		var n intent.Tally
		if err := scan(&inFlight, &ops, &bytes, &n.Failed, &n.Skipped, &n.Voided); err != nil {
			return err
		}
		add(inFlight != 0, ops, bytes, n)
		return nil
	})
}

// FinishedCounts counts the finished rows' ops.
func (t *Tables) FinishedCounts(ctx context.Context, q Querier) (ops int, n intent.Tally, err error) {
	err = q.Query(ctx, SQLFinishedCounts, []any{t.Box}, func(scan Scanner) error { return scan(&ops, &n.Failed, &n.Skipped, &n.Voided) })
	return ops, n, err
}

// WhichRows are the rows that list reads.
type WhichRows int

const (
	AllRows WhichRows = iota
	UnfinishedOnly
	FailedOnly // rows with an op that failed, was skipped or dropped
)

var (
	SQLList       = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch WHERE box = $1 AND num > $2 AND ($3 = '' OR session = $3) ORDER BY num LIMIT 200`
	SQLListOpen   = `SELECT ` + batchColumns + ` FROM ` + unfinishedRows(batchColumns) + ` WHERE num > $2 AND ($3 = '' OR session = $3) ORDER BY num LIMIT 200`
	sqlListFailed = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch WHERE box = $1 AND num > $2 AND ($3 = '' OR session = $3)
		AND failed + skipped + voided > 0 ORDER BY num LIMIT 200`
)

// List reads a page of rows of a session, "" for all, behind the number after, in the order in which
// they were committed.
func (t *Tables) List(ctx context.Context, q Querier, which WhichRows, after int64, session string) ([]*BatchRow, error) {
	sql := SQLList
	switch which {
	case UnfinishedOnly:
		sql = SQLListOpen
	case FailedOnly:
		sql = sqlListFailed
	}
	return t.Batches(ctx, q, sql, t.Box, after, session)
}

const sqlSessions = `SELECT session FROM mooring_outbox_batch WHERE box = $1 GROUP BY session ORDER BY MIN(num)`

// Sessions lists the sessions that have rows, in the order in which they came.
func (t *Tables) Sessions(ctx context.Context, q Querier) (sessions []string, err error) {
	return column[string](ctx, q, sqlSessions, t.Box)
}

const sqlAnswered = `SELECT batch FROM mooring_outbox_batch WHERE box = $1 AND session = $2 AND state = 2`

// Answered lists a session's finished batches.
func (t *Tables) Answered(ctx context.Context, q Querier, session string) ([]string, error) {
	return column[string](ctx, q, sqlAnswered, t.Box, session)
}

const sqlStillUnfinished = `SELECT batch FROM mooring_outbox_batch WHERE box = $1 AND state < 2 AND `

// UnfinishedOf returns the unfinished ones of batches.
func (t *Tables) UnfinishedOf(ctx context.Context, q Querier, batches []string) ([]string, error) {
	among, arg := t.DB.InClause("batch", "$2", batches)
	return column[string](ctx, q, sqlStillUnfinished+among, t.Box, arg)
}

// column reads rows of one column.
func column[T any](ctx context.Context, q Querier, sql string, args ...any) (list []T, err error) {
	err = q.Query(ctx, sql, args, func(scan Scanner) error {
		var v T
		err := scan(&v)
		list = append(list, v)
		return err
	})
	return list, err
}

const sqlDropping = `SELECT num, session FROM mooring_outbox_batch
	WHERE box = $1 AND num >= $2 AND state < 2 AND dropping <> 0 AND first_seq > 0`

// Drop is a row with a seq in which an op is to be dropped.
type Drop struct {
	Num     int64
	Session string
}

func (t *Tables) Dropping(ctx context.Context, q Querier, low int64) (drops []Drop, err error) {
	err = q.Query(ctx, sqlDropping, []any{t.Box, low}, func(scan Scanner) error {
		var d Drop
		err := scan(&d.Num, &d.Session)
		drops = append(drops, d)
		return err
	})
	return drops, err
}

const sqlCountDrop = `UPDATE mooring_outbox SET drops = drops + 1 WHERE box = $1`

// AnnounceDrop notifies the sender, in whatever process, of a drop.
func (t *Tables) AnnounceDrop(q Querier, outbox string) {
	q.Enqueue(sqlCountDrop, []any{t.Box}, nil)
	t.DB.Notify(q, outbox)
}
