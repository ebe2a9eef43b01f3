// Package dbfault is the one table of what Postgres's SQLSTATEs and SQLite's result codes
// mean: what keeps a database from doing its work, and the fault that callers are answered
// for it. Which words they are answered is said where it is known whose database it is.
//
// An error that is not in the table is a defect of ours, and its code fault.Internal: a statement
// that the database does not understand, a row that breaks a rule.
package dbfault

import (
	"errors"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
)

// Cause is why a database does not do what it is asked for. Its text names it in logs,
// metrics and answers.
type Cause string

// Causes. All of them pass, by themselves or by an operator's doing.
const (
	None         Cause = ""
	Unreachable  Cause = "away"          // it does not answer, is starting, or shuts down
	Refused      Cause = "refused"       // it does not let us in, or not at its tables
	ReadOnly     Cause = "read_only"     // it takes no writes: a standby, or a file that is not ours to write
	Closed       Cause = "closed"        // it is not open now, for maintenance
	NoConnection Cause = "no_connection" // it has no connection left
	NoMemory     Cause = "no_memory"     // it has no memory left, or is at another limit of its own
	DiskFull     Cause = "disk_full"     // no space left, or a quota is used up
	DiskError    Cause = "disk_error"    // the disk does not take or give the data
	Damaged      Cause = "damaged"       // what is stored is not what was written
	Locked       Cause = "locked"        // given up for another transaction or program
	Timeout      Cause = "timeout"       // it took longer than it may
)

// Causes are all causes.
func Causes() []Cause {
	return []Cause{Unreachable, Refused, ReadOnly, Closed, NoConnection, NoMemory, DiskFull, DiskError, Damaged, Locked, Timeout}
}

// Code is the fault's. Both are tried again.
func (c Cause) Code() fault.Code {
	switch c {
	case None:
		return fault.Internal
	case DiskFull:
		return fault.DiskFull
	}
	return fault.Unavailable
}

// failure is in the chain of errors that have a cause.
type failure struct {
	cause Cause
	err   error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Mark gives err a cause, which Of finds.
func Mark(c Cause, err error) error { return &failure{c, err} }

// Fault is the error that callers get for err, in the caller's own words.
func (c Cause) Fault(err error, words string) *fault.Error {
	return c.Code().Because(Mark(c, err), "%s", words)
}

// Of is the cause of an error that Mark or Fault has given one; None of all others.
func Of(err error) Cause {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.cause
	}
	return None
}

// states has SQLSTATEs and, of two letters, classes of them; a state comes before its class.
var states = map[string]Cause{
	"08":    Unreachable,  // a connection that broke
	"25006": ReadOnly,     // a standby, or one that is set to be read-only
	"25P03": Locked,       // idle for too long in a transaction
	"25P04": Timeout,      // a transaction that took too long
	"28":    Refused,      // user and password
	"3D":    Refused,      // no such database
	"40":    Locked,       // deadlocks, serialization
	"42501": Refused,      // no right to a table
	"53":    NoMemory,     // not enough of something
	"53100": DiskFull,     //
	"53300": NoConnection, //
	"55000": Closed,       // "not currently accepting connections"
	"55006": Closed,       // used by somebody who needs it alone
	"55P03": Locked,       // lock_timeout
	"57":    Unreachable,  // an operator's doing: shutdown, crash, start, the end of one connection
	"57014": Timeout,      // statement_timeout, or somebody canceled it
	"58":    DiskError,    // the system's errors
	"XX001": Damaged,      // data
	"XX002": Damaged,      // an index
}

// States are the SQLSTATEs, and of two letters the classes of them, that have a cause.
func States() []string { return slices.Sorted(maps.Keys(states)) }

// Results are SQLite's result codes that have a cause.
func Results() []int { return slices.Sorted(maps.Keys(results)) }

// recoveryRoutine is the routine of Postgres that answers 0A000, "not supported", to a transaction
// that is to write while the database recovers. Every other 0A000 is a statement of ours that
// it has no idea of. The message is translated, so it is of no use.
const recoveryRoutine = "call_bool_check_hook"

// Postgres is what a SQLSTATE means, and the routine of Postgres that it came from.
func Postgres(state, routine string) Cause {
	if state == "0A000" && routine == recoveryRoutine {
		return ReadOnly
	}
	if c, ok := states[state]; ok {
		return c
	}
	return states[state[:min(2, len(state))]]
}

// SQLite's numbers of its results (https://sqlite.org/rescode.html), said again here so that a program
// without SQLite carries none of it.
const (
	sqlitePerm           = 3
	sqliteBusy           = 5
	sqliteLocked         = 6
	sqliteNomem          = 7
	sqliteReadonly       = 8
	sqliteInterrupt      = 9
	sqliteIoerr          = 10
	sqliteCorrupt        = 11
	sqliteFull           = 13
	sqliteCantopen       = 14
	sqliteProtocol       = 15
	sqliteSchema         = 17
	sqliteNolfs          = 22
	sqliteNotadb         = 26
	sqliteIoerrWrite     = 10 | 3<<8
	sqliteIoerrNomem     = 10 | 12<<8
	sqliteIoerrShmsize   = 10 | 19<<8
	sqliteIoerrData      = 10 | 32<<8
	sqliteIoerrCorruptfs = 10 | 33<<8
)

// results has SQLite's result codes, extended ones before those that they extend.
var results = map[int]Cause{
	sqlitePerm:           ReadOnly,
	sqliteBusy:           Locked,
	sqliteLocked:         Locked,
	sqliteProtocol:       Locked, // of the write-ahead log's locks
	sqliteSchema:         Locked, // somebody changes the tables
	sqliteNomem:          NoMemory,
	sqliteIoerrNomem:     NoMemory,
	sqliteReadonly:       ReadOnly,
	sqliteInterrupt:      Timeout,
	sqliteIoerr:          DiskError,
	sqliteCantopen:       DiskError,
	sqliteNolfs:          DiskError, // a file too large for its file system
	sqliteFull:           DiskFull,
	sqliteIoerrWrite:     DiskFull, // as disk quotas and limits on file sizes show
	sqliteIoerrShmsize:   DiskFull,
	sqliteCorrupt:        Damaged,
	sqliteNotadb:         Damaged,
	sqliteIoerrCorruptfs: Damaged,
	sqliteIoerrData:      Damaged, // a checksum
}

// SQLite is what a result code means.
func SQLite(code int) Cause {
	if c, ok := results[code]; ok {
		return c
	}
	return results[code&0xff]
}
