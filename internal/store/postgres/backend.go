// Transactions, and how their statements are sent: queued statements go out together, BEGIN with
// the first and the commit with the last. Only a long list to insert is sent separately (copy.go).

package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/pgtune"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// backend implements dialect.Backend.
type backend struct {
	pool        *pgxpool.Pool
	sizedPool   *pgtune.AdaptivePool // the way to use pool
	log         *slog.Logger
	endTimeout  time.Duration
	allowUnsafe bool
	closed      atomic.Bool
	announcer   *announcer
}

var (
	readWrite = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	readOnly  = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
)

// Update implements dialect.Backend.
func (b *backend) Update(ctx context.Context, fn func(dialect.Runner) error) error {
	return b.transaction(ctx, readWrite, fn)
}

// Snapshot implements dialect.Backend.
func (b *backend) Snapshot(ctx context.Context, fn func(dialect.Runner) error) error {
	return b.transaction(ctx, readOnly, fn)
}

func (b *backend) transaction(ctx context.Context, options pgx.TxOptions, fn func(dialect.Runner) error) (err error) {
	conn, release, err := b.sizedPool.Acquire(ctx)
	if err != nil && b.closed.Load() {
		return dialect.ErrClosed
	}
	if err != nil && ctx.Err() != nil { // all were in use, or none could be opened
		return fmt.Errorf("connect: %w", contextError(ctx, dbfault.NoConnection, err))
	}
	if err != nil {
		return fmt.Errorf("connect: %w", translate(ctx, err))
	}
	defer release()
	r := &runner{backend: b, conn: conn.Conn(), batch: &pgx.Batch{}, options: options, scratch: pgtune.NewBuffer()}
	defer r.scratch.Free()
	defer r.rollback(ctx) // after an error, or a panic that a caller recovers
	if err := fn(r); err != nil {
		return err
	}
	return r.commit(ctx)
}

// runner implements dialect.Runner on one connection.
type runner struct {
	backend     *backend
	conn        *pgx.Conn
	options     pgx.TxOptions
	batch       *pgx.Batch
	begun       bool
	ended       bool
	callbackErr error          // returned by a row callback. It is not returned to pgx, which would then drop its prepared statements
	argBytes    int            // encoded size of the lists in batch
	scratch     *pgtune.Buffer // buffer of the lists, one statement's after the other's
}

// Queue implements dialect.Runner.
func (r *runner) Queue(s *dialect.Statement, list [][]any, args []any, each func(dialect.Scanner) error) {
	if s.Postgres == (dialect.Forms{}) {
		return
	}
	text := s.Postgres.One
	switch {
	case len(list) == 1:
		for _, value := range list[0] {
			r.argBytes += encodedSize(value)
		}
		args = append(dialect.Values(list[0]), args...)
	case len(s.Columns) > 0:
		lists, room := arrayArgs(list, len(s.Columns), r.scratch)
		text, args = s.Postgres.Many, append(lists, args...)
		r.argBytes += room
	}
	q := r.batch.Queue(text, args...)
	if each == nil {
		return
	}
	q.Query(func(rows pgx.Rows) error {
		for r.callbackErr == nil && rows.Next() {
			if err := each(rows); errors.Is(err, dialect.ErrStopRows) {
				break
			} else if err != nil {
				r.callbackErr = err
			}
		}
		rows.Close() // drops the rest of the result
		return rows.Err()
	})
}

const nowQuery = `SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint`

// QueueNow implements dialect.Runner.
func (r *runner) QueueNow(each func(now int64)) {
	r.batch.Queue(nowQuery).QueryRow(func(row pgx.Row) error {
		var now int64
		if err := row.Scan(&now); err != nil {
			return err
		}
		each(now)
		return nil
	})
}

// Erase implements dialect.Runner: a row's earlier versions stay until the database vacuums, which
// takes privileges and time that a server does not have.
func (r *runner) Erase() {}

// Flush implements dialect.Runner.
func (r *runner) Flush(ctx context.Context) error {
	if !r.begun && r.batch.Len() > 0 {
		begin := &pgx.Batch{}
		begin.BeginTx(r.options)
		r.batch.QueuedQueries = append(begin.QueuedQueries, r.batch.QueuedQueries...)
		r.begun = true
	}
	return r.send(ctx)
}

