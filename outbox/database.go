package outbox

// The interface between the outbox and its database. Both dialects implement it; the SQL that
// they share is in tables.go.

import (
	"context"
	"errors"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// scanner scans the columns of one result row.
type scanner func(dest ...any) error

// querier runs statements, in a transaction or on a snapshot. Placeholders are
// $1, $2, … in both dialects.
type querier interface {
	// enqueue runs a statement whose result the transaction does not wait for, at the latest
	// when it commits; one, if not nil, gets its only row. Postgres sends all of them in one
	// round trip.
	enqueue(sql string, args []any, one func(scanner) error)
	// exec runs a statement and returns how many rows it changed.
	exec(ctx context.Context, sql string, args ...any) (int64, error)
	// query runs a statement and calls each for every row.
	query(ctx context.Context, sql string, args []any, each func(scanner) error) error
}

// database is a dialect and its connections. Errors are faults where there is a code for them;
// errUnique reports a key that exists already.
type database interface {
	// write runs f in one durable transaction. It is called by one goroutine at a time. f may
	// run again, after a rollback. ambiguous reports that a failed transaction may have been
	// committed.
	write(ctx context.Context, f func(querier) error) (ambiguous bool, err error)
	// read runs f on committed data. A StreamStoppedError that f returns was true at one
	// moment; f may run again to ensure that, and on another connection if one dies.
	read(ctx context.Context, f func(querier) error) error

	// shareLease blocks takeovers until the transaction ends; takeLease waits for all
	// transactions that share the lease, and blocks them.
	shareLease(q querier, box int64)
	takeLease(ctx context.Context, q querier, box int64) error
	// now returns the clock that leases use, in Unix ms.
	now(ctx context.Context, q querier) (int64, error)
	// notify notifies other processes' senders of new rows, when the transaction commits.
	notify(q querier, outbox string)
	// watch calls changed, from one goroutine, whenever another process may have committed: at
	// once where the database can notify, and by polling. It blocks until ctx ends.
	//
	// alive is called with the pid by which holderDead of other processes tests this one.
	watch(ctx context.Context, outbox string, changed func(), alive func(pid int64))
	// holderDead reports that the holder with that pid is certainly dead.
	holderDead(ctx context.Context, q querier, pid int64) (bool, error)
	// blockingWriter returns the process whose transaction has blocked all other writers for
	// long; 0 for none, or where that is impossible.
	blockingWriter(ctx context.Context) (pid int, since time.Time)
	// checkIntegrity checks the whole database for damage, as far as possible. It takes as long
	// as reading all of it.
	checkIntegrity(ctx context.Context, q querier) error
	// inClause returns the clause "column is one of ids", and the argument for its placeholder.
	inClause(column, placeholder string, ids []string) (clause string, arg any)
	// lockRows returns the clause that locks the rows which a SELECT reads.
	lockRows() string
	// refs returns the dialect's statements for refs.
	refs() *refSQL
	// tryLivenessLock tries to get the lock that a living sender holds, so that a successor
	// need not wait for a dead sender's lease to lapse. held: no living process has it, and
	// this one holds it until release. Where there is no such lock, known is false. The lock is
	// not the lease: a Box may get the lease without the lock if another process is suspended
	// while holding it.
	tryLivenessLock(box int64) (release func(), held, known bool)
	close() error
}

// livenessHeld stands for the holder's pid where only its liveness file's lock is known, and is
// held.
const livenessHeld = 1

// errUnique is returned by an INSERT whose key exists.
var errUnique = errors.New("outbox: key exists already")

// errFenced is returned by a sender's transaction that finds another incarnation.
var errFenced = fault.Fenced.With("another process has taken over this outbox's lease")
