// CheckPooler: detection of a pooler that shares connections.

package pgtune

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooring-rpc/mooring/fault"
)

// poolerTimeout is how long a second connection is waited for.
const poolerTimeout = 5 * time.Second

// CheckPooler refuses, as UnsafeStore, a pooler in front of c's database that shares one of the database's connections among
// several clients: with that, locks, settings and notifications of a connection belong to another client. It makes a
// connection, and a second one where there is a pooler; both are closed when it returns. A pooler that gives the two
// different connections, by chance and twice, is not detected.
func CheckPooler(ctx context.Context, c *pgx.ConnConfig) error {
	first, err := pgx.ConnectConfig(ctx, c.Copy())
	if err != nil {
		return err
	}
	defer closeConn(ctx, first)
	backend, err := backendOf(ctx, first)
	if err != nil || backend == first.PgConn().PID() {
		return err // a pooler reports a number of its own
	}
	bounded, cancel := context.WithTimeout(ctx, poolerTimeout)
	defer cancel()
	second, err := pgx.ConnectConfig(bounded, c.Copy())
	if err != nil {
		return ctx.Err() // a pooler that keeps its only connection for the first is safe
	}
	defer closeConn(ctx, second)
	tx, err := second.Begin(ctx)
	if refusal := (*pgconn.PgError)(nil); errors.As(err, &refusal) {
		return errLendingPooler() // a pooler by the statement has no transactions
	} else if err != nil {
		return err
	}
	other, err := backendOf(ctx, second)
	if err != nil {
		return err
	}
	again := other
	if other != backend { // else the first has none now, and there may be none left for it
		if again, err = backendOf(ctx, first); err != nil {
			return err
		}
	}
	if other == backend || again != backend {
		return errLendingPooler()
	}
	return tx.Rollback(ctx)
}

func errLendingPooler() error {
	return fault.UnsafeStore.With("a pooler before the database lends its connections by the transaction or statement, so that locks and settings " +
		"get lost: have it lend them by the session (PgBouncer: pool_mode = session), or give the database's own address")
}

// backendOf returns the number of the process that serves conn now.
func backendOf(ctx context.Context, conn *pgx.Conn) (uint32, error) {
	results, err := conn.PgConn().Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
	if err != nil {
		return 0, err
	}
	pid, err := strconv.ParseUint(string(results[0].Rows[0][0]), 10, 32)
	return uint32(pid), err
}

func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