// send sends the queued statements and reads their results.
func (r *runner) send(ctx context.Context) error {
	batch, bytes := r.batch, r.argBytes
	r.batch, r.argBytes = &pgx.Batch{}, 0
	if batch.Len() == 0 {
		return nil
	}
	err := pgtune.Send(ctx, r.conn, batch, bytes)
	if r.callbackErr != nil {
		err = r.callbackErr
	}
	return translate(ctx, err)
}

// commit sends the queued statements together with the commit. Statements that are sent in one
// batch and write are a transaction by themselves: the server commits it at its end, with the
// settings of the connection (package pgtune). A commit that was sent is waited for even if the
// caller gives up (commitContext): its outcome matters.
func (r *runner) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return translate(ctx, err)
	}
	reading := r.options.AccessMode == pgx.ReadOnly
	if !reading {
		var cancel context.CancelFunc
		ctx, cancel = commitContext(ctx, r.backend.endTimeout)
		defer cancel()
	}
	var err error
	switch {
	case r.begun || reading && r.batch.Len() > 0:
		r.batch.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
			if tag.String() == "ROLLBACK" {
				return errors.New("commit: the transaction was rolled back")
			}
			return nil
		})
		err = r.Flush(ctx)
	case r.batch.Len() > 0:
		err = r.send(ctx)
	}
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	r.ended = true
	return nil
}

// commitContext returns ctx for a commit that was sent. It ends at ctx's deadline, but not before
// least is over; without a deadline, least after ctx was canceled.
func commitContext(ctx context.Context, least time.Duration) (context.Context, context.CancelFunc) {
	steady := context.WithoutCancel(ctx)
	if end, bounded := ctx.Deadline(); bounded {
		if soonest := time.Now().Add(least); end.Before(soonest) {
			end = soonest
		}
		return context.WithDeadline(steady, end)
	}
	steady, cancel := context.WithCancel(steady)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(least, cancel) })
	return steady, func() {
		stop()
		cancel()
	}
}

// rollback ends an unsuccessful transaction; without a connection there is nothing to do, since the
// database rolls back by itself.
func (r *runner) rollback(ctx context.Context) {
	if !r.begun || r.ended || r.conn.IsClosed() || r.conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.backend.endTimeout)
	defer cancel()
	// If it fails, the pool drops the connection.
	_, _ = r.conn.Exec(ctx, "rollback")
}

// Announce implements dialect.Backend.
func (b *backend) Announce(cursors map[string]uint64) { b.announcer.add(cursors) }

// Ping implements dialect.Backend. It returns UnsafeStore for a database that was set to lose commits
// since it was opened, Unavailable for one that takes no writes.
func (b *backend) Ping(ctx context.Context) error {
	conn, release, err := b.sizedPool.Acquire(ctx)
	if err != nil {
		return translate(ctx, err)
	}
	defer release()
	if err := checkSafe(ctx, conn.Conn(), b.allowUnsafe); err != nil {
		return translate(ctx, err)
	}
	return translate(ctx, checkWrites(ctx, conn.Conn()))
}

// PoolStats implements dialect.Pooled.
func (b *backend) PoolStats() (have, most int, short bool) {
	size := b.sizedPool.Size()
	return size.Have, size.Max, size.Short
}

// sizeChanged logs that the pool has fewer connections than it may have, or again all of them.
func (b *backend) sizeChanged(size pgtune.Size) {
	if size.Short {
		b.log.Warn("the database, its role or a pooler in front of it allows fewer connections than the pool may use: requests wait for each other. "+
			"Raise its number (PgBouncer: default_pool_size), or lower --database-connections", "have", size.Have, "wanted", size.Max)
		return
	}
	b.log.Info("the database has more connections again", "have", size.Have, "wanted", size.Max)
}

// Close implements dialect.Backend.
func (b *backend) Close() error {
	b.closed.Store(true)
	b.announcer.close()
	b.sizedPool.Close()
	b.pool.Close()
	return nil
}
