package outbox

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
)

// Values of a batch row's state. In flight counts only with a seq.
const (
	rowPending = iota
	rowInFlight
	rowFinished
)

// batchRow is one row of mooring_outbox_batch.
type batchRow struct {
	num       int64
	id        string
	session   string
	via       string
	state     int
	firstSeq  *int64 // nil: no seq yet; 0: finished without being sent
	ops       int
	bytes     int64
	created   int64
	finished  int64
	attempts  int
	nextRetry int64
	dropping  bool
	lastError string
	body      []byte
	outcomes  []byte
}

// sequenced reports whether the row has seqs.
func (r *batchRow) sequenced() bool { return r.firstSeq != nil && *r.firstSeq > 0 }

const batchColumns = `num, batch, session, via, state, first_seq, ops, bytes, created_at, finished_at,
	attempts, next_retry_at, dropping, last_error, body, outcomes`

func scanBatch(scan scanner) (*batchRow, error) {
	var r batchRow
	var dropping int
	err := scan(&r.num, &r.id, &r.session, &r.via, &r.state, &r.firstSeq, &r.ops, &r.bytes, &r.created, &r.finished,
		&r.attempts, &r.nextRetry, &dropping, &r.lastError, &r.body, &r.outcomes)
	r.dropping = dropping != 0
	return &r, err
}

// tables has the statements of one outbox.
type tables struct {
	db       database
	box      int64
	holderID string // names the Box as the lease's holder
}

// boxRow is the changing part of the outbox's own row.
type boxRow struct {
	incarnation int64
	holder      string
	leaseUntil  int64
	leaseFor    int64 // its duration without renewal, ms; 0 not known
	holderPID   int64
	lowWater    int64
	drops       int64
}

const sqlBox = `SELECT incarnation, holder, lease_until, lease_for, holder_pid, low, drops FROM mooring_outbox WHERE box = $1`

func (t *tables) readBox(ctx context.Context, q querier, lock string) (boxRow, error) {
	var b boxRow
	found := false
	err := q.query(ctx, sqlBox+lock, []any{t.box}, func(scan scanner) error {
		found = true
		return scan(&b.incarnation, &b.holder, &b.leaseUntil, &b.leaseFor, &b.holderPID, &b.lowWater, &b.drops)
	})
	if err == nil && !found {
		err = fault.NotFound.With("the outbox is gone from its database")
	}
	return b, err
}

const sqlInsertBox = `INSERT INTO mooring_outbox (name, id, secret) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING`

const sqlBoxNamed = `SELECT box, id, secret, old_secret FROM mooring_outbox WHERE name = $1`

// boxIdentity is the constant part of the outbox's own row.
type boxIdentity struct {
	box       int64
	id        string
	secret    []byte
	oldSecret []byte // a secret that was itself shown to servers; nil if none was
}

