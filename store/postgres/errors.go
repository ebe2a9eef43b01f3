// What Postgres's error codes, and a broken link to it, mean to callers.

package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/store"
)

// translate gives an error of the database its code; the original stays in the
// chain, for the log. Messages say nothing of the database's address.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var known *fault.Error
	if errors.As(err, &known) {
		return err
	}
	if ctx.Err() != nil {
		return fault.GivenUp(context.Cause(ctx), err)
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return translateCode(e, err)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.As(err, &connect), errors.As(err, &network), pgconn.Timeout(err), pgconn.SafeToRetry(err),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return fault.Unavailable.Because(err, "the database is away: it is tried again")
	}
	return err
}

func translateCode(e *pgconn.PgError, err error) error {
	class := e.Code[:min(2, len(e.Code))]
	switch {
	case e.Code == "53100":
		return fault.DiskFull.Because(err, "no space left on the database's disk: free some; nothing that was acknowledged is lost")
	case class == "28", class == "3D":
		return fault.Unavailable.Because(err, "the database does not let the server in: look at the database URL's user, password and name")
	// 08 connection, 53 out of connections or memory, 57P shut down, starting,
	// or ended by an operator, 25006 a standby, 40 and 55P03 given up for another,
	// 25P03 and 25P04 a transaction that stood still, or took, for too long.
	case class == "08", class == "53", strings.HasPrefix(e.Code, "57"), e.Code == "25006":
		return fault.Unavailable.Because(err, "the database is away: it is tried again")
	case class == "40", e.Code == "55P03", e.Code == "25P03", e.Code == "25P04":
		return fault.Unavailable.Because(err, "the database gave this up in favour of another transaction: try again")
	case e.Code == "23505": // of whatever name: of a partition's index it is another
		return fmt.Errorf("%w: %w", store.ErrThere, err)
	}
	return err
}
