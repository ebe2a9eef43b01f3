package sqlstore

// The interface between the outbox and its database. Both dialects implement it; the SQL that
// they share is in tables.go.

import (
	"context"
	"time"
)

// Scanner scans the columns of one result row.
type Scanner func(dest ...any) error

// Querier runs statements, in a transaction or on a snapshot. Placeholders are
// $1, $2, … in both dialects.
type Querier interface {
	// Enqueue runs a statement whose result the transaction does not wait for, at the latest
	// when it commits; one, if not nil, gets its only row. Postgres sends all of them in one
	// round trip.
	Enqueue(sql string, args []any, one func(Scanner) error)
	// Exec runs a statement and returns how many rows it changed.
	Exec(ctx context.Context, sql string, args ...any) (int64, error)
	// Query runs a statement and calls each for every row.
	Query(ctx context.Context, sql string, args []any, each func(Scanner) error) error
}

// CallerTx is a caller's transaction.
type CallerTx interface {
	Querier
	// Flush runs the enqueued statements.
	Flush() error
}

// Database is a dialect and its connections. Errors are faults where there is a code for them;
// ErrUnique reports a key that exists already.
type Database interface {
	// Write runs f in one durable transaction. It is called by one goroutine at a time. f may
	// run again, after a rollback. ambiguous reports that a failed transaction may have been
	// committed.
	Write(ctx context.Context, f func(Querier) error) (ambiguous bool, err error)
	// Read runs f on committed data. A SnapshotError that f returns was true at one
	// moment; f may run again to ensure that, and on another connection if one dies.
	Read(ctx context.Context, f func(Querier) error) error

	// ShareLease blocks takeovers until the transaction ends; TakeLease waits for all
	// transactions that share the lease, and blocks them.
	ShareLease(q Querier, box int64)
	TakeLease(ctx context.Context, q Querier, box int64) error
	// Now returns the clock that leases use, in Unix ms.
	Now(ctx context.Context, q Querier) (int64, error)
	// Notify notifies other processes' senders of new rows, when the transaction commits.
	Notify(q Querier, outbox string)
	// Watch calls changed, from one goroutine, whenever another process may have committed: at
	// once where the database can notify, and by polling. It blocks until ctx ends.
	//
	// alive is called with the pid by which HolderDead of other processes tests this one.
	Watch(ctx context.Context, outbox string, changed func(), alive func(pid int64))
	// HolderDead reports that the holder with that pid is certainly dead.
	HolderDead(ctx context.Context, q Querier, pid int64) (bool, error)
	// BlockingWriter returns the process whose transaction has blocked all other writers for
	// long; 0 for none, or where that is impossible.
	BlockingWriter(ctx context.Context) (pid int, since time.Time)
	// CheckIntegrity checks the whole database for damage, as far as possible. It takes as long
	// as reading all of it.
	CheckIntegrity(ctx context.Context, q Querier) error
	// InTx returns a caller's transaction on this database as a CallerTx; Usage if it is none.
	InTx(ctx context.Context, tx any) (CallerTx, error)
	// InClause returns the clause "column is one of ids", and the argument for its placeholder.
	InClause(column, placeholder string, ids []string) (clause string, arg any)
	// LockRows returns the clause that locks the rows which a SELECT reads.
	LockRows() string
	// Refs returns the dialect's statements for refs.
	Refs() *RefSQL
	// TryLivenessLock tries to get the lock that a living sender holds, so that a successor
	// need not wait for a dead sender's lease to lapse. locked: no living process has it, and
	// this one holds it until release. Where there is no such lock, known is false. The lock is
	// not the lease: a Box may get the lease without the lock if another process is suspended
	// while holding it.
	TryLivenessLock(box int64) (release func(), locked, known bool)
	Close() error
}

// LivenessHeld stands for the holder's pid where only its liveness file's lock is known, and is
// held.
const LivenessHeld = 1
