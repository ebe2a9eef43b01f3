// Translation of SQLite's error codes to faults.

package sqlite

import (
	"context"
	"errors"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
)

// messages are the texts for callers, by cause.
var messages = map[dbfault.Cause]string{
	dbfault.ReadOnly:  "the database's file cannot be written: look at who owns it and its folder, and whether it was replaced or its disk is read only",
	dbfault.NoMemory:  "the server is out of memory: try again later",
	dbfault.DiskFull:  "no space left where the data folder is, or a quota is used up: free some; nothing that was acknowledged is lost",
	dbfault.DiskError: "the disk does not take or give the database's data: look at the server's log and the disk",
	dbfault.Damaged:   "the database's file is damaged, or is none: stop the server, keep a copy of it, and restore a backup",
	dbfault.Locked:    "another program keeps the database file locked: stop it",
	dbfault.Timeout:   "the database took longer than it may: try again later",
}

// codeError is implemented by *sqlite.Error.
type codeError interface {
	error
	Code() int
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
	if why := context.Cause(ctx); why != nil {
		if errors.Is(why, context.DeadlineExceeded) {
			err = dbfault.Mark(dbfault.Timeout, err)
		}
		return fault.ContextError(why, err)
	}
	if e, ok := errors.AsType[codeError](err); ok {
		if cause := dbfault.SQLite(e.Code()); cause != dbfault.None {
			return cause.Fault(err, messages[cause])
		}
	}
	return err
}
