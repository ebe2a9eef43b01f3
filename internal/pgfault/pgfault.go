// Package pgfault is what an error of pgx means, by package dbfault's table. It stands apart, so that
// a program which keeps its outbox in SQLite carries no pgx.
package pgfault

import (
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooring-rpc/mooring/internal/dbfault"
)

// Of is what an error of pgx means: what Postgres answered, or a link to it that could
// not be made or broke.
func Of(err error) dbfault.Cause {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return dbfault.Postgres(e.Code, e.Routine)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.As(err, &connect), errors.As(err, &network), pgconn.Timeout(err), pgconn.SafeToRetry(err),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, driver.ErrBadConn):
		return dbfault.Unreachable
	}
	return dbfault.None
}
