// What runs statements, and what reads their rows.

package dialect

import (
	"context"
	"errors"

	"github.com/mooring-rpc/mooring/fault"
)

// Scanner is one row of a statement's result.
type Scanner interface {
	Scan(dest ...any) error
}

// Runner runs the statements of one transaction in the order in which they were queued. It is for
// one goroutine at a time.
type Runner interface {
	// Queue adds a statement. list is the rows of the statement's list (each value a string, an
	// int64, []byte for a column of bytes, or a pointer that Value accepts, whose target must not
	// change until the statement has run); args are its single values. each, if not nil, is called
	// for every row of the result, during the next Flush or, without one, at the end of the
	// transaction; once it has returned ErrStopRows, the rest of the result is dropped. A statement
	// without text in the runner's dialect is skipped.
	Queue(s *Statement, list [][]any, args []any, each func(Scanner) error)

	// QueueNow queues a read of the database's clock, Unix ms.
	QueueNow(each func(now int64))

	// Erase asks that the rows this transaction removes do not stay in the database's files, as far
	// as the database can ensure that itself.
	Erase()

	// Flush runs the queued statements. It stops at the first error; after that the transaction can
	// only be rolled back.
	Flush(ctx context.Context) error
}

// ErrStopRows is returned by a row callback to skip the remaining rows of its statement; later
// statements still run. The database may have sent the skipped rows anyway.
var ErrStopRows = errors.New("enough rows")

// ErrClosed is returned by the methods of a closed store.
var ErrClosed = fault.Draining.With("the store is closed")

// Backend is one database.
type Backend interface {
	// Update runs fn in a read-write transaction and commits it, together with the statements that
	// fn left in the queue, if fn returns nil; otherwise it rolls back and returns fn's error
	// unchanged. On Postgres the isolation is READ COMMITTED.
	Update(ctx context.Context, fn func(Runner) error) error

	// Snapshot runs fn, and the statements that it left in the queue, in a read-only transaction
	// that sees one state of the database.
	Snapshot(ctx context.Context, fn func(Runner) error) error

	// Announce sends the new cursors of sessions, after their commits, to the Listen of every
	// process including this one. It does not block and reports no errors; several commits are
	// announced together shortly after. It does nothing where no other process can commit.
	Announce(cursors map[string]uint64)

	// Listen calls heard for each announcement until ctx ends, then returns nil. heard("", 0) means
	// that announcements may have been lost. Where no other process can commit it only waits.
	Listen(ctx context.Context, heard func(session string, cursor uint64)) error

	// Ping checks that the database answers.
	Ping(ctx context.Context) error

	// Close waits for running transactions and closes all connections.
	Close() error
}

// Pooled is a Backend with a pool of connections.
type Pooled interface {
	// PoolStats returns the number of open connections and their maximum; short reports that none
	// was free.
	PoolStats() (have, most int, short bool)
}

// SpaceReporter is a Backend that knows the free disk space for its files.
type SpaceReporter interface {
	// FreeSpace returns the free bytes; known is false if they cannot be determined.
	FreeSpace() (bytes uint64, known bool)
}

// Collect returns a callback that appends each scanned row to a list.
func Collect[T any](to *[]T, scan func(Scanner) (T, error)) func(Scanner) error {
	return func(row Scanner) error {
		v, err := scan(row)
		*to = append(*to, v)
		return err
	}
}

// EachRow returns a callback that calls do with each scanned row.
func EachRow[T any](scan func(Scanner) (T, error), do func(T)) func(Scanner) error {
	return func(row Scanner) error {
		v, err := scan(row)
		if err == nil {
			do(v)
		}
		return err
	}
}

// Query queues a statement, and runs it with those that were queued before.
func Query(ctx context.Context, r Runner, s *Statement, list [][]any, args []any, each func(Scanner) error) error {
	r.Queue(s, list, args, each)
	return r.Flush(ctx)
}

// ScanText scans one text.
func ScanText(row Scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// SetClock returns a callback that stores the database's time.
func SetClock(to *int64) func(now int64) {
	return func(now int64) { *to = now }
}

// Nullable returns b as a value for a nullable column: NULL if b is nil, and not an empty value.
func Nullable(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
