package sqlstore

// The refs of an outbox, as their readers have them: in the database, and cached.

import (
	"context"
	"log/slog"

	"github.com/mooring-rpc/mooring/outbox/internal/refs"
)

// StoredRefs reads the refs of an outbox through a cache.
type StoredRefs struct {
	refs.Cache
	Tables *Tables
	Outbox string
	Logger *slog.Logger
	Read   func(ctx context.Context, what string, f func(ctx context.Context, q Querier) error) error // reads committed rows
}

// Resolver looks up refs that are committed.
func (s *StoredRefs) Resolver() refs.Resolver { return refs.Resolver{Cache: &s.Cache, Source: s} }

// ResolverIn looks up refs within the transaction q, which may be a caller's.
func (s *StoredRefs) ResolverIn(q Querier, callerTx bool) refs.Resolver {
	return refs.Resolver{Cache: &s.Cache, Source: &txRefs{s, q, callerTx}}
}

// Refresh reads the rows written since the last reading. txOnly is nil.
func (s *StoredRefs) Refresh(ctx context.Context) (txOnly *refs.Cache, err error) {
	return (&txRefs{StoredRefs: s}).Refresh(ctx)
}

// txRefs reads refs for the cache, or for a transaction.
type txRefs struct {
	*StoredRefs
	// q is the transaction that asks, nil for none. It may hold the last connection, so it does
	// the reading; and it may see rows that others do not, and never will.
	q Querier
	// callerTx says that q is a caller's transaction: the committed rows that it sees are
	// cached.
	callerTx bool
}

func (s *txRefs) Refresh(ctx context.Context) (txOnly *refs.Cache, err error) {
	r := s.BeginReading()
	var found RefsSince
	read := func(ctx context.Context, q Querier) (err error) {
		found, err = s.Tables.RefsSince(ctx, q, r.Since)
		return err
	}
	if s.q != nil {
		err = read(ctx, s.q)
	} else {
		err = s.Read(ctx, "read refs", read)
	}
	if err != nil {
		return nil, err
	}
	if s.q == nil || s.callerTx && found.SawCommitted {
		s.MergeFound(r, found)
		found.Rows = nil
	}
	if alone := append(found.Rows, found.Ours...); len(alone) > 0 {
		txOnly = new(refs.Cache)
		txOnly.Merge(refs.Reading{}, alone, "")
	}
	return txOnly, nil
}

// MergeFound merges a reading into the cache, and returns the targets whose refs changed.
func (s *StoredRefs) MergeFound(r refs.Reading, found RefsSince) (targets []string) {
	targets, damaged := s.Merge(r, found.Rows, found.Next)
	for _, id := range damaged {
		s.Logger.Error("a stored ref is damaged and is not used", "outbox", s.Outbox, "ref", id)
	}
	return targets
}
