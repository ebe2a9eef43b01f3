package postgres

// The Postgres dialect: any number of outboxes in one database, by name, beside other tables.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/pgfault"
	"github.com/mooring-rpc/mooring/internal/pgtune"
	"github.com/mooring-rpc/mooring/migrations"
	outboxsql "github.com/mooring-rpc/mooring/migrations/outboxsql"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// LeaseLockSpace is the first key of the advisory locks for leases; the second is the outbox's
// number.
const LeaseLockSpace = 0x6d6f6f72

// NotifyChannel is the channel that committers notify and senders listen on; the payload is the
// outbox's id.
const NotifyChannel = "mooring_outbox"

// WriteTimeout bounds a transaction, and a statement that reads, so that a dead database or
// connection is detected.
const WriteTimeout = 30 * time.Second

// MinTxIdleTimeout is the shortest time after which the database rolls back an idle
// transaction. A process that was merely slow gets further by then.
const MinTxIdleTimeout = 2 * time.Second

// Options configure Open and New.
type Options struct {
	Connections int           // of a process to the URL; 0 leaves that to the URL
	Poll        time.Duration // how often a sender polls for rows that it was not notified of
	Lease       time.Duration // of a sender
	AllowUnsafe bool          // accept a database that may lose commits
	Logger      *slog.Logger
}

// Open opens the database at url, and makes the tables if they are not there. All that are
// opened with the same url share their connections, as many as the options of the first say.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	p, release, err := sharedPool(ctx, url, o.Connections, o.Logger)
	if err != nil {
		return nil, err
	}
	db, err := prepared(ctx, p.Pool, p.sized, release, o)
	if err != nil {
		release()
	}
	return db, err
}

// New is Open on a pool that the caller keeps and closes.
func New(ctx context.Context, pool *pgxpool.Pool, o Options) (*DB, error) {
	return prepared(ctx, pool, nil, func() {}, o)
}

func prepared(ctx context.Context, pool *pgxpool.Pool, sized *pgtune.AdaptivePool, release func(), o Options) (*DB, error) {
	db := &DB{Pool: pool, OwnsPool: sized != nil, sized: sized, poll: o.Poll, Timeout: WriteTimeout, TxIdleTimeout: max(o.Lease, MinTxIdleTimeout)}
	if err := db.prepare(ctx, o.AllowUnsafe); err != nil {
		return nil, Failure(err)
	}
	batcher, leave := txBatcherOf(pool, sized)
	db.Batcher, db.release = batcher, func() { leave(); release() }
	return db, nil
}

// DB is the Postgres dialect.
type DB struct {
	Pool            *pgxpool.Pool
	OwnsPool        bool                 // the pool is this package's
	sized           *pgtune.AdaptivePool // limits the use of an own pool; nil for a caller's
	poll            time.Duration
	Timeout         time.Duration // WriteTimeout
	TxIdleTimeout   time.Duration // after which the database rolls back an idle transaction
	strictIsolation bool          // the pool's default isolation is above read committed
	Batcher         *TxBatcher
	release         func()
}

// prepare migrates the tables and refuses a database that loses commits.
func (d *DB) prepare(ctx context.Context, allowUnsafe bool) error {
	std := stdlib.OpenDBFromPool(d.Pool)
	defer func() { _ = std.Close() }()
	if err := migrations.Up(ctx, std, outboxsql.Postgres); err != nil {
		return err
	}
	var fsync, commit, isolation string
	conn, release, err := acquireConn(ctx, d.Pool, d.sized)
	if err != nil {
		return err
	}
	defer release()
	err = conn.QueryRow(ctx, "SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('default_transaction_isolation')").
		Scan(&fsync, &commit, &isolation)
	if err != nil {
		return err
	}
	d.strictIsolation = isolation != "read committed" && isolation != "read uncommitted" // Postgres treats both the same
	if (fsync == "off" || commit == "off") && !allowUnsafe {
		return fault.UnsafeStore.With("the database has fsync=%s and synchronous_commit=%s, so it can lose what it has committed: turn both on, or allow it in the Config", fsync, commit)
	}
	return nil
}

