package outbox

// The Postgres dialect: any number of outboxes in one database, by name, beside other tables.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/pgtune"
	"github.com/mooring-rpc/mooring/migrations"
	outboxsql "github.com/mooring-rpc/mooring/migrations/outboxsql"
)

// leaseLockSpace is the first key of the advisory locks for leases; the second is the outbox's
// number.
const leaseLockSpace = 0x6d6f6f72

// notifyChannel is the channel that committers notify and senders listen on; the payload is the
// outbox's id.
const notifyChannel = "mooring_outbox"

// writeTimeout bounds a transaction, and a statement that reads, so that a dead database or
// connection is detected.
const writeTimeout = 30 * time.Second

// minTxIdleTimeout is the shortest time after which the database rolls back an idle
// transaction. A process that was merely slow gets further by then.
const minTxIdleTimeout = 2 * time.Second

// OpenPostgres opens the outbox called name in the database at url, creating its tables and
// itself if they are not there. Outboxes of different names in one database are independent.
// Boxes that this process opens with the same url share their connections, as many as the
// Config of the first says.
func OpenPostgres(ctx context.Context, url, name string, cfg Config) (*Box, error) {
	cfg = cfg.withDefaults(pollPostgres)
	p, release, err := sharedPool(ctx, url, cfg.Connections, cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("open outbox: %w", withCode(err))
	}
	box, err := openPostgres(ctx, p.pool, p.sized, release, name, cfg)
	if err != nil {
		release()
	}
	return box, err
}

// NewPostgres is OpenPostgres on a pool that the caller keeps and closes. Beyond their
// transactions, all Boxes of a pool that run together use one connection to listen on. The
// outbox's transactions are read committed; with a pool whose default is another isolation
// level, each takes two round trips more.
func NewPostgres(ctx context.Context, pool *pgxpool.Pool, name string, cfg Config) (*Box, error) {
	return openPostgres(ctx, pool, nil, func() {}, name, cfg.withDefaults(pollPostgres))
}

// pollPostgres is how often a sender polls for rows that it was not notified of.
const pollPostgres = time.Second

func openPostgres(ctx context.Context, pool *pgxpool.Pool, sized *pgtune.AdaptivePool, release func(), name string, cfg Config) (*Box, error) {
	if name == "" {
		name = defaultName
	}
	db := &postgresDB{pool: pool, ownsPool: sized != nil, sized: sized, poll: cfg.Poll, timeout: writeTimeout, txIdleTimeout: max(cfg.Lease, minTxIdleTimeout)}
	if err := db.prepare(ctx, cfg.AllowUnsafe); err != nil {
		return nil, fmt.Errorf("open outbox: %w", withCode(postgresFailure(err)))
	}
	gather, leave := txBatcherOf(pool, sized)
	db.batcher, db.release = gather, func() { leave(); release() }
	return newBox(ctx, db, name, cfg)
}

// postgresDB is the Postgres dialect.
type postgresDB struct {
	pool            *pgxpool.Pool
	ownsPool        bool                 // the pool is this package's
	sized           *pgtune.AdaptivePool // limits the use of an own pool; nil for a caller's
	poll            time.Duration
	timeout         time.Duration // writeTimeout
	txIdleTimeout   time.Duration // after which the database rolls back an idle transaction
	strictIsolation bool          // the pool's default isolation is above read committed
	batcher         *txBatcher
	release         func()
}

