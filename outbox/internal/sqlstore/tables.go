package sqlstore

// The SQL that both databases share, each statement beside its scan.

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
)

// Values of a batch row's state. In flight counts only with a seq.
const (
	RowPending = iota
	RowInFlight
	RowFinished
)

// BatchRow is one row of mooring_outbox_batch.
type BatchRow struct {
	Num       int64
	ID        string
	Session   string
	Via       string
	State     int
	FirstSeq  *int64 // nil: no seq yet; 0: finished without being sent
	Ops       int
	Bytes     int64
	Created   int64
	Finished  int64
	Attempts  int
	NextRetry int64
	Dropping  bool
	LastError string
	Body      []byte
	Outcomes  []byte
}

// Sequenced reports whether the row has seqs.
func (r *BatchRow) Sequenced() bool { return r.FirstSeq != nil && *r.FirstSeq > 0 }

// Entry returns the row as an entry of the machine, without a route.
func (r *BatchRow) Entry(bd *intent.Batch, pin uint64) *machine.Entry {
	e := &machine.Entry{Num: r.Num, ID: r.ID, Session: r.Session, Via: r.Via, SeqCount: bd.SeqCount(), Bytes: len(r.Body), PinSeq: pin,
		Body: bd, MarkedInFlight: r.State == RowInFlight, Attempts: r.Attempts}
	if r.Sequenced() {
		e.FirstSeq = uint64(*r.FirstSeq)
	}
	e.WireBatch = bd.Wire(e.Session, e.ID, e.FirstSeq)
	return e
}

// BySession groups rows by session.
func BySession(rows []*BatchRow) map[string][]*BatchRow {
	by := make(map[string][]*BatchRow)
	for _, r := range rows {
		by[r.Session] = append(by[r.Session], r)
	}
	return by
}

const batchColumns = `num, batch, session, via, state, first_seq, ops, bytes, created_at, finished_at,
	attempts, next_retry_at, dropping, last_error, body, outcomes`

func scanBatch(scan Scanner) (*BatchRow, error) {
	var r BatchRow
	var dropping int
	err := scan(&r.Num, &r.ID, &r.Session, &r.Via, &r.State, &r.FirstSeq, &r.Ops, &r.Bytes, &r.Created, &r.Finished,
		&r.Attempts, &r.NextRetry, &dropping, &r.LastError, &r.Body, &r.Outcomes)
	r.Dropping = dropping != 0
	return &r, err
}

// Tables has the statements of one outbox.
type Tables struct {
	DB       Database
	Box      int64
	HolderID string // names the Box as the lease's holder
}

// BoxRow is the changing part of the outbox's own row.
type BoxRow struct {
	Incarnation int64
	Holder      string
	LeaseUntil  int64
	LeaseFor    int64 // its duration without renewal, ms; 0 not known
	HolderPID   int64
	LowWater    int64
	Drops       int64
}

const sqlBox = `SELECT incarnation, holder, lease_until, lease_for, holder_pid, low, drops FROM mooring_outbox WHERE box = $1`

func (t *Tables) ReadBox(ctx context.Context, q Querier, lock string) (BoxRow, error) {
	var b BoxRow
	found := false
	err := q.Query(ctx, sqlBox+lock, []any{t.Box}, func(scan Scanner) error {
		found = true
		return scan(&b.Incarnation, &b.Holder, &b.LeaseUntil, &b.LeaseFor, &b.HolderPID, &b.LowWater, &b.Drops)
	})
	if err == nil && !found {
		err = fault.NotFound.With("the outbox was removed from its database")
	}
	return b, err
}

const sqlInsertBox = `INSERT INTO mooring_outbox (name, id, secret) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING`

const sqlBoxNamed = `SELECT box, id, secret, old_secret FROM mooring_outbox WHERE name = $1`

// boxIdentity is the constant part of the outbox's own row.
type boxIdentity struct {
	Box       int64
	ID        string
	Secret    []byte
	OldSecret []byte // a secret that was itself shown to servers; nil if none was
}

