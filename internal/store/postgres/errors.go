// Translation of Postgres' errors, and of lost connections, to faults.

package postgres

import (
	"context"
	"errors"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/pgfault"
)

// messages are the texts for callers, by cause. They do not contain the database's address.
var messages = map[dbfault.Cause]string{
	dbfault.Unreachable:  "the database is away: it is tried again",
	dbfault.Refused:      "the database does not let the server in: look at the database URL's user, password and name, and at the user's rights",
	dbfault.ReadOnly:     "the database takes no writes: it is a standby, in recovery, or set to be read only; it is tried again",
	dbfault.Closed:       "the database is closed for maintenance: it is tried again",
	dbfault.NoConnection: "the database has no connection left for the server: it is tried again; end some, or raise its max_connections",
	dbfault.NoMemory:     "the database is out of memory, or at another of its limits: it is tried again",
	dbfault.DiskFull:     "no space left on the database's disk: free some; nothing that was acknowledged is lost",
	dbfault.DiskError:    "the database's disk does not take or give its data: look at the database's log",
	dbfault.Damaged:      "the database says that its data is damaged: look at the database's log",
	dbfault.Locked:       "the database gave this up in favour of another transaction: try again",
	dbfault.Timeout:      "the database took longer than it may: try again later",
}

// translate gives an error of the database its fault code; the original stays in the chain, for the
// log.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var known *fault.Error
	if errors.As(err, &known) {
		return err
	}
	if ctx.Err() != nil {
		return contextError(ctx, dbfault.Timeout, err)
	}
	if cause := pgfault.Of(err); cause != dbfault.None {
		return cause.Fault(err, messages[cause])
	}
	return err
}

// contextError is the error of an operation whose context has ended; cause is the reason for the
// delay, if known.
func contextError(ctx context.Context, cause dbfault.Cause, err error) error {
	why := context.Cause(ctx)
	if errors.Is(why, context.DeadlineExceeded) {
		err = dbfault.Mark(cause, err)
	}
	return fault.ContextError(why, err)
}
