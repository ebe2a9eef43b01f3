package outbox

// Postgres: any number of outboxes in one database, by name, beside whatever
// else is in it.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/migrations"
	outboxsql "github.com/mooring-rpc/mooring/migrations/outbox"
)

// leaseLocks is the first key of the advisory locks that stand for leases; the
// second is the outbox's number.
const leaseLocks = 0x6d6f6f72

// channel is what committers notify and senders listen on; the payload is the
// outbox's id.
const channel = "mooring_outbox"

// writeTimeout bounds a transaction, so that a database which has vanished is noticed.
const writeTimeout = 30 * time.Second

// OpenPostgres opens the outbox called name in the database at url, making its
// tables and itself if they are not there. Outboxes of different names in one
// database have nothing to do with each other. Boxes that this process opens
// with the same url share their connections.
func OpenPostgres(ctx context.Context, url, name string, cfg Config) (*Box, error) {
	pool, release, err := sharedPool(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("open outbox: %w", err)
	}
	box, err := openPostgres(ctx, pool, release, name, cfg)
	if err != nil {
		release()
	}
	return box, err
}

// NewPostgres is OpenPostgres on a pool that stays the caller's. Beside what its
// transactions take, all Boxes of a pool that run together take one connection
// to listen on.
func NewPostgres(ctx context.Context, pool *pgxpool.Pool, name string, cfg Config) (*Box, error) {
	return openPostgres(ctx, pool, func() {}, name, cfg)
}

func openPostgres(ctx context.Context, pool *pgxpool.Pool, release func(), name string, cfg Config) (*Box, error) {
	cfg = cfg.withDefaults(time.Second)
	if name == "" {
		name = defaultName
	}
	db := &postgresDB{pool: pool, poll: cfg.Poll}
	if err := db.prepare(ctx, cfg.AllowUnsafe); err != nil {
		return nil, fmt.Errorf("open outbox: %w", postgresFailure(err))
	}
	gather, leave := gathererOf(pool)
	db.gather, db.release = gather, func() { leave(); release() }
	return newBox(ctx, db, name, cfg)
}

// postgresDB is the Postgres dialect.
type postgresDB struct {
	pool    *pgxpool.Pool
	poll    time.Duration
	gather  *gatherer
	release func()
}

// prepare brings the tables up to date and refuses a database that loses commits.
func (d *postgresDB) prepare(ctx context.Context, allowUnsafe bool) error {
	std := stdlib.OpenDBFromPool(d.pool)
	defer func() { _ = std.Close() }()
	if err := migrations.Up(ctx, std, outboxsql.Postgres); err != nil {
		return err
	}
	var fsync, commit string
	if err := d.pool.QueryRow(ctx, "SELECT current_setting('fsync'), current_setting('synchronous_commit')").Scan(&fsync, &commit); err != nil {
		return err
	}
	if (fsync == "off" || commit == "off") && !allowUnsafe {
		return fault.UnsafeStore.With("the database has fsync=%s and synchronous_commit=%s, so it can lose what it has committed: turn both on, or allow it in the Config", fsync, commit)
	}
	return nil
}

// postgresFailure gives an error the code that fits.
func postgresFailure(err error) error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) || errors.Is(err, errUnique) {
		return err
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch {
		case e.Code == "23505":
			return errUnique
		case e.Code == "40P01", e.Code == "40001":
			return errors.Join(errGaveWay, err)
		case e.Code == "53100":
			return fault.DiskFull.Because(err, "the outbox's database has no space left: nothing was committed; free some and try again")
		case strings.HasPrefix(e.Code, "08"), strings.HasPrefix(e.Code, "57P"), strings.HasPrefix(e.Code, "53"):
			return fault.Unavailable.Because(err, "the outbox's database is away (%s)", e.Code)
		}
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var ce *pgconn.ConnectError
	if errors.As(err, &ce) || pgconn.SafeToRetry(err) {
		return fault.Unavailable.Because(err, "the outbox's database cannot be reached")
	}
	return err
}

// write runs f in one transaction. Statements that nothing waits for go out
// together with the commit; if there are no others, the whole transaction is
// one round trip, and may be gathered with those of other Boxes. If such a
// one is undone f runs again.
func (d *postgresDB) write(ctx context.Context, f func(querier) error) (ambiguous bool, err error) {
	end := d.attempt(ctx, f, d.gather.write)
	if end.spoiled {
		end = d.attempt(ctx, f, d.gather.alone)
	}
	return end.ambiguous, postgresFailure(end.err)
}

// attempt is write, with send for what needs no connection before it is committed.
func (d *postgresDB) attempt(ctx context.Context, f func(querier) error, send func(*postgresDB, *pgx.Batch) ending) ending {
	q := &postgresTx{ctx: ctx, pool: d.pool}
	defer q.release()
	if err := f(q); err != nil || q.err != nil {
		q.rollback()
		return ending{err: cmp.Or(err, q.err)}
	}
	switch {
	case q.tx != nil:
		end := ended(q.commit())
		if end.err != nil {
			q.rollback()
		}
		return end
	case q.queue.Len() > 0:
		return send(d, &q.queue)
	}
	return ending{}
}