// prepare migrates the tables and refuses a database that loses commits.
func (d *postgresDB) prepare(ctx context.Context, allowUnsafe bool) error {
	std := stdlib.OpenDBFromPool(d.pool)
	defer func() { _ = std.Close() }()
	if err := migrations.Up(ctx, std, outboxsql.Postgres); err != nil {
		return err
	}
	var fsync, commit, isolation string
	conn, release, err := acquireConn(ctx, d.pool, d.sized)
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

// postgresFailure gives an error its code.
func postgresFailure(err error) error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) || errors.Is(err, errUnique) {
		return err
	}
	why := "the link is down, or broke"
	e, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case !answered && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return err
	case !answered:
	case e.Code == "23505":
		return errUnique
	case e.Code == "40P01", e.Code == "40001":
		return errors.Join(errTxConflict, err)
	default:
		why = e.Code
	}
	switch cause := dbfault.OfPostgres(err); cause {
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

// write runs f in one transaction. Enqueued statements go out together with the commit; if
// there are no others, the whole transaction is one round trip, and may be grouped with
// transactions of other Boxes. If a grouped transaction is rolled back, f runs again.
func (d *postgresDB) write(ctx context.Context, f func(querier) error) (ambiguous bool, err error) {
	end := d.attempt(ctx, f, d.batcher.write)
	if end.rerun {
		end = d.attempt(ctx, f, d.batcher.writeAlone)
	}
	if end.err != nil && errors.Is(end.err, context.DeadlineExceeded) && ctx.Err() == nil {
		end.err = d.noAnswer(end.err)
	}
	return end.ambiguous, postgresFailure(end.err)
}

// noAnswer is the failure of a call that timed out without an answer. Other connections may be
// dead as well: idle ones of an own pool are closed.
func (d *postgresDB) noAnswer(err error) error {
	if d.ownsPool {
		d.pool.Reset()
	}
	return fault.Unavailable.Because(errors.Join(errNoAnswer, err), "the outbox's database has not answered for %s", d.timeout)
}

// errNoAnswer is in the error of a call that the database did not answer.
var errNoAnswer = errors.New("outbox: no answer")

// attempt is write, with send for transactions that need no connection before they commit.
func (d *postgresDB) attempt(ctx context.Context, f func(querier) error, send func(context.Context, *postgresDB, *pgx.Batch) txResult) txResult {
	q := &postgresTx{ctx: ctx, db: d}
	defer q.release()
	if d.strictIsolation { // a single round trip would have the pool's isolation
		if err := q.begin(); err != nil {
			return txResult{err: err}
		}
	}
	if err := f(q); err != nil || q.err != nil {
		q.rollback()
		return txResult{err: cmp.Or(err, q.err)}
	}
	switch {
	case q.tx != nil:
		end := txResultOf(q.commit())
		if end.err != nil {
			q.rollback()
		}
		return end
	case q.queue.Len() > 0:
		return send(ctx, d, &q.queue)
	}
	return txResult{}
}

// read gives every statement a snapshot of its own: to begin a transaction and to end it are
// round trips. A StreamStoppedError depends on several rows, which may each be as of another
// moment. So f must find it again in one snapshot.
//
// A connection that has died is noticed after a while, and f runs again on another.
func (d *postgresDB) read(ctx context.Context, f func(querier) error) error {
	err := d.readOnce(ctx, f)
	if errors.Is(err, errNoAnswer) {
		err = d.readOnce(ctx, f)
	}
	return postgresFailure(err)
}

func (d *postgresDB) readOnce(ctx context.Context, f func(querier) error) error {
	q := &postgresTx{ctx: ctx, db: d, autocommit: true}
	var conn *pgxpool.Conn
	var release func()
	err := q.withTimeout(func(ctx context.Context) (err error) {
		conn, release, err = acquireConn(ctx, d.pool, d.sized)
		return err
	})
	if err != nil {
		return err
	}
	defer release()
	q.conn = conn.Conn()
	err = f(q)
	if _, still := errors.AsType[*StreamStoppedError](err); still {
		one := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		err = q.withTimeout(func(ctx context.Context) error {
			return pgx.BeginTxFunc(ctx, conn, one, func(pgx.Tx) error { return f(q) })
		})
	}
	return err
}

// withTimeout runs a step of a read, for at most the timeout.
func (q *postgresTx) withTimeout(step func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(q.ctx, q.db.timeout)
	defer cancel()
	err := step(ctx)
	if err != nil && ctx.Err() != nil && q.ctx.Err() == nil && !errors.Is(err, errNoAnswer) {
		err = q.db.noAnswer(err)
	}
	return err
}

func (d *postgresDB) shareLease(q querier, box int64) {
	q.enqueue("SELECT pg_advisory_xact_lock_shared($1, $2)", []any{leaseLockSpace, int32(box)}, nil)
}

func (d *postgresDB) takeLease(ctx context.Context, q querier, box int64) error {
	_, err := q.exec(ctx, "SELECT pg_advisory_xact_lock($1, $2)", leaseLockSpace, int32(box))
	return err
}

func (d *postgresDB) now(ctx context.Context, q querier) (ms int64, err error) {
	err = q.query(ctx, "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)", nil,
		func(scan scanner) error { return scan(&ms) })
	return ms, err
}

func (d *postgresDB) notify(q querier, outbox string) {
	q.enqueue("SELECT pg_notify('"+notifyChannel+"', $1)", []any{outbox}, nil)
}

func (d *postgresDB) watch(ctx context.Context, outbox string, changed func(), alive func(pid int64)) {
	listen(ctx, d.pool, outbox, d.poll, changed, alive)
}

// holderDead asks whether the backend that the holder listened on is gone. If the holder has
// only lost its connection, it is fenced and waits for the lease again.
func (d *postgresDB) holderDead(ctx context.Context, q querier, pid int64) (gone bool, err error) {
	if pid == 0 {
		return false, nil
	}
	err = q.query(ctx, "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1)", []any{int32(pid)},
		func(scan scanner) error { return scan(&gone) })
	return gone, err
}

func (d *postgresDB) inClause(column, placeholder string, ids []string) (clause string, arg any) {
	return column + " = ANY(" + placeholder + ")", ids
}

// blockingWriter is none: the database rolls back idle transactions.
func (d *postgresDB) blockingWriter(context.Context) (pid int, since time.Time) { return 0, since }

func (d *postgresDB) checkIntegrity(context.Context, querier) error { return nil } // the database server's task
func (d *postgresDB) lockRows() string                              { return " FOR UPDATE" }
func (d *postgresDB) refs() *refSQL                                 { return postgresRefs }
func (d *postgresDB) tryLivenessLock(int64) (release func(), held, known bool) {
	return nil, false, false
}

func (d *postgresDB) close() error {
	d.release()
	return nil
}

// postgresTx runs statements on one connection: in a transaction, or (autocommit) each on its
// own.
type postgresTx struct {
	ctx        context.Context // for all statements: the transaction's, with its timeout
	db         *postgresDB     // conn and tx come from its pool; nil if they are given
	conn       *pgx.Conn
	tx         pgx.Tx // nil until a statement waits for a result
	cleanup    func() // releases what begin has acquired; nil for nothing
	autocommit bool
	queue      pgx.Batch
	err        error
}

func (q *postgresTx) enqueue(sql string, args []any, one func(scanner) error) {
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
	ctx, cancel := context.WithTimeout(q.ctx, q.db.timeout)
	conn, release, err := acquireConn(ctx, q.db.pool, q.db.sized)
	if err != nil {
		cancel()
		return err
	}
	q.cleanup = func() { release(); cancel() }
	tx, err := conn.Conn().BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(beginWithIdleTimeout, q.db.txIdleTimeout.Milliseconds())})
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

func (q *postgresTx) exec(_ context.Context, sql string, args ...any) (int64, error) {
	if err := q.ensureTx(); err != nil {
		return 0, postgresFailure(err)
	}
	tag, err := q.runner().Exec(q.ctx, sql, args...)
	return tag.RowsAffected(), postgresFailure(err)
}

func (q *postgresTx) query(_ context.Context, sql string, args []any, each func(scanner) error) error {
	if err := q.ensureTx(); err != nil {
		return postgresFailure(err)
	}
	if q.autocommit {
		return q.withTimeout(func(ctx context.Context) error { return q.rows(ctx, sql, args, each) })
	}
	return q.rows(q.ctx, sql, args, each)
}

func (q *postgresTx) rows(ctx context.Context, sql string, args []any, each func(scanner) error) error {
	rows, err := q.runner().Query(ctx, sql, args...)
	if err != nil {
		return postgresFailure(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return postgresFailure(rows.Err())
}
