package refs

// Ref lookup: in the cache first, and in the database if it has none.

import (
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// Source reads refs.
type Source interface {
	// Refresh reads the rows written since the last reading into the cache. txOnly are refs that
	// only the asking transaction can see; nil for none.
	Refresh(ctx context.Context) (txOnly *Cache, err error)
}

// Resolver looks up refs, for an outbox or within a transaction.
type Resolver struct {
	Cache  *Cache
	Source Source
}

// lookup returns the refs for key, oldest first. If none is cached, it reads whether another
// process has stored one.
func (s Resolver) lookup(ctx context.Context, key string) ([]*SavedRef, error) {
	if fits := s.Cache.Get(key); len(fits) > 0 {
		return fits, nil
	}
	txOnly, err := s.Source.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	fits := s.Cache.Get(key)
	if txOnly != nil {
		fits = append(slices.Clip(fits), txOnly.Get(key)...)
	}
	return fits, nil
}

// Ref returns a stored ref by its id, or the one that has replaced it; NotFound.
func (s Resolver) Ref(ctx context.Context, id string) (SavedRef, error) {
	fits, err := s.lookup(ctx, id)
	if err != nil {
		return SavedRef{}, err
	}
	for _, r := range fits {
		if !r.foundByTarget(id) {
			return *r, nil
		}
	}
	return SavedRef{}, fault.NotFound.With("ref %s is not stored here", fault.Clip(id))
}

// RefFor returns the ref to use for a session's or space's id, or for an external id (chooseRef);
// NotFound, Ambiguous.
func (s Resolver) RefFor(ctx context.Context, target string, want capability.Rights) (SavedRef, error) {
	fits, err := s.lookup(ctx, target)
	if err != nil {
		return SavedRef{}, err
	}
	best, err := chooseRef(fits, target, want)
	if err != nil {
		return SavedRef{}, err
	}
	if best == nil {
		what := "session or space " + fault.Clip(target)
		if target == "" {
			what = "any space"
		}
		return SavedRef{}, fault.NotFound.With("no ref for %s is stored here: store one first, or use the outbox that has it", what)
	}
	return *best, nil
}
