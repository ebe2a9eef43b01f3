package outbox

// The seam between the outbox and its database. Both dialects implement these
// few verbs; all SQL that can be the same is in tables.go.

import (
	"context"
	"errors"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// scanner takes the columns of one result row.
type scanner func(dest ...any) error

// querier runs statements, in a transaction or on a snapshot. Placeholders are
// $1, $2, … in both dialects.
type querier interface {
	// enqueue runs a statement whose result nothing else in the transaction waits
	// for, at the latest when it commits; one, if not nil, gets its only row.
	// Postgres sends all of them in one round trip.
	enqueue(sql string, args []any, one func(scanner) error)
	// exec runs a statement and tells how many rows it touched.
	exec(ctx context.Context, sql string, args ...any) (int64, error)
	// query runs a statement and calls each for every row.
	query(ctx context.Context, sql string, args []any, each func(scanner) error) error
}

// database is a dialect and its connections. Errors are faults where there is a
// code for them; errUnique stands for a key that is there already.
type database interface {
	// write runs f in one durable transaction. It is called by one goroutine at
	// a time. f may run again, after a rollback. ambiguous says of a failure that
	// it may have been committed.
	write(ctx context.Context, f func(querier) error) (ambiguous bool, err error)
	// read runs f on what is committed. A StreamStoppedError that f gives was there at
	// one moment; f may run again for that, and on another connection if one dies.
	read(ctx context.Context, f func(querier) error) error

	// shareLease keeps takeovers out until the transaction ends; takeLease
	// waits for all who share it, and keeps them out.
	shareLease(q querier, box int64)
	takeLease(ctx context.Context, q querier, box int64) error
	// now is the clock that leases go by, Unix ms.
	now(ctx context.Context, q querier) (int64, error)
	// notify tells other processes' senders, when the transaction commits, that
	// there is something new.
	notify(q querier, outbox string)
	// watch calls changed, from one goroutine, whenever another process may have
	// committed something: at once where it can, and by polling. It blocks
	// until ctx ends.
	//
	// alive is called with what tells others that this process lives, for gone.
	watch(ctx context.Context, outbox string, changed func(), alive func(pid int64))
	// holderDead says that the holder with that mark is certainly dead.
	holderDead(ctx context.Context, q querier, pid int64) (bool, error)
	// blockingWriter is the process that has stood in a transaction for long, so that nobody else
	// can write; 0 for none, or where that cannot be.
	blockingWriter(ctx context.Context) (pid int, since time.Time)
	// checkIntegrity looks through the whole database for damage, as far as there is a way to. It
	// takes as long as reading all of it.
	checkIntegrity(ctx context.Context, q querier) error
	// inClause is the clause that holds where column is one of ids, and the argument for its
	// placeholder.
	inClause(column, placeholder string, ids []string) (clause string, arg any)
	// lockRows is the clause that locks what a SELECT reads.
	lockRows() string
	// refs are the dialect's statements about refs.
	refs() *refSQL
	// tryLivenessLock tries to get the mark that a living sender holds, so that a dead
	// one's lease need not be waited out. held: nobody living has it, and we do
	// now, until release. Where there is no such mark, known is false. The mark
	// is not the lease: who has that got it without the mark if another process
	// was stopped with it.
	tryLivenessLock(box int64) (release func(), held, known bool)
	close() error
}

// livenessHeld stands for the holder's pid where only the lock on its liveness file is known, and is held.
const livenessHeld = 1

// errUnique is what an INSERT gives that meets an existing key.
var errUnique = errors.New("outbox: key exists already")

// errFenced is what a sender's transaction gives that finds another incarnation.
var errFenced = fault.Fenced.With("another process has taken over this outbox's lease")