// Failure gives an error its code.
func Failure(err error) error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) || errors.Is(err, sqlstore.ErrUnique) {
		return err
	}
	why := "the link is down, or broke"
	e, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case !answered && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return err
	case !answered:
	case e.Code == "23505":
		return sqlstore.ErrUnique
	case e.Code == "40P01", e.Code == "40001":
		return errors.Join(sqlstore.ErrTxConflict, err)
	default:
		why = e.Code
	}
	switch cause := pgfault.Of(err); cause {
	case dbfault.None:
		return err
	case dbfault.DiskFull:
		return cause.Fault(err, "the outbox's database has no space left: nothing was committed; free some and try again")
	case dbfault.ReadOnly:
		return cause.Fault(err, "the outbox's database takes no writes: it is a standby, in recovery, or set to be read only")
	case dbfault.NoConnection:
		return cause.Fault(err, "the outbox's database has no connection left: end some, or raise its max_connections")
	case dbfault.Refused:
		return cause.Fault(err, "the outbox's database does not let this user in, or not at its tables ("+why+")")
	default:
		return cause.Fault(err, fmt.Sprintf("the outbox's database is away (%s: %s)", cause, why))
	}
}

// Write runs f in one transaction. Enqueued statements go out together with the commit; if
// there are no others, the whole transaction is one round trip, and may be grouped with
// transactions of other Boxes. If a grouped transaction is rolled back, f runs again.
func (d *DB) Write(ctx context.Context, f func(sqlstore.Querier) error) (ambiguous bool, err error) {
	end := d.attempt(ctx, f, d.Batcher.write)
	if end.Rerun {
		end = d.attempt(ctx, f, d.Batcher.writeAlone)
	}
	if end.Err != nil && errors.Is(end.Err, context.DeadlineExceeded) && ctx.Err() == nil {
		end.Err = d.NoAnswer(end.Err)
	}
	return end.Ambiguous, Failure(end.Err)
}

// NoAnswer is the failure of a call that timed out without an answer. Other connections may be
// dead as well: idle ones of an own pool are closed.
func (d *DB) NoAnswer(err error) error {
	if d.OwnsPool {
		d.Pool.Reset()
	}
	return fault.Unavailable.Because(errors.Join(ErrNoAnswer, err), "the outbox's database has not answered for %s", d.Timeout)
}

// ErrNoAnswer is in the error of a call that the database did not answer.
var ErrNoAnswer = errors.New("outbox: no answer")

// attempt is write, with send for transactions that need no connection before they commit.
func (d *DB) attempt(ctx context.Context, f func(sqlstore.Querier) error, send func(context.Context, *pgx.Batch) txResult) txResult {
	q := &postgresTx{ctx: ctx, db: d}
	defer q.release()
	if d.strictIsolation { // a single round trip would have the pool's isolation
		if err := q.begin(); err != nil {
			return txResult{Err: err}
		}
	}
	if err := f(q); err != nil || q.err != nil {
		q.rollback()
		return txResult{Err: cmp.Or(err, q.err)}
	}
	switch {
	case q.tx != nil:
		end := TxResultOf(q.commit())
		if end.Err != nil {
			q.rollback()
		}
		return end
	case q.queue.Len() > 0:
		return send(ctx, &q.queue)
	}
	return txResult{}
}

// Read gives every statement a snapshot of its own: to begin a transaction and to end it are
// round trips. A SnapshotError depends on several rows, which may each be as of another
// moment. So f must find it again in one snapshot.
//
// A connection that has died is noticed after a while, and f runs again on another.
func (d *DB) Read(ctx context.Context, f func(sqlstore.Querier) error) error {
	err := d.readOnce(ctx, f)
	if errors.Is(err, ErrNoAnswer) {
		err = d.readOnce(ctx, f)
	}
	return Failure(err)
}