// openBox reads the outbox called name, or creates it with a new id and secret.
func openBox(ctx context.Context, db database, name string) (b boxIdentity, err error) {
	find := func(q querier) error {
		return q.query(ctx, sqlBoxNamed, []any{name}, func(scan scanner) error { return scan(&b.box, &b.id, &b.secret, &b.oldSecret) })
	}
	if err := db.read(ctx, find); err != nil || b.box != 0 {
		return b, err
	}
	id, secret := "obx_"+ulid.Make().String(), capability.NewSecret().Reveal()
	_, err = db.write(ctx, func(q querier) error {
		if _, err := q.exec(ctx, sqlInsertBox, name, id, secret); err != nil {
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

// insertBatch writes a new row, with seqs from first if that is not 0. got is called with its
// num and whether it got them; held, unless it is nil, is set to whether the lease is this
// Box's. An id that exists already fails the transaction with errUnique.
func (t *tables) insertBatch(q querier, r *batchRow, first uint64, held *bool, got func(num int64, sequenced bool)) {
	q.enqueue(sqlInsertBatch, t.insertArgs(r, first), func(scan scanner) error {
		var num, leases int64
		var seq *int64
		if err := scan(&num, &seq, &leases); err != nil {
			return err
		}
		if held != nil {
			*held = leases > 0
		}
		got(num, seq != nil)
		return nil
	})
}

// insert writes a new row without seqs, and returns its num.
func (t *tables) insert(ctx context.Context, q querier, r *batchRow) (num int64, err error) {
	var seq *int64
	var leases int64 // the number of leases does not matter here
	err = q.query(ctx, sqlInsertBatch, t.insertArgs(r, 0), func(scan scanner) error { return scan(&num, &seq, &leases) })
	return num, err
}

func (t *tables) insertArgs(r *batchRow, first uint64) []any {
	var give *int64
	state := rowPending
	if first > 0 {
		f := int64(first)
		give, state = &f, rowInFlight
	}
	return []any{t.box, r.id, r.session, r.via, r.ops, r.bytes, r.created, r.body, state, give, t.holderID}
}

// sqlInsertIfNew must not fail on an existing key: that would abort the caller's transaction.
const sqlInsertIfNew = `INSERT INTO mooring_outbox_batch (box, batch, session, via, ops, bytes, created_at, body)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (box, batch) DO NOTHING`

const sqlInsertOp = `INSERT INTO mooring_outbox_op (box, op, batch) VALUES ($1, $2, $3)`

func (t *tables) indexOp(q querier, op, batch string) {
	q.enqueue(sqlInsertOp, []any{t.box, op, batch}, nil)
}

const sqlInsertRetry = `INSERT INTO mooring_outbox_retry (box, op, next) VALUES ($1, $2, $3)`

func (t *tables) insertRetry(q querier, op, next string) {
	q.enqueue(sqlInsertRetry, []any{t.box, op, next}, nil)
}

const sqlBatch = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch WHERE box = $1 AND batch = $2`

// batch reads one row by its batch id; nil if it is not there. lock is "" or the dialect's
// lockRows.
func (t *tables) batch(ctx context.Context, q querier, id, lock string) (*batchRow, error) {
	return t.oneBatch(ctx, q, sqlBatch+lock, t.box, id)
}

const sqlBatchNum = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch WHERE box = $1 AND num = $2`

func (t *tables) batchNum(ctx context.Context, q querier, num int64, lock string) (*batchRow, error) {
	return t.oneBatch(ctx, q, sqlBatchNum+lock, t.box, num)
}

func (t *tables) oneBatch(ctx context.Context, q querier, sql string, args ...any) (r *batchRow, err error) {
	err = q.query(ctx, sql, args, func(scan scanner) (err error) {
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

// lockUnsequenced reads and locks the session's first rows without a seq: at most limit, and at
// most one beyond bytes. more reports that there are others.
func (t *tables) lockUnsequenced(ctx context.Context, q querier, session string, limit, bytes int) (rows []*batchRow, more bool, err error) {
	n, last := 0, int64(-1)
	err = q.query(ctx, sqlUnsequencedSizes, []any{t.box, session, limit + 1}, func(scan scanner) error {
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
	rows, err = t.batches(ctx, q, sqlUnsequenced+t.db.lockRows(), t.box, session, last)
	return rows, more, err
}

func (t *tables) batches(ctx context.Context, q querier, sql string, args ...any) (rows []*batchRow, err error) {
	err = q.query(ctx, sql, args, func(scan scanner) error {
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

// unsequencedSessions lists the sessions that have rows without a seq.
func (t *tables) unsequencedSessions(ctx context.Context, q querier) (sessions []string, err error) {
	err = q.query(ctx, sqlUnsequencedSessions, []any{t.box}, func(scan scanner) error {
		var s string
		err := scan(&s)
		sessions = append(sessions, s)
		return err
	})
	return sessions, err
}

const (
	sqlSetSeq     = `UPDATE mooring_outbox_batch SET first_seq = $3, state = $4 WHERE box = $1 AND num = $2`
	sqlSetSeqBody = `UPDATE mooring_outbox_batch SET first_seq = $3, state = $4, body = $5, bytes = $6,
		failed = $7, skipped = $8, voided = $9 WHERE box = $1 AND num = $2`
)

// setSeq sets a row's seqs, and its body unless that is nil, with the tally n of its decided
// ops.
func (t *tables) setSeq(q querier, num, first int64, body []byte, n intent.Tally) {
	args := []any{t.box, num, first, rowInFlight}
	if body == nil {
		q.enqueue(sqlSetSeq, args, nil)
		return
	}
	q.enqueue(sqlSetSeqBody, append(args, body, len(body), n.Failed, n.Skipped, n.Voided), nil)
}

const sqlSetBody = `UPDATE mooring_outbox_batch SET body = $3, bytes = $4, dropping = $5,
	failed = $6, skipped = $7, voided = $8 WHERE box = $1 AND num = $2`

// setBody sets an unfinished row's body, with the tally n of its decided ops.
func (t *tables) setBody(q querier, num int64, body []byte, n intent.Tally, dropping bool) {
	flag := 0
	if dropping {
		flag = 1
	}
	q.enqueue(sqlSetBody, []any{t.box, num, body, len(body), flag, n.Failed, n.Skipped, n.Voided}, nil)
}

const sqlSetTally = `UPDATE mooring_outbox_batch SET failed = $3, skipped = $4, voided = $5 WHERE box = $1 AND batch = $2`

// setTally stores the tally of a new batch's decided ops, if there are any.
func (t *tables) setTally(q querier, batch string, n intent.Tally) {
	if n != (intent.Tally{}) {
		q.enqueue(sqlSetTally, []any{t.box, batch, n.Failed, n.Skipped, n.Voided}, nil)
	}
}

const sqlLowerLowWater = `UPDATE mooring_outbox SET low = $2 WHERE box = $1 AND low > $2`

// lowerLowWater lowers the low-water mark, below which all rows with a seq are finished.
func (t *tables) lowerLowWater(q querier, num int64) {
	q.enqueue(sqlLowerLowWater, []any{t.box, num}, nil)
}

const sqlRaiseLowWater = `UPDATE mooring_outbox SET low = COALESCE(
		(SELECT MIN(num) FROM mooring_outbox_batch WHERE box = $1 AND num >= mooring_outbox.low AND state < 2 AND first_seq > 0),
		(SELECT MAX(num) + 1 FROM mooring_outbox_batch WHERE box = $1), low)
	WHERE box = $1 AND holder = $2`

// raiseLowWater raises the low-water mark to the first unfinished row with a seq: a row without
// one, as for a server that is away for weeks, does not hold it down. Only the sender may do
// that, in transactions that allocate seqs.
func (t *tables) raiseLowWater(q querier) { q.enqueue(sqlRaiseLowWater, []any{t.box, t.holderID}, nil) }

const (
	sqlFinish = `UPDATE mooring_outbox_batch SET state = 2, finished_at = $3, failed = $4, skipped = $5, voided = $6,
			attempts = $7, outcomes = $8, first_seq = COALESCE(first_seq, 0), next_retry_at = 0, dropping = 0
		WHERE box = $1 AND num = $2 AND state < 2`
	sqlFinishBody = `UPDATE mooring_outbox_batch SET state = 2, finished_at = $3, failed = $4, skipped = $5, voided = $6,
			attempts = $7, outcomes = $8, first_seq = COALESCE(first_seq, 0), next_retry_at = 0, dropping = 0, body = $9
		WHERE box = $1 AND num = $2 AND state < 2`
)

// finish stores a batch's outcomes, and another body unless that is nil. A row that is finished
// already stays as it is.
func (t *tables) finish(q querier, num, at int64, n intent.Tally, attempts int, outcomes, body []byte) {
	args := []any{t.box, num, at, n.Failed, n.Skipped, n.Voided, attempts, outcomes}
	if body == nil {
		q.enqueue(sqlFinish, args, nil)
		return
	}
	q.enqueue(sqlFinishBody, append(args, body), nil)
}

// A former holder of the lease may no longer write about rows and streams.
const (
	ifHolder         = ` EXISTS (SELECT 1 FROM mooring_outbox WHERE box = $1 AND holder = $2)`
	sqlMarkInFlight  = `UPDATE mooring_outbox_batch SET state = 1 WHERE box = $1 AND num = $3 AND state = 0 AND` + ifHolder
	sqlRecordAttempt = `UPDATE mooring_outbox_batch SET attempts = $4, next_retry_at = $5, last_error = $6
		WHERE box = $1 AND num = $3 AND state < 2 AND` + ifHolder
)

// markInFlight is for a row that a takeover made pending and that was sent again.
func (t *tables) markInFlight(q querier, num int64) {
	q.enqueue(sqlMarkInFlight, []any{t.box, t.holderID, num}, nil)
}

// recordAttempt stores why a row is still unanswered.
func (t *tables) recordAttempt(q querier, num int64, attempts int, nextRetry int64, lastError string) {
	q.enqueue(sqlRecordAttempt, []any{t.box, t.holderID, num, attempts, nextRetry, columnText(lastError)}, nil)
}

// maxColumnText bounds a text column, in bytes.
const maxColumnText = 1024

// columnText makes any text fit for a column: a peer's message may hold bytes that Postgres
// refuses (a NUL, invalid UTF-8) and may be long.
func columnText(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	if len(s) <= maxColumnText {
		return s
	}
	cut := maxColumnText
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + " …"
}

// streamRow is one row of mooring_outbox_stream.
type streamRow struct {
	lastSeq  uint64
	spaceRef string
	ownerRef string
}

const sqlStream = `SELECT last_seq, space_ref, owner_ref FROM mooring_outbox_stream WHERE box = $1 AND session = $2`

// stream reads a stream's row; the zero row if it has none.
func (t *tables) stream(ctx context.Context, q querier, session string) (s streamRow, err error) {
	err = q.query(ctx, sqlStream, []any{t.box, session}, func(scan scanner) error {
		var last int64
		err := scan(&last, &s.spaceRef, &s.ownerRef)
		s.lastSeq = uint64(last)
		return err
	})
	return s, err
}

const sqlStreamSecret = `SELECT old_secret, life FROM mooring_outbox_stream WHERE box = $1 AND session = $2`

// streamSecretOf returns which secret the session's server knows the outbox by: its old one, or
// that of the session's present stream, which is its first if life is "".
func (t *tables) streamSecretOf(ctx context.Context, q querier, session string) (old bool, life string, err error) {
	err = q.query(ctx, sqlStreamSecret, []any{t.box, session}, func(scan scanner) error {
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

// setHighWater stores the last seq whose outcome is stored, of the stream that was sent on
// under that incarnation.
func (t *tables) setHighWater(q querier, session string, to highWaterMark) {
	q.enqueue(sqlSetHighWater, []any{t.box, session, int64(to.seq), to.incarnation}, nil)
}

const sqlSetCreateRefs = `INSERT INTO mooring_outbox_stream (box, session, space_ref, owner_ref)
	SELECT box, session, CAST($3 AS TEXT), CAST($4 AS TEXT) FROM mooring_outbox_batch WHERE box = $1 AND num = $2 AND state < 2
	ON CONFLICT (box, session) DO UPDATE SET space_ref = excluded.space_ref, owner_ref = excluded.owner_ref`

// setCreateRefs stores the refs through which a session is reached whose create, in row num,
// did not apply; none if it did. It goes before finish, and does nothing to a row that another
// process has finished: a later batch may have created the session since.
func (t *tables) setCreateRefs(q querier, num int64, spaceRef, ownerRef string) {
	q.enqueue(sqlSetCreateRefs, []any{t.box, num, spaceRef, ownerRef}, nil)
}

const sqlSetStopped = `INSERT INTO mooring_outbox_stream (box, session, stopped, reason, halted, halted_reason)
	SELECT box, CAST($3 AS TEXT), CAST($4 AS INTEGER), CAST($5 AS TEXT), CAST($4 AS INTEGER), CAST($5 AS TEXT)
	FROM mooring_outbox WHERE box = $1 AND holder = $2
	ON CONFLICT (box, session) DO UPDATE SET stopped = excluded.stopped, reason = excluded.reason,
		halted = CASE WHEN excluded.stopped > 0 THEN excluded.halted ELSE mooring_outbox_stream.halted END,
		halted_reason = CASE WHEN excluded.stopped > 0 THEN excluded.halted_reason ELSE mooring_outbox_stream.halted_reason END`

// setStopped stores why a stream stopped; None: it runs. It waits for a pending takeover, which
// resumes all streams.
func (t *tables) setStopped(q querier, session string, code fault.Code, reason string) {
	t.db.shareLease(q, t.box)
	q.enqueue(sqlSetStopped, []any{t.box, t.holderID, session, int(code), columnText(reason)}, nil)
}

const sqlInFlight = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch
	WHERE box = $1 AND num >= $2 AND state < 2 AND first_seq > 0 ORDER BY first_seq`

// inFlight reads the rows that have seqs and no outcomes, from num low on, in the order of
// their seqs: a row that became visible late has a lower num than others before it.
func (t *tables) inFlight(ctx context.Context, q querier, low int64) ([]*batchRow, error) {
	return t.batches(ctx, q, sqlInFlight, t.box, low)
}

var sqlUsage = `SELECT COALESCE(SUM(ops), 0), COALESCE(SUM(bytes), 0) FROM ` + unfinishedRows("ops, bytes")

// usage counts unfinished ops and their bytes.
func (t *tables) usage(ctx context.Context, q querier) (ops, bytes int64, err error) {
	err = q.query(ctx, sqlUsage, []any{t.box}, func(scan scanner) error { return scan(&ops, &bytes) })
	return ops, bytes, err
}

// decode decodes the row's body. The error is OutboxDamaged if the row is damaged, and
// Incompatible if only a newer binary can read it.
func (r *batchRow) decode() (*intent.Batch, error) {
	b, err := intent.Decode(r.session, r.id, r.body)
	if err != nil {
		return nil, r.decodeErr(err, "")
	}
	return b, nil
}

// readOutcomes decodes the outcomes of a finished row with that body.
func (r *batchRow) readOutcomes(b *intent.Batch) ([]ledger.Outcome, error) {
	outs, err := intent.DecodeOutcomes(r.outcomes, b.Ops)
	if err != nil {
		return nil, r.decodeErr(err, ": its outcomes are lost")
	}
	return outs, nil
}

func (r *batchRow) decodeErr(err error, what string) error {
	if errors.Is(err, intent.ErrNewerVersion) {
		return fault.Incompatible.Because(err, "the row of batch %s was written by a newer version of this program: use that one", r.id)
	}
	return fault.OutboxDamaged.Because(err, "the row of batch %s is damaged%s", r.id, what)
}

// seqs returns the seqs of a row's ops; 0 for an op without one.
func (r *batchRow) seqs(bd *intent.Batch) []uint64 {
	seqs := make([]uint64, len(bd.Ops))
	if !r.sequenced() {
		return seqs
	}
	next := uint64(*r.firstSeq)
	for i := range bd.Ops {
		if bd.Ops[i].TakesSeq() {
			seqs[i] = next
			next++
		}
	}
	return seqs
}
