// Package store is the seam to SQL: where the domain's rows are kept.
//
// A Store has the verbs that session.Tx and the server's store interface name,
// all of them written here once. What differs between the databases, how a
// transaction is run and how a commit is told to others, is behind Backend;
// store/sqlite and store/postgres implement it and open a Store on it. Nobody
// but cmd (and tests) imports these packages.
//
// Promises, kept alike by both and checked by store/storetest:
//
//   - A verb that writes is one transaction: durable when it returns nil, without
//     any trace when it returns an error (but for a link that broke during the
//     commit: then nobody knows, and the ledger makes asking again harmless).
//   - A verb that reads sees one snapshot, authority and rows together.
//   - Statements run in few round trips: they are queued and sent together.
//   - Nothing is retried here, but for guesses that were wrong (optimistic.go).
//
// Errors that mean something to callers are faults: Unavailable (the database
// is away, or took longer than the context's deadline), DiskFull, InUse, UnsafeStore,
// Incompatible (a schema of the future), Canceled. Everything else is wrapped and counts as fault.Internal.
//
// All methods of Store are safe for concurrent use.
package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// Scanner is the row a statement's callback reads.
type Scanner interface {
	Scan(dest ...any) error
}

// Runner runs the statements of one transaction, in the order in which they
// were queued. One goroutine at a time may use it.
type Runner interface {
	// Queue takes a statement. list is its list's rows (every value a string, an
	// int64, or []byte where the column is of bytes, or a pointer that Value
	// takes; what it points at stays as it is until the statement has run), args
	// its single values.
	// each, if not nil, is called for every row of the answer, during the next Flush
	// or, if there is none, while the transaction is ended; once it has returned
	// ErrStopRows, the rest of this answer is dropped.
	// A statement without text in the runner's dialect is passed over.
	Queue(s *Statement, list [][]any, args []any, each func(Scanner) error)

	// QueueNow asks the database's clock, Unix ms, at this place in the queue, and
	// which version the transaction gives the rows that it writes; 0 where rows
	// have none, and before anything was locked or written.
	QueueNow(each func(now, version int64))

	// Erase says that what the transaction removes is not to stay in the database's
	// files, as far as the database can see to that by itself.
	Erase()

	// Flush runs what is queued; it stops at the first error, and the
	// transaction can then only be rolled back.
	Flush(ctx context.Context) error
}

// ErrStopRows says that no more rows of a statement are wanted; the statements that are
// queued after it go on. A database may have sent the others all the same.
var ErrStopRows = errors.New("enough rows")

// ErrRowExists is in the error of a transaction that was to insert a row that is there,
// where rows have versions.
var ErrRowExists = errors.New("a row is there already")

// ErrClosed is what a closed store's verbs answer.
var ErrClosed = fault.Draining.With("the store is closed")

// Backend is one database.
type Backend interface {
	// Update runs fn in a read-write transaction and commits it, together with
	// what fn has left in the queue, if fn returns nil; else it rolls back and
	// returns fn's error as it is. On Postgres isolation is READ COMMITTED.
	Update(ctx context.Context, fn func(Runner) error) error

	// Snapshot runs fn, and what it has left in the queue, in a read-only
	// transaction that sees one state of the database.
	Snapshot(ctx context.Context, fn func(Runner) error) error

	// Announce tells the Listen of all processes, this one's among them, how far
	// sessions are whose commits have just succeeded: soon, several commits
	// together, without waiting for it and without saying whether it could. Where
	// no other process can commit it does nothing.
	Announce(cursors map[string]uint64)

	// Listen calls heard for what is announced until ctx ends, then returns nil.
	// heard("", 0) says that some may have been missed. Where no other process
	// can commit it only waits.
	Listen(ctx context.Context, heard func(session string, cursor uint64)) error

	// HasRowVersions says that rows have versions, and that it saves round trips to
	// commit on rows which are remembered. Errors of rows that are there already
	// have ErrRowExists then.
	HasRowVersions() bool

	// Ping asks the database for a sign of life.
	Ping(ctx context.Context) error

	// Close waits for what is running and closes all connections.
	Close() error
}

// Store is a server's store on one of the databases.
type Store struct {
	backend      Backend
	existing     existingSessions
	locks        sessionLocks
	cache        *rowCache // nil where rows have no versions
	hashKeyCache atomic.Pointer[session.HashKey]
}

// New makes a Store on an open and migrated backend, which it then owns.
func New(b Backend) *Store {
	s := &Store{backend: b}
	if b.HasRowVersions() {
		s.cache = &rowCache{}
	}
	return s
}

// Update runs fn in one read-write transaction and commits if it returns nil.
// fn runs once; its error comes back as it is. What was given to Save must not
// be changed any more.
func (s *Store) Update(ctx context.Context, fn func(session.Tx) error) error {
	return s.update(ctx, func(t *tx) error { return fn(t) })
}

// update is Update for the store's own verbs.
func (s *Store) update(ctx context.Context, fn func(*tx) error) error {
	return s.runUpdate(ctx, nil, fn)
}

// runUpdate is update of what may be decided on a guess, if that is not nil.
func (s *Store) runUpdate(ctx context.Context, g *assumptions, fn func(*tx) error) error {
	var t *tx
	err := s.backend.Update(ctx, func(r Runner) error {
		t = &tx{run: r, existing: &s.existing, cache: s.cache, assumed: g}
		return fn(t)
	})
	if t != nil {
		t.releaseBuffers()
	}
	if t != nil && t.assumed != nil && (err == nil && !g.fresh || errors.Is(err, errStale) || errors.Is(err, ErrRowExists)) {
		t.invalidate()
		return errStale
	}
	if err == nil {
		s.existing.add(t.prior)
		t.updateCache()
		s.backend.Announce(t.advanced)
	}
	return err
}

// wrap wraps an error with the verb it came from.
func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// Listen calls heard for commits, this server's own among them, until ctx
// ends; then it returns nil. It is a hint, never the guarantee: heard("", 0)
// is called whenever announcements may have been lost (at the start too), and
// means: look at everything. It connects again by itself.
func (s *Store) Listen(ctx context.Context, heard func(session string, cursor uint64)) error {
	return s.backend.Listen(ctx, heard)
}

// Pooled is a Backend with a pool of connections.
type Pooled interface {
	// PoolStats are how many there are, of how many at most; short says that there were
	// no more to be had.
	PoolStats() (have, most int, short bool)
}

// PoolStats are those of the pool, as Pooled says; 0 of 0 where there is none.
func (s *Store) PoolStats() (have, most int, short bool) {
	if p, ok := s.backend.(Pooled); ok {
		return p.PoolStats()
	}
	return 0, 0, false
}

// SpaceReporter is a Backend that knows how much room there is for what it writes.
type SpaceReporter interface {
	// FreeSpace is in bytes; known says that it is known.
	FreeSpace() (bytes uint64, known bool)
}

// FreeSpace is as SpaceReporter says; not known where it is somebody else's disk.
func (s *Store) FreeSpace() (bytes uint64, known bool) {
	if r, ok := s.backend.(SpaceReporter); ok {
		return r.FreeSpace()
	}
	return 0, false
}

// Ping is nil if the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.backend.Ping(ctx) }

// Close waits for running transactions and closes the database. Listen must
// have been ended before.
func (s *Store) Close() error { return s.backend.Close() }
