package outbox

// Reading the refs that others have written, for a Box or within a transaction.

import (
	"context"

	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// boxRefs reads refs for a Box's cache.
type boxRefs struct {
	box *Box
	// q is the transaction that asks, nil for none. It may hold the last connection, so it does
	// the reading; and it may see rows that others do not, and never will.
	q sqlstore.Querier
	// callerTx says that q is a caller's transaction: the committed rows that it sees are
	// cached.
	callerTx bool
}

func (b *Box) resolver() refs.Resolver { return refs.Resolver{Cache: &b.refs, Source: b.refSource} }
func (b *Box) resolverIn(q sqlstore.Querier) refs.Resolver {
	return refs.Resolver{Cache: &b.refs, Source: &boxRefs{box: b, q: q}}
}
func (b *Box) resolverInCallerTx(q sqlstore.Querier) refs.Resolver {
	return refs.Resolver{Cache: &b.refs, Source: &boxRefs{box: b, q: q, callerTx: true}}
}

// refreshRefs reads the rows written since the last reading.
func (b *Box) refreshRefs(ctx context.Context) error {
	_, err := b.refSource.Refresh(ctx)
	return err
}

func (s *boxRefs) Refresh(ctx context.Context) (txOnly *refs.Cache, err error) {
	b := s.box
	r := b.refs.BeginReading()
	var found sqlstore.RefsSince
	read := func(ctx context.Context, q sqlstore.Querier) (err error) {
		found, err = b.t.RefsSince(ctx, q, r.Since)
		return err
	}
	if s.q != nil {
		err = read(ctx, s.q)
	} else {
		err = b.read(ctx, "read refs", read)
	}
	if err != nil {
		return nil, err
	}
	if s.q == nil || s.callerTx && found.SawCommitted {
		b.mergeRefs(r, found)
		found.Rows = nil
	}
	if alone := append(found.Rows, found.Ours...); len(alone) > 0 {
		txOnly = new(refs.Cache)
		txOnly.Merge(refs.Reading{}, alone, "")
	}
	return txOnly, nil
}

// mergeRefs merges a reading into the cache, and returns the targets whose refs changed.
func (b *Box) mergeRefs(r refs.Reading, found sqlstore.RefsSince) (targets []string) {
	targets, damaged := b.refs.Merge(r, found.Rows, found.Next)
	for _, id := range damaged {
		b.cfg.Logger.Error("a stored ref is damaged and is not used", "outbox", b.id, "ref", id)
	}
	return targets
}