// read gives every statement a snapshot of its own: to begin a transaction and to
// end it are round trips. What makes a Standstill is in several rows, which may
// each be as they were at another moment. So f has to find it in one snapshot too.
func (d *postgresDB) read(ctx context.Context, f func(querier) error) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return postgresFailure(err)
	}
	defer conn.Release()
	q := &postgresTx{ctx: ctx, conn: conn.Conn(), auto: true}
	err = f(q)
	if _, still := errors.AsType[*Standstill](err); still {
		one := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		err = pgx.BeginTxFunc(ctx, conn, one, func(pgx.Tx) error { return f(q) })
	}
	return postgresFailure(err)
}

func (d *postgresDB) shareLease(q querier, box int64) {
	q.later("SELECT pg_advisory_xact_lock_shared($1, $2)", []any{leaseLocks, int32(box)}, nil)
}

func (d *postgresDB) takeLease(ctx context.Context, q querier, box int64) error {
	_, err := q.exec(ctx, "SELECT pg_advisory_xact_lock($1, $2)", leaseLocks, int32(box))
	return err
}

func (d *postgresDB) now(ctx context.Context, q querier) (ms int64, err error) {
	err = q.query(ctx, "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)", nil,
		func(scan scanner) error { return scan(&ms) })
	return ms, err
}

func (d *postgresDB) notify(q querier, outbox string) {
	q.later("SELECT pg_notify('"+channel+"', $1)", []any{outbox}, nil)
}

func (d *postgresDB) watch(ctx context.Context, outbox string, changed func(), alive func(pid int64)) {
	listen(ctx, d.pool, outbox, d.poll, changed, alive)
}

// gone asks whether the backend that the holder listened on is there. Should it
// only have lost its connection, it is fenced and waits its turn.
func (d *postgresDB) gone(ctx context.Context, q querier, pid int64) (gone bool, err error) {
	if pid == 0 {
		return false, nil
	}
	err = q.query(ctx, "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1)", []any{int32(pid)},
		func(scan scanner) error { return scan(&gone) })
	return gone, err
}

func (d *postgresDB) lockRows() string                               { return " FOR UPDATE" }
func (d *postgresDB) refs() *refSQL                                  { return postgresRefs }
func (d *postgresDB) alone(int64) (release func(), held, known bool) { return nil, false, false }

func (d *postgresDB) close() error {
	d.release()
	return nil
}

// postgresTx runs statements on one connection: in a transaction, or (auto)
// each on its own.
type postgresTx struct {
	ctx   context.Context
	pool  *pgxpool.Pool // where conn comes from with tx, if it is not given
	conn  *pgx.Conn
	tx    pgx.Tx // nil until a statement's result is waited for
	end   func() // what begin has taken; nil for nothing
	given bool   // tx is the caller's: later runs at once, commit is theirs
	auto  bool
	queue pgx.Batch
	err   error
}

func (q *postgresTx) later(sql string, args []any, one func(scanner) error) {
	if q.given {
		if q.err == nil {
			q.err = q.flushInto(func(b *pgx.Batch) { enqueue(b, sql, args, one) })
		}
		return
	}
	enqueue(&q.queue, sql, args, one)
}

func enqueue(b *pgx.Batch, sql string, args []any, one func(scanner) error) {
	queued := b.Queue(sql, args...)
	if one != nil {
		queued.QueryRow(func(row pgx.Row) error { return one(row.Scan) })
	}
}

func (q *postgresTx) flushInto(fill func(*pgx.Batch)) error {
	var b pgx.Batch
	fill(&b)
	return q.tx.SendBatch(q.ctx, &b).Close()
}

// ready begins the transaction if need be and sends what has waited, before a
// statement whose result is wanted now.
func (q *postgresTx) ready() error {
	if q.auto || q.given || q.err != nil {
		return q.err
	}
	if q.tx == nil {
		if q.err = q.begin(); q.err != nil {
			return q.err
		}
	}
	return q.flush()
}

func (q *postgresTx) begin() error {
	ctx, cancel := context.WithTimeout(q.ctx, writeTimeout)
	conn, err := q.pool.Acquire(ctx)
	if err != nil {
		cancel()
		return err
	}
	q.end = func() { conn.Release(); cancel() }
	tx, err := conn.Conn().Begin(ctx)
	if err != nil {
		return err
	}
	q.ctx, q.conn, q.tx = ctx, conn.Conn(), tx
	return nil
}

// release gives back what begin has taken.
func (q *postgresTx) release() {
	if q.end != nil {
		q.end()
		q.end = nil
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

// commit sends what has waited and commits.
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

func (q *postgresTx) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if err := q.ready(); err != nil {
		return 0, postgresFailure(err)
	}
	tag, err := q.runner().Exec(ctx, sql, args...)
	return tag.RowsAffected(), postgresFailure(err)
}

func (q *postgresTx) query(ctx context.Context, sql string, args []any, each func(scanner) error) error {
	if err := q.ready(); err != nil {
		return postgresFailure(err)
	}
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