func (d *DB) readOnce(ctx context.Context, f func(sqlstore.Querier) error) error {
	q := &postgresTx{ctx: ctx, db: d, autocommit: true}
	var conn *pgxpool.Conn
	var release func()
	err := q.withTimeout(func(ctx context.Context) (err error) {
		conn, release, err = acquireConn(ctx, d.Pool, d.sized)
		return err
	})
	if err != nil {
		return err
	}
	defer release()
	q.conn = conn.Conn()
	err = f(q)
	if _, again := errors.AsType[sqlstore.SnapshotError](err); again {
		one := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		err = q.withTimeout(func(ctx context.Context) error {
			return pgx.BeginTxFunc(ctx, conn, one, func(pgx.Tx) error { return f(q) })
		})
	}
	return err
}

// withTimeout runs a step of a read, for at most the timeout.
func (q *postgresTx) withTimeout(step func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(q.ctx, q.db.Timeout)
	defer cancel()
	err := step(ctx)
	if err != nil && ctx.Err() != nil && q.ctx.Err() == nil && !errors.Is(err, ErrNoAnswer) {
		err = q.db.NoAnswer(err)
	}
	return err
}

func (d *DB) ShareLease(q sqlstore.Querier, box int64) {
	q.Enqueue("SELECT pg_advisory_xact_lock_shared($1, $2)", []any{LeaseLockSpace, int32(box)}, nil)
}

func (d *DB) TakeLease(ctx context.Context, q sqlstore.Querier, box int64) error {
	_, err := q.Exec(ctx, "SELECT pg_advisory_xact_lock($1, $2)", LeaseLockSpace, int32(box))
	return err
}

func (d *DB) Now(ctx context.Context, q sqlstore.Querier) (ms int64, err error) {
	err = q.Query(ctx, "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)", nil,
		func(scan sqlstore.Scanner) error { return scan(&ms) })
	return ms, err
}

func (d *DB) Notify(q sqlstore.Querier, outbox string) {
	q.Enqueue("SELECT pg_notify('"+NotifyChannel+"', $1)", []any{outbox}, nil)
}

func (d *DB) Watch(ctx context.Context, outbox string, changed func(), alive func(pid int64)) {
	listen(ctx, d.Pool, outbox, d.poll, changed, alive)
}

// HolderDead asks whether the backend that the holder listened on is gone. If the holder has
// only lost its connection, it is fenced and waits for the lease again.
func (d *DB) HolderDead(ctx context.Context, q sqlstore.Querier, pid int64) (gone bool, err error) {
	if pid == 0 {
		return false, nil
	}
	err = q.Query(ctx, "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1)", []any{int32(pid)},
		func(scan sqlstore.Scanner) error { return scan(&gone) })
	return gone, err
}

func (d *DB) InClause(column, placeholder string, ids []string) (clause string, arg any) {
	return column + " = ANY(" + placeholder + ")", ids
}

// BlockingWriter is none: the database rolls back idle transactions.
func (d *DB) BlockingWriter(context.Context) (pid int, since time.Time) { return 0, since }

func (d *DB) CheckIntegrity(context.Context, sqlstore.Querier) error { return nil } // the database server's task
func (d *DB) LockRows() string                                       { return " FOR UPDATE" }
func (d *DB) Refs() *sqlstore.RefSQL                                 { return sqlstore.PostgresRefs }
func (d *DB) TryLivenessLock(int64) (release func(), locked, known bool) {
	return nil, false, false
}

func (d *DB) Close() error {
	d.release()
	return nil
}

// postgresTx runs statements on one connection: in a transaction, or (autocommit) each on its
// own.
type postgresTx struct {
	ctx        context.Context // for all statements: the transaction's, with its timeout
	db         *DB             // conn and tx come from its pool; nil if they are given
	conn       *pgx.Conn
	tx         pgx.Tx // nil until a statement waits for a result
	cleanup    func() // releases what begin has acquired; nil for nothing
	autocommit bool
	queue      pgx.Batch
	err        error
}

