package sqlstore

// The rows of streams: how far a stream is, how it is reached, what has stopped, and a stream's place being taken by another.

import (
	"context"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
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
	nums, err := column[int64](ctx, q, sqlUnfinishedNums, t.Box, session)
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

// StreamRow is one row of mooring_outbox_stream.
type StreamRow struct {
	LastSeq  uint64
	SpaceRef string
	OwnerRef string
}

// CreateRoute is the route by which the session is created; the zero Route if that is done.
func (st StreamRow) CreateRoute() machine.Route {
	if st.SpaceRef == "" {
		return machine.Route{}
	}
	return machine.Route{Ref: st.OwnerRef, Space: st.SpaceRef}
}

const sqlStream = `SELECT last_seq, space_ref, owner_ref FROM mooring_outbox_stream WHERE box = $1 AND session = $2`

// Stream reads a stream's row; the zero row if it has none.
func (t *Tables) Stream(ctx context.Context, q Querier, session string) (s StreamRow, err error) {
	err = q.Query(ctx, sqlStream, []any{t.Box, session}, func(scan Scanner) error {
		var last int64
		err := scan(&last, &s.SpaceRef, &s.OwnerRef)
		s.LastSeq = uint64(last)
		return err
	})
	return s, err
}

const sqlStreamSecret = `SELECT old_secret, life FROM mooring_outbox_stream WHERE box = $1 AND session = $2`

// StreamSecretOf returns which secret the session's server knows the outbox by: its old one, or
// that of the session's present stream, which is its first if life is "".
func (t *Tables) StreamSecretOf(ctx context.Context, q Querier, session string) (old bool, life string, err error) {
	err = q.Query(ctx, sqlStreamSecret, []any{t.Box, session}, func(scan Scanner) error {
		var n int
		err := scan(&n, &life)
		old = n != 0 && life == ""
		return err
	})
	return old, life, err
}

const sqlSetHighWater = `INSERT INTO mooring_outbox_stream (box, session, last_seq) VALUES ($1, $2, $3)
	ON CONFLICT (box, session) DO UPDATE SET last_seq = excluded.last_seq, halted = 0, halted_reason = ''
	WHERE mooring_outbox_stream.last_seq < excluded.last_seq AND mooring_outbox_stream.since <= $4`

// SetHighWater stores the last seq whose outcome is stored, of the stream that was sent on
// under that incarnation.
func (t *Tables) SetHighWater(q Querier, session string, seq uint64, incarnation int64) {
	q.Enqueue(sqlSetHighWater, []any{t.Box, session, int64(seq), incarnation}, nil)
}

const sqlSetCreateRefs = `INSERT INTO mooring_outbox_stream (box, session, space_ref, owner_ref)
	SELECT box, session, CAST($3 AS TEXT), CAST($4 AS TEXT) FROM mooring_outbox_batch WHERE box = $1 AND num = $2 AND state < 2
	ON CONFLICT (box, session) DO UPDATE SET space_ref = excluded.space_ref, owner_ref = excluded.owner_ref`

// SetCreateRefs stores the refs through which a session is reached whose create, in row num,
// did not apply; none if it did. It goes before finish, and does nothing to a row that another
// process has finished: a later batch may have created the session since.
func (t *Tables) SetCreateRefs(q Querier, num int64, spaceRef, ownerRef string) {
	q.Enqueue(sqlSetCreateRefs, []any{t.Box, num, spaceRef, ownerRef}, nil)
}

const sqlSetStopped = `INSERT INTO mooring_outbox_stream (box, session, stopped, reason, halted, halted_reason)
	SELECT box, CAST($3 AS TEXT), CAST($4 AS INTEGER), CAST($5 AS TEXT), CAST($4 AS INTEGER), CAST($5 AS TEXT)
	FROM mooring_outbox WHERE box = $1 AND holder = $2
	ON CONFLICT (box, session) DO UPDATE SET stopped = excluded.stopped, reason = excluded.reason,
		halted = CASE WHEN excluded.stopped > 0 THEN excluded.halted ELSE mooring_outbox_stream.halted END,
		halted_reason = CASE WHEN excluded.stopped > 0 THEN excluded.halted_reason ELSE mooring_outbox_stream.halted_reason END`

// SetStopped stores why a stream stopped; None: it runs. It waits for a pending takeover, which
// resumes all streams.
func (t *Tables) SetStopped(q Querier, session string, code fault.Code, reason string) {
	t.DB.ShareLease(q, t.Box)
	q.Enqueue(sqlSetStopped, []any{t.Box, t.HolderID, session, int(code), ColumnText(reason)}, nil)
}
