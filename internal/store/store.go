// Package store keeps the domain's rows in an SQL database.
//
// Store has the methods that session.Tx and the server's store interface name, each written once
// for both databases. How a transaction runs and how a commit is announced to other processes
// differs between them and is behind Backend; store/sqlite and store/postgres implement it and open
// a Store on it. Only cmd and tests import the two packages.
//
// Guarantees, the same for both and checked by store/storetest:
//
//   - A method that writes is one transaction: durable when it returns nil, without effect when it
//     returns an error (except for a connection lost during the commit: the result is unknown then,
//     and the ledger makes a retry harmless).
//   - A method that reads sees one snapshot, authority and rows together.
//   - Statements run in few round trips: they are queued and sent together.
//   - Nothing is retried here.
//
// Errors that callers can act on are faults: Unavailable (the database is unreachable, or took
// longer than the context's deadline), DiskFull, InUse, UnsafeStore, Incompatible (the schema is
// newer than this program), Canceled. Every other error is wrapped and counts as fault.Internal.
//
// All methods of Store are safe for concurrent use.
//
//	prior row    a session's row as the transaction loaded it
//	delta        the text of one appendText event
//	lineage      a ref and all refs that it was minted from
//	access       a session's row and refs' rows, read in one snapshot
//	ord          an entry's position in its session's order (session.Ord)
//	exempt       bytes stored before there was a quota (columns spared)
//
// # Lock order
//
// In the process: a session's lock in sessionLocks, before a connection is taken. In the database:
// rows of spaces in id order, rows of sessions in id order, then rows of streams, grants and search_sessions, and
// the ends of audit chains last. AddUses locks rows of uses in the order of the refs, in a
// transaction of its own, and ClaimWebhooks those of webhooks: it passes over what others have locked.
//
// # Bounds
//
// existingSessions is bounded by maxExistingSessions ids. A Load reads about ReadSet.MaxBytes of payloads; reads of logs, states and lists take their limits
// as arguments. A page of a search scans about maxListScan sessions. CheckIntegrity lists at most
// maxFlaws flaws.
package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
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

// Store is a server's store, on either database.
type Store struct {
	backend      Backend
	existing     existingSessions
	locks        sessionLocks
	hashKeyCache atomic.Pointer[session.HashKey]
	searches     chan struct{} // holds those that run
}

// New returns a Store on an open and migrated backend, which it then owns.
func New(b Backend) *Store {
	return &Store{backend: b, searches: make(chan struct{}, searchesAtOnce)}
}

// Update runs fn once in one read-write transaction and commits if it returns nil; fn's error is
// returned unchanged. Values passed to Save must not be changed afterwards. If fn asks for a session in its
// order (ReadSet.Ordered) that has entries without a place, they get theirs, and fn is run once more.
func (s *Store) Update(ctx context.Context, fn func(session.Tx) error) error {
	err := s.update(ctx, func(t *tx) error { return fn(t) })
	for range maxMoreChildren {
		if !errors.Is(err, session.ErrMoreChildren) {
			break
		}
		err = s.update(ctx, func(t *tx) error { return fn(t) })
	}
	if without, ok := errors.AsType[*unorderedError](err); ok {
		if err := s.ensureOrds(ctx, without.session); err != nil {
			return err
		}
		return s.update(ctx, func(t *tx) error { return fn(t) })
	}
	return err
}

// maxMoreChildren is how often a transaction is tried again because of session.ErrMoreChildren: a child would have
// to be made at each within the moment between a read and a lock.
const maxMoreChildren = 20

// update is Update for the store's own methods.
func (s *Store) update(ctx context.Context, fn func(*tx) error) error {
	var t *tx
	err := s.backend.Update(ctx, func(r Runner) error {
		t = &tx{run: r, existing: &s.existing}
		return fn(t)
	})
	if t != nil {
		t.releaseBuffers()
	}
	if err == nil {
		s.existing.add(t.prior)
		s.backend.Announce(t.advanced)
	}
	return err
}

// wrap adds the method's name to an error.
func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// Listen calls heard for commits, this server's own included, until ctx ends; then it returns nil.
// It is a hint and not a guarantee: heard("", 0), called at the start and whenever announcements
// may have been lost, means that any session may have changed. It reconnects by itself.
func (s *Store) Listen(ctx context.Context, heard func(session string, cursor uint64)) error {
	return s.backend.Listen(ctx, heard)
}

// Pooled is a Backend with a pool of connections.
type Pooled interface {
	// PoolStats returns the number of open connections and their maximum; short reports that none
	// was free.
	PoolStats() (have, most int, short bool)
}

// PoolStats returns the numbers of the backend (see Pooled), 0 of 0 without a pool.
func (s *Store) PoolStats() (have, most int, short bool) {
	if p, ok := s.backend.(Pooled); ok {
		return p.PoolStats()
	}
	return 0, 0, false
}

// SpaceReporter is a Backend that knows the free disk space for its files.
type SpaceReporter interface {
	// FreeSpace returns the free bytes; known is false if they cannot be determined.
	FreeSpace() (bytes uint64, known bool)
}

// FreeSpace is SpaceReporter's; known is false where the disk is another machine's.
func (s *Store) FreeSpace() (bytes uint64, known bool) {
	if r, ok := s.backend.(SpaceReporter); ok {
		return r.FreeSpace()
	}
	return 0, false
}

// Ping returns nil if the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.backend.Ping(ctx) }

// Close waits for running transactions and closes the database. Listen must have returned before.
func (s *Store) Close() error { return s.backend.Close() }