func (q *postgresTx) Enqueue(sql string, args []any, one func(sqlstore.Scanner) error) {
	queued := q.queue.Queue(sql, args...)
	if one != nil {
		queued.QueryRow(func(row pgx.Row) error { return one(row.Scan) })
	}
}

// ensureTx begins the transaction if need be and sends the enqueued statements, before a
// statement whose result is needed now.
func (q *postgresTx) ensureTx() error {
	if q.autocommit || q.err != nil {
		return q.err
	}
	if q.tx == nil {
		if q.err = q.begin(); q.err != nil {
			return q.err
		}
	}
	return q.flush()
}

// beginWithIdleTimeout begins a transaction in one round trip. A statement that has waited for
// a lock has to see what was committed meanwhile, whatever the pool's default isolation. A
// process that is suspended inside the transaction, or whose machine is gone, would keep its
// locks, and with them block a successor from the lease: so the database rolls back an idle
// transaction.
const beginWithIdleTimeout = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = %d`

func (q *postgresTx) begin() error {
	ctx, cancel := context.WithTimeout(q.ctx, q.db.Timeout)
	conn, release, err := acquireConn(ctx, q.db.Pool, q.db.sized)
	if err != nil {
		cancel()
		return err
	}
	q.cleanup = func() { release(); cancel() }
	tx, err := conn.Conn().BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(beginWithIdleTimeout, q.db.TxIdleTimeout.Milliseconds())})
	if err != nil {
		return err
	}
	q.ctx, q.conn, q.tx = ctx, conn.Conn(), tx
	return nil
}

// release releases what begin has acquired.
func (q *postgresTx) release() {
	if q.cleanup != nil {
		q.cleanup()
		q.cleanup = nil
	}
}

func (q *postgresTx) flush() error {
	if q.queue.Len() == 0 {
		return nil
	}
	err := q.tx.SendBatch(q.ctx, &q.queue).Close()
	q.queue = pgx.Batch{}
	return err
}

// commit sends the enqueued statements and commits.
func (q *postgresTx) commit() error {
	if err := q.flush(); err != nil {
		return err
	}
	return q.tx.Commit(q.ctx)
}

func (q *postgresTx) rollback() {
	if q.tx != nil {
		_ = q.tx.Rollback(context.WithoutCancel(q.ctx)) // the connection is closed if it fails
	}
}

type pgxRunner interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (q *postgresTx) runner() pgxRunner {
	if q.tx != nil {
		return q.tx
	}
	return q.conn
}

func (q *postgresTx) Exec(_ context.Context, sql string, args ...any) (int64, error) {
	if err := q.ensureTx(); err != nil {
		return 0, Failure(err)
	}
	tag, err := q.runner().Exec(q.ctx, sql, args...)
	return tag.RowsAffected(), Failure(err)
}

func (q *postgresTx) Query(_ context.Context, sql string, args []any, each func(sqlstore.Scanner) error) error {
	if err := q.ensureTx(); err != nil {
		return Failure(err)
	}
	if q.autocommit {
		return q.withTimeout(func(ctx context.Context) error { return q.rows(ctx, sql, args, each) })
	}
	return q.rows(q.ctx, sql, args, each)
}

func (q *postgresTx) rows(ctx context.Context, sql string, args []any, each func(sqlstore.Scanner) error) error {
	rows, err := q.runner().Query(ctx, sql, args...)
	if err != nil {
		return Failure(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return Failure(rows.Err())
}

// InTx takes a pgx.Tx.
func (d *DB) InTx(ctx context.Context, tx any) (sqlstore.CallerTx, error) {
	t, ok := tx.(pgx.Tx)
	if !ok {
		return nil, fault.Usage.With("commit in a transaction: it must be one of pgx")
	}
	return &postgresTx{ctx: ctx, conn: t.Conn(), tx: t}, nil
}

// Flush runs the enqueued statements, in a caller's transaction.
func (q *postgresTx) Flush() error { return Failure(q.flush()) }
