// What SQLite's error codes mean to callers.

package sqlite

import (
	"context"
	"errors"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/mooring-rpc/mooring/fault"
)

// translate gives an error of the database its code; the original stays in the
// chain, for the log.
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
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	// A disk quota and a limit on file sizes show as a failed write.
	case e.Code()&0xff == lib.SQLITE_FULL, e.Code() == lib.SQLITE_IOERR_SHMSIZE, e.Code() == lib.SQLITE_IOERR_WRITE:
		return fault.DiskFull.Because(err, "no space left where the data folder is, or a quota is used up: free some; nothing that was acknowledged is lost")
	case e.Code()&0xff == lib.SQLITE_BUSY:
		return fault.Unavailable.Because(err, "another program keeps the database file locked: stop it")
	case e.Code()&0xff == lib.SQLITE_IOERR:
		return fault.Unavailable.Because(err, "the disk does not take or give the database's data: look at the server's log and the disk")
	}
	return err
}
