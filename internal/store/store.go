// Store: the packages below in one, and the transactions of groups.

package store

import (
	"context"
	"errors"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/store/authority"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/reads"
	"github.com/mooring-rpc/mooring/internal/store/txn"
	"github.com/mooring-rpc/mooring/internal/store/upkeep"
)

// Store is a server's store, on either database: the transactions of session.Tx, and the methods of the packages below.
type Store struct {
	*reads.Reads
	*upkeep.Upkeep
	*authority.Authority
	db *txn.DB
}

// New returns a Store on an open and migrated backend, which it then owns.
func New(b dialect.Backend) *Store {
	db := txn.NewDB(b)
	return &Store{Reads: reads.New(db), Upkeep: upkeep.New(db), Authority: authority.New(db), db: db}
}

// Update runs fn once in one read-write transaction and commits if it returns nil; fn's error is
// returned unchanged. Values passed to Save must not be changed afterwards. If fn asks for a session in its
// order (ReadSet.Ordered) that has entries without a place, they get theirs, and fn is run once more.
func (s *Store) Update(ctx context.Context, fn func(session.Tx) error) error {
	err := s.db.Update(ctx, func(t *txn.Tx) error { return fn(t) })
	for range maxMoreChildren {
		if !errors.Is(err, maintain.ErrMoreChildren) {
			break
		}
		err = s.db.Update(ctx, func(t *txn.Tx) error { return fn(t) })
	}
	if without, ok := errors.AsType[*txn.UnorderedError](err); ok {
		if err := s.EnsureOrds(ctx, without.Session); err != nil {
			return err
		}
		return s.db.Update(ctx, func(t *txn.Tx) error { return fn(t) })
	}
	return err
}

// maxMoreChildren is how often a transaction is tried again because of maintain.ErrMoreChildren: a child would have
// to be made at each within the moment between a read and a lock.
const maxMoreChildren = 20

// Listen calls heard for commits, this server's own included, until ctx ends; then it returns nil.
// It is a hint and not a guarantee: heard("", 0), called at the start and whenever announcements
// may have been lost, means that any session may have changed. It reconnects by itself.
func (s *Store) Listen(ctx context.Context, heard func(session string, cursor uint64)) error {
	return s.db.Backend.Listen(ctx, heard)
}

// PoolStats returns the numbers of the backend (see Pooled), 0 of 0 without a pool.
func (s *Store) PoolStats() (have, most int, short bool) {
	if p, ok := s.db.Backend.(dialect.Pooled); ok {
		return p.PoolStats()
	}
	return 0, 0, false
}

// FreeSpace is SpaceReporter's; known is false where the disk is another machine's.
func (s *Store) FreeSpace() (bytes uint64, known bool) {
	if r, ok := s.db.Backend.(dialect.SpaceReporter); ok {
		return r.FreeSpace()
	}
	return 0, false
}

// Ping returns nil if the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.db.Backend.Ping(ctx) }

// Close waits for running transactions and closes the database. Listen must have returned before.
func (s *Store) Close() error { return s.db.Backend.Close() }
