package outbox

// Ref lookup: in the cache first, and in the database if it has none. Of several refs for the
// same session or space, chooseRef picks the one to use.

import (
	"cmp"
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// refResolver looks up refs, for a Box or within a transaction.
type refResolver struct {
	box *Box
	// q is the transaction that asks, nil for none. It may hold the last connection, so it does
	// the reading; and it may see rows that others do not, and never will.
	q querier
	// callerTx says that q is a caller's transaction: the committed rows that it sees are
	// cached.
	callerTx bool
}

func (b *Box) resolver() refResolver            { return refResolver{box: b} }
func (b *Box) resolverIn(q querier) refResolver { return refResolver{box: b, q: q} }
func (b *Box) resolverInCallerTx(q querier) refResolver {
	return refResolver{box: b, q: q, callerTx: true}
}

// refreshResult is the result of a reading.
type refreshResult struct {
	targets []string  // targets whose refs changed
	txOnly  *refCache // refs that only the asking transaction can see; nil for none
}

// refresh reads the rows written since the last reading.
func (s refResolver) refresh(ctx context.Context) (f refreshResult, err error) {
	b := s.box
	r := b.refs.beginReading()
	var found refsSince
	read := func(ctx context.Context, q querier) (err error) {
		found, err = b.t.refsSince(ctx, q, r.since)
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
	if s.q == nil || s.callerTx && found.sawCommitted {
		f.targets = b.mergeRefs(r, found)
		found.rows = nil
	}
	if alone := append(found.rows, found.ours...); len(alone) > 0 {
		f.txOnly = new(refCache)
		f.txOnly.merge(refReading{}, alone, "")
	}
	return f, nil
}

// mergeRefs merges a reading into the cache, and returns the targets whose refs changed.
func (b *Box) mergeRefs(r refReading, found refsSince) (targets []string) {
	targets, damaged := b.refs.merge(r, found.rows, found.next)
	for _, id := range damaged {
		b.cfg.Logger.Error("a stored ref is damaged and is not used", "outbox", b.id, "ref", id)
	}
	return targets
}

// lookup returns the refs for key, oldest first. If none is cached, it reads whether another
// process has stored one.
func (s refResolver) lookup(ctx context.Context, key string) ([]*SavedRef, error) {
	if fits := s.box.refs.get(key); len(fits) > 0 {
		return fits, nil
	}
	f, err := s.refresh(ctx)
	if err != nil {
		return nil, err
	}
	fits := s.box.refs.get(key)
	if f.txOnly != nil {
		fits = append(slices.Clip(fits), f.txOnly.get(key)...)
	}
	return fits, nil
}

func (s refResolver) ref(ctx context.Context, id string) (SavedRef, error) {
	fits, err := s.lookup(ctx, id)
	if err != nil {
		return SavedRef{}, err
	}
	for _, r := range fits {
		if !r.foundByTarget(id) {
			return *r, nil
		}
	}
	return SavedRef{}, fault.NotFound.With("ref %s is not stored here", clip(id))
}

func (s refResolver) refFor(ctx context.Context, target string, want capability.Rights) (SavedRef, error) {
	fits, err := s.lookup(ctx, target)
	if err != nil {
		return SavedRef{}, err
	}
	best, err := chooseRef(fits, target, want)
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

// chooseRef is RefFor among the refs that fit; nil if there are none.
func chooseRef(fits []*SavedRef, target string, want capability.Rights) (best *SavedRef, err error) {
	trust, made := trustDead, false
	for _, r := range fits {
		if r.foundByTarget(target) {
			trust = max(trust, r.trust())
		}
	}
	byName := target != "" && !capability.IsSession(target) && !capability.IsSpace(target)
	for _, r := range fits {
		made = made || r.Role == SessionOwner && r.trust() == trust
	}
	for _, r := range fits {
		switch {
		case !r.foundByTarget(target) || r.trust() < trust || byName && r.ofRefusedCreate():
		case byName && made && r.Role != SessionOwner: // the name was given here; others may use theirs freely
		case best != nil && best.Target() != r.Target():
			return nil, fault.Ambiguous.With("%q fits %s and %s: give the whole id", clip(target), best.Target(), r.Target())
		case best == nil || r.betterThan(best, want):
			best = r
		}
	}
	return best, nil
}

// foundByTarget reports whether target names the ref's session or space, and not the ref
// itself.
func (r *SavedRef) foundByTarget(target string) bool {
	return r.ID != target && !slices.ContainsFunc(r.replaced, func(was replacedRef) bool { return was.id == target })
}

// ofRefusedCreate reports that the ref is the owner's of a session whose creation was refused.
func (r *SavedRef) ofRefusedCreate() bool {
	return r.Role == SessionOwner && r.Dead != fault.None && r.Confirmed.IsZero()
}

// Levels of trust in a ref.
const (
	trustDead        = iota // a server said so
	trustUnconfirmed        // no server has answered
	trustConfirmed
)

func (r *SavedRef) trust() int {
	switch {
	case r.Dead != fault.None:
		return trustDead
	case r.Confirmed.IsZero() && r.Role != SessionOwner: // a ref that was made here cannot be mistyped
		return trustUnconfirmed
	}
	return trustConfirmed
}

// betterThan reports whether r is preferred to the older ref other, where the right want is
// needed.
func (r *SavedRef) betterThan(other *SavedRef, want capability.Rights) bool {
	return cmp.Or(
		cmp.Compare(r.rightsFit(want), other.rightsFit(want)),
		cmp.Compare(boolToInt(r.Role == SessionOwner), boolToInt(other.Role == SessionOwner)),
		r.Confirmed.Compare(other.Confirmed),
	) >= 0
}

// rightsFit ranks a ref by its right: absent, possible, partial or full.
func (r *SavedRef) rightsFit(want capability.Rights) int {
	switch {
	case want == 0:
		return 0
	case r.Role == SessionOwner:
		return 3
	case r.Rights == 0:
		return 1
	case !r.Rights.Has(want):
		return 0
	case r.Restricted && want != capability.Read:
		return 2
	}
	return 3
}
