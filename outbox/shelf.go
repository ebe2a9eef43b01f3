package outbox

// Looking refs up: in memory first, and in the database if none is remembered. Where
// several refs are for the same session or space, choose picks the one to use.

import (
	"cmp"
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// shelf is where refs are looked up.
type shelf struct {
	box *Box
	// q is the transaction that asks, nil for none. It may hold the last connection
	// there is, so it is what reads; and it may see what others do not, and never will.
	q querier
	// caller says that q is a caller's transaction: rows that it can see and that are
	// committed are remembered.
	caller bool
}

func (b *Box) shelf() shelf                  { return shelf{box: b} }
func (b *Box) shelfOf(q querier) shelf       { return shelf{box: b, q: q} }
func (b *Box) shelfOfCaller(q querier) shelf { return shelf{box: b, q: q, caller: true} }

// fresh is what a reading adds to what is remembered.
type fresh struct {
	targets []string  // whose refs are others now
	only    *refCache // the refs that the asking transaction alone can see; nil for none
}

// refresh reads what was written since the last reading.
func (s shelf) refresh(ctx context.Context) (f fresh, err error) {
	b := s.box
	r := b.refs.begin()
	var found refsSince
	read := func(ctx context.Context, q querier) (err error) {
		found, err = b.t.refsSince(ctx, q, r.mark)
		return err
	}
	if s.q != nil {
		err = read(ctx, s.q)
	} else {
		err = b.read(ctx, "read refs", read)
	}
	if err != nil {
		return f, err
	}
	if s.q == nil || s.caller && found.settled {
		f.targets = b.took(r, found)
		found.rows = nil
	}
	if alone := append(found.rows, found.ours...); len(alone) > 0 {
		f.only = new(refCache)
		f.only.merge(reading{}, alone, "")
	}
	return f, nil
}

// took remembers what a reading has found, and gives the targets whose refs are
// others now.
func (b *Box) took(r reading, found refsSince) (targets []string) {
	targets, damaged := b.refs.merge(r, found.rows, found.mark)
	for _, id := range damaged {
		b.cfg.Logger.Error("a stored ref is damaged and is not used", "outbox", b.id, "ref", id)
	}
	return targets
}

// find gives the refs that key stands for, oldest first. If none is remembered, it looks
// whether another process has stored one.
func (s shelf) find(ctx context.Context, key string) ([]*SavedRef, error) {
	if fits := s.box.refs.get(key); len(fits) > 0 {
		return fits, nil
	}
	f, err := s.refresh(ctx)
	if err != nil {
		return nil, err
	}
	fits := s.box.refs.get(key)
	if f.only != nil {
		fits = append(slices.Clip(fits), f.only.get(key)...)
	}
	return fits, nil
}

func (s shelf) ref(ctx context.Context, id string) (SavedRef, error) {
	fits, err := s.find(ctx, id)
	if err != nil {
		return SavedRef{}, err
	}
	for _, r := range fits {
		if !r.named(id) {
			return *r, nil
		}
	}
	return SavedRef{}, fault.NotFound.With("ref %s is not stored here", clip(id))
}

func (s shelf) refFor(ctx context.Context, target string, want capability.Rights) (SavedRef, error) {
	fits, err := s.find(ctx, target)
	if err != nil {
		return SavedRef{}, err
	}
	best, err := choose(fits, target, want)
	if err != nil {
		return SavedRef{}, err
	}
	if best == nil {
		what := "session or space " + clip(target)
		if target == "" {
			what = "any space"
		}
		return SavedRef{}, fault.NotFound.With("no ref for %s is stored here: add one first", what)
	}
	return *best, nil
}

// choose is RefFor among the refs that fit; nil if there are none.
func choose(fits []*SavedRef, target string, want capability.Rights) (best *SavedRef, err error) {
	trust, made := isDead, false
	for _, r := range fits {
		if r.named(target) {
			trust = max(trust, r.trust())
		}
	}
	byName := target != "" && !capability.IsSession(target) && !capability.IsSpace(target)
	for _, r := range fits {
		made = made || r.Role == SessionOwner && r.trust() == trust
	}
	for _, r := range fits {
		switch {
		case !r.named(target) || r.trust() < trust || byName && r.unmade():
		case byName && made && r.Role != SessionOwner: // the name was given here, and others may give theirs as they like
		case best != nil && best.Target() != r.Target():
			return nil, fault.Ambiguous.With("%q fits %s and %s: give the whole id", clip(target), best.Target(), r.Target())
		case best == nil || r.better(best, want):
			best = r
		}
	}
	return best, nil
}

// named says whether target names what the ref is for, and not the ref itself.
func (r *SavedRef) named(target string) bool {
	return r.ID != target && !slices.ContainsFunc(r.was, func(was formerRef) bool { return was.id == target })
}

// unmade says that the ref is the owner's of a session whose creation was refused.
func (r *SavedRef) unmade() bool {
	return r.Role == SessionOwner && r.Dead != fault.None && r.Confirmed.IsZero()
}

// Steps of trust.
const (
	isDead        = iota // a server said so
	isUnconfirmed        // nobody knows
	isConfirmed
)

func (r *SavedRef) trust() int {
	switch {
	case r.Dead != fault.None:
		return isDead
	case r.Confirmed.IsZero() && r.Role != SessionOwner: // a ref that was made here cannot be mistyped
		return isUnconfirmed
	}
	return isConfirmed
}

// better says whether r is to be used before other, an older one, where want is asked for.
func (r *SavedRef) better(other *SavedRef, want capability.Rights) bool {
	return cmp.Or(
		cmp.Compare(r.fitness(want), other.fitness(want)),
		cmp.Compare(flag(r.Role == SessionOwner), flag(other.Role == SessionOwner)),
		r.Confirmed.Compare(other.Confirmed),
	) >= 0
}

// fitness is how far a ref has a right: not, perhaps, in part, or wholly.
func (r *SavedRef) fitness(want capability.Rights) int {
	switch {
	case want == 0:
		return 0
	case r.Role == SessionOwner:
		return 3
	case r.Rights == 0:
		return 1
	case !r.Rights.Has(want):
		return 0
	case r.Narrow && want != capability.Read:
		return 2
	}
	return 3
}