// OpenBox reads the outbox called name, or creates it with a new id and secret.
func OpenBox(ctx context.Context, db Database, name string) (b boxIdentity, err error) {
	find := func(q Querier) error {
		return q.Query(ctx, sqlBoxNamed, []any{name}, func(scan Scanner) error { return scan(&b.Box, &b.ID, &b.Secret, &b.OldSecret) })
	}
	if err := db.Read(ctx, find); err != nil || b.Box != 0 {
		return b, err
	}
	id, secret := "obx_"+ulid.Make().String(), capability.NewSecret().Reveal()
	_, err = db.Write(ctx, func(q Querier) error {
		if _, err := q.Exec(ctx, sqlInsertBox, name, id, secret); err != nil {
			return err
		}
		return find(q)
	})
	return b, err
}

// sqlInsertBatch sets the seq only if the lease is still this Box's and no row of the session
// is unsequenced: else this row waits behind it.
const sqlInsertBatch = `INSERT INTO mooring_outbox_batch (box, batch, session, via, ops, bytes, created_at, body, state, first_seq)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, (
		SELECT CAST($10 AS BIGINT) FROM mooring_outbox WHERE box = $1 AND holder = $11 AND NOT EXISTS (
			SELECT 1 FROM mooring_outbox_batch WHERE box = $1 AND session = $3 AND first_seq IS NULL)))
	RETURNING num, first_seq, (SELECT count(*) FROM mooring_outbox WHERE box = $1 AND holder = $11)`

// InsertBatch writes a new row, with seqs from first if that is not 0. got is called with its
// num and whether it got them; isHolder, unless it is nil, is set to whether the lease is this
// Box's. An id that exists already fails the transaction with ErrUnique.
func (t *Tables) InsertBatch(q Querier, r *BatchRow, first uint64, isHolder *bool, got func(num int64, sequenced bool)) {
	q.Enqueue(sqlInsertBatch, t.insertArgs(r, first), func(scan Scanner) error {
		var num, leases int64
		var seq *int64
		if err := scan(&num, &seq, &leases); err != nil {
			return err
		}
		if isHolder != nil {
			*isHolder = leases > 0
		}
		got(num, seq != nil)
		return nil
	})
}

// Insert writes a new row without seqs, and returns its num.
func (t *Tables) Insert(ctx context.Context, q Querier, r *BatchRow) (num int64, err error) {
	var seq *int64
	var leases int64 // the number of leases does not matter here
	err = q.Query(ctx, sqlInsertBatch, t.insertArgs(r, 0), func(scan Scanner) error { return scan(&num, &seq, &leases) })
	return num, err
}

func (t *Tables) insertArgs(r *BatchRow, first uint64) []any {
	var give *int64
	state := RowPending
	if first > 0 {
		f := int64(first)
		give, state = &f, RowInFlight
	}
	return []any{t.Box, r.ID, r.Session, r.Via, r.Ops, r.Bytes, r.Created, r.Body, state, give, t.HolderID}
}

// sqlInsertIfNew must not fail on an existing key: that would abort the caller's transaction.
const sqlInsertIfNew = `INSERT INTO mooring_outbox_batch (box, batch, session, via, ops, bytes, created_at, body)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (box, batch) DO NOTHING`

// InsertIfNew writes a new row without seqs; false if its id exists already.
func (t *Tables) InsertIfNew(ctx context.Context, q Querier, r *BatchRow) (bool, error) {
	n, err := q.Exec(ctx, sqlInsertIfNew, t.Box, r.ID, r.Session, r.Via, r.Ops, r.Bytes, r.Created, r.Body)
	return n > 0, err
}

const sqlInsertOp = `INSERT INTO mooring_outbox_op (box, op, batch) VALUES ($1, $2, $3)`

func (t *Tables) IndexOp(q Querier, op, batch string) {
	q.Enqueue(sqlInsertOp, []any{t.Box, op, batch}, nil)
}

const sqlInsertRetry = `INSERT INTO mooring_outbox_retry (box, op, next) VALUES ($1, $2, $3)`

func (t *Tables) InsertRetry(q Querier, op, next string) {
	q.Enqueue(sqlInsertRetry, []any{t.Box, op, next}, nil)
}

const sqlBatch = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch WHERE box = $1 AND batch = $2`

// Batch reads one row by its batch id; nil if it is not there. lock is "" or the dialect's
// LockRows.
func (t *Tables) Batch(ctx context.Context, q Querier, id, lock string) (*BatchRow, error) {
	return t.oneBatch(ctx, q, sqlBatch+lock, t.Box, id)
}

const sqlBatchNum = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch WHERE box = $1 AND num = $2`

func (t *Tables) BatchNum(ctx context.Context, q Querier, num int64, lock string) (*BatchRow, error) {
	return t.oneBatch(ctx, q, sqlBatchNum+lock, t.Box, num)
}

func (t *Tables) oneBatch(ctx context.Context, q Querier, sql string, args ...any) (r *BatchRow, err error) {
	err = q.Query(ctx, sql, args, func(scan Scanner) (err error) {
		r, err = scanBatch(scan)
		return err
	})
	return r, err
}

const (
	// The cast keeps SQLite from compiling the statement anew for each limit.
	sqlUnsequencedSizes = `SELECT num, bytes FROM mooring_outbox_batch
		WHERE box = $1 AND session = $2 AND first_seq IS NULL ORDER BY num LIMIT CAST($3 AS BIGINT)`
	sqlUnsequenced = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch
		WHERE box = $1 AND session = $2 AND first_seq IS NULL AND num <= $3 ORDER BY num`
)

// LockUnsequenced reads and locks the session's first rows without a seq: at most limit, and at
// most one beyond bytes. more reports that there are others.
func (t *Tables) LockUnsequenced(ctx context.Context, q Querier, session string, limit, bytes int) (rows []*BatchRow, more bool, err error) {
	n, last := 0, int64(-1)
	err = q.Query(ctx, sqlUnsequencedSizes, []any{t.Box, session, limit + 1}, func(scan Scanner) error {
		var num, size int64
		if err := scan(&num, &size); err != nil {
			return err
		}
		if n++; n > limit || n > 1 && bytes <= 0 {
			more = true
			return nil
		}
		bytes -= int(size)
		last = num
		return nil
	})
	if err != nil || n == 0 {
		return nil, false, err
	}
	rows, err = t.Batches(ctx, q, sqlUnsequenced+t.DB.LockRows(), t.Box, session, last)
	return rows, more, err
}

func (t *Tables) Batches(ctx context.Context, q Querier, sql string, args ...any) (rows []*BatchRow, err error) {
	err = q.Query(ctx, sql, args, func(scan Scanner) error {
		r, err := scanBatch(scan)
		rows = append(rows, r)
		return err
	})
	return rows, err
}

// sqlUnsequencedSessions takes one index step per session, not per row.
const sqlUnsequencedSessions = `WITH RECURSIVE s (session) AS (
		SELECT (SELECT MIN(session) FROM mooring_outbox_batch WHERE box = $1 AND first_seq IS NULL)
	UNION ALL
		SELECT (SELECT MIN(b.session) FROM mooring_outbox_batch b
			WHERE b.box = $1 AND b.first_seq IS NULL AND b.session > s.session)
		FROM s WHERE s.session IS NOT NULL)
	SELECT session FROM s WHERE session IS NOT NULL`

// UnsequencedSessions lists the sessions that have rows without a seq.
func (t *Tables) UnsequencedSessions(ctx context.Context, q Querier) ([]string, error) {
	return column[string](ctx, q, sqlUnsequencedSessions, t.Box)
}

const (
	sqlSetSeq     = `UPDATE mooring_outbox_batch SET first_seq = $3, state = $4 WHERE box = $1 AND num = $2`
	sqlSetSeqBody = `UPDATE mooring_outbox_batch SET first_seq = $3, state = $4, body = $5, bytes = $6,
		failed = $7, skipped = $8, voided = $9 WHERE box = $1 AND num = $2`
)

// SetSeq sets a row's seqs, and its body unless that is nil, with the tally n of its decided
// ops.
func (t *Tables) SetSeq(q Querier, num, first int64, body []byte, n intent.Tally) {
	args := []any{t.Box, num, first, RowInFlight}
	if body == nil {
		q.Enqueue(sqlSetSeq, args, nil)
		return
	}
	q.Enqueue(sqlSetSeqBody, append(args, body, len(body), n.Failed, n.Skipped, n.Voided), nil)
}

const sqlSetBody = `UPDATE mooring_outbox_batch SET body = $3, bytes = $4, dropping = $5,
	failed = $6, skipped = $7, voided = $8 WHERE box = $1 AND num = $2`

// SetBody sets an unfinished row's body, with the tally n of its decided ops.
func (t *Tables) SetBody(q Querier, num int64, body []byte, n intent.Tally, dropping bool) {
	flag := 0
	if dropping {
		flag = 1
	}
	q.Enqueue(sqlSetBody, []any{t.Box, num, body, len(body), flag, n.Failed, n.Skipped, n.Voided}, nil)
}

const sqlSetTally = `UPDATE mooring_outbox_batch SET failed = $3, skipped = $4, voided = $5 WHERE box = $1 AND batch = $2`

// SetTally stores the tally of a new batch's decided ops, if there are any.
func (t *Tables) SetTally(q Querier, batch string, n intent.Tally) {
	if n != (intent.Tally{}) {
		q.Enqueue(sqlSetTally, []any{t.Box, batch, n.Failed, n.Skipped, n.Voided}, nil)
	}
}

const sqlLowerLowWater = `UPDATE mooring_outbox SET low = $2 WHERE box = $1 AND low > $2`

// LowerLowWater lowers the low-water mark, below which all rows with a seq are finished.
func (t *Tables) LowerLowWater(q Querier, num int64) {
	q.Enqueue(sqlLowerLowWater, []any{t.Box, num}, nil)
}

const sqlRaiseLowWater = `UPDATE mooring_outbox SET low = COALESCE(
		(SELECT MIN(num) FROM mooring_outbox_batch WHERE box = $1 AND num >= mooring_outbox.low AND state < 2 AND first_seq > 0),
		(SELECT MAX(num) + 1 FROM mooring_outbox_batch WHERE box = $1), low)
	WHERE box = $1 AND holder = $2`

// RaiseLowWater raises the low-water mark to the first unfinished row with a seq: a row without
// one, as for a server that is away for weeks, does not hold it down. Only the sender may do
// that, in transactions that allocate seqs.
func (t *Tables) RaiseLowWater(q Querier) { q.Enqueue(sqlRaiseLowWater, []any{t.Box, t.HolderID}, nil) }

const (
	SQLFinish = `UPDATE mooring_outbox_batch SET state = 2, finished_at = $3, failed = $4, skipped = $5, voided = $6,
			attempts = $7, outcomes = $8, first_seq = COALESCE(first_seq, 0), next_retry_at = 0, dropping = 0
		WHERE box = $1 AND num = $2 AND state < 2`
	SQLFinishBody = `UPDATE mooring_outbox_batch SET state = 2, finished_at = $3, failed = $4, skipped = $5, voided = $6,
			attempts = $7, outcomes = $8, first_seq = COALESCE(first_seq, 0), next_retry_at = 0, dropping = 0, body = $9
		WHERE box = $1 AND num = $2 AND state < 2`
)

// Finish stores a batch's outcomes, and another body unless that is nil. A row that is finished
// already stays as it is.
func (t *Tables) Finish(q Querier, num, at int64, n intent.Tally, attempts int, outcomes, body []byte) {
	args := []any{t.Box, num, at, n.Failed, n.Skipped, n.Voided, attempts, outcomes}
	if body == nil {
		q.Enqueue(SQLFinish, args, nil)
		return
	}
	q.Enqueue(SQLFinishBody, append(args, body), nil)
}

// A former holder of the lease may no longer write about rows and streams.
const (
	ifHolder         = ` EXISTS (SELECT 1 FROM mooring_outbox WHERE box = $1 AND holder = $2)`
	sqlMarkInFlight  = `UPDATE mooring_outbox_batch SET state = 1 WHERE box = $1 AND num = $3 AND state = 0 AND` + ifHolder
	sqlRecordAttempt = `UPDATE mooring_outbox_batch SET attempts = $4, next_retry_at = $5, last_error = $6
		WHERE box = $1 AND num = $3 AND state < 2 AND` + ifHolder
)

// MarkInFlight is for a row that a takeover made pending and that was sent again.
func (t *Tables) MarkInFlight(q Querier, num int64) {
	q.Enqueue(sqlMarkInFlight, []any{t.Box, t.HolderID, num}, nil)
}

// RecordAttempt stores why a row is still unanswered.
func (t *Tables) RecordAttempt(q Querier, num int64, attempts int, nextRetry int64, lastError string) {
	q.Enqueue(sqlRecordAttempt, []any{t.Box, t.HolderID, num, attempts, nextRetry, ColumnText(lastError)}, nil)
}

// MaxColumnText bounds a text column, in bytes.
const MaxColumnText = 1024

// ColumnText makes any text fit for a column: a peer's message may hold bytes that Postgres
// refuses (a NUL, invalid UTF-8) and may be long.
func ColumnText(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	if len(s) <= MaxColumnText {
		return s
	}
	cut := MaxColumnText
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + " …"
}

const sqlInFlight = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch
	WHERE box = $1 AND num >= $2 AND state < 2 AND first_seq > 0 ORDER BY first_seq`

// InFlight reads the rows that have seqs and no outcomes, from num low on, in the order of
// their seqs: a row that became visible late has a lower num than others before it.
func (t *Tables) InFlight(ctx context.Context, q Querier, low int64) ([]*BatchRow, error) {
	return t.Batches(ctx, q, sqlInFlight, t.Box, low)
}

var SQLUsage = `SELECT COALESCE(SUM(ops), 0), COALESCE(SUM(bytes), 0) FROM ` + unfinishedRows("ops, bytes")

// Usage counts unfinished ops and their bytes.
func (t *Tables) Usage(ctx context.Context, q Querier) (ops, bytes int64, err error) {
	err = q.Query(ctx, SQLUsage, []any{t.Box}, func(scan Scanner) error { return scan(&ops, &bytes) })
	return ops, bytes, err
}

// Decode decodes the row's body. The error is OutboxDamaged if the row is damaged, and
// Incompatible if only a newer binary can read it.
func (r *BatchRow) Decode() (*intent.Batch, error) {
	b, err := intent.Decode(r.Session, r.ID, r.Body)
	if err != nil {
		return nil, r.decodeErr(err, "")
	}
	return b, nil
}

// ReadOutcomes decodes the outcomes of a finished row with that body.
func (r *BatchRow) ReadOutcomes(b *intent.Batch) ([]ledger.Outcome, error) {
	outs, err := intent.DecodeOutcomes(r.Outcomes, b.Ops)
	if err != nil {
		return nil, r.decodeErr(err, ": its outcomes are lost")
	}
	return outs, nil
}

func (r *BatchRow) decodeErr(err error, what string) error {
	if errors.Is(err, intent.ErrNewerVersion) {
		return fault.Incompatible.Because(err, "the row of batch %s was written by a newer version of this program: use that one", r.ID)
	}
	return fault.OutboxDamaged.Because(err, "the row of batch %s is damaged%s", r.ID, what)
}

// Seqs returns the seqs of a row's ops; 0 for an op without one.
func (r *BatchRow) Seqs(bd *intent.Batch) []uint64 {
	seqs := make([]uint64, len(bd.Ops))
	if !r.Sequenced() {
		return seqs
	}
	next := uint64(*r.FirstSeq)
	for i := range bd.Ops {
		if bd.Ops[i].TakesSeq() {
			seqs[i] = next
			next++
		}
	}
	return seqs
}

// PendingRotation returns the ref that is to replace old; nil if there is none.
func (t *Tables) PendingRotation(ctx context.Context, q Querier, old string) (ref *capability.Ref, err error) {
	err = q.Query(ctx, sqlRotating, []any{t.Box, old}, func(scan Scanner) error {
		row, err := scanRef(scan)
		if err != nil {
			return err
		}
		r, err := row.Ref()
		if err != nil {
			return fault.OutboxDamaged.Because(err, "a stored ref is damaged")
		}
		ref = &r
		return nil
	})
	return ref, err
}

const sqlRotating = `SELECT ` + refColumns + ` FROM mooring_outbox_ref WHERE box = $1 AND role = '` + string(refs.RoleRotating) + `' AND label = $2`

const (
	whereInFlight = ` WHERE box = $1 AND num >= (SELECT low FROM mooring_outbox WHERE box = $1)
		AND session = $2 AND state < 2 AND first_seq > 0`
	sqlInFlightOf = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch` + whereInFlight
	sqlClearSeqs  = `UPDATE mooring_outbox_batch SET first_seq = NULL, state = 0, dropping = 0` + whereInFlight
)

// ClearSeqs clears the seqs of a session's rows, and voids the ops to be dropped.
func (t *Tables) ClearSeqs(ctx context.Context, q Querier, session string) error {
	rows, err := t.Batches(ctx, q, sqlInFlightOf+t.DB.LockRows(), t.Box, session)
	for _, r := range rows {
		if bd, err := r.Decode(); err == nil && bd.VoidRequestedDrops() {
			t.SetBody(q, r.Num, bd.Encode(r.Session, r.ID), bd.Tally(), false)
		}
	}
	if err == nil {
		q.Enqueue(sqlClearSeqs, []any{t.Box, session}, nil)
	}
	return err
}
