// How often refs were used, and when last. It stands beside the refs and not in
// them: they change under their session's lock, which counting must not wait for.

package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
)

var addUses = statement("ttii", `
	INSERT INTO uses (target, tail, uses, last) {values}
	ON CONFLICT (target, tail) DO UPDATE SET uses = uses.uses + excluded.uses,
		last = CASE WHEN excluded.last > uses.last THEN excluded.last ELSE uses.last END`)

// Used adds to the uses of refs, each of which is named once. Servers that add at
// once do not wait for each other in a circle: all go by the refs' order.
func (s *Store) Used(ctx context.Context, uses []capability.Uses) error {
	if len(uses) == 0 {
		return nil
	}
	list := make([][]any, len(uses))
	for i, u := range slices.SortedFunc(slices.Values(uses), func(a, b capability.Uses) int { return cmp.Compare(a.Ref, b.Ref) }) {
		target, tail := split(u.Ref)
		list[i] = []any{target, tail, int64(u.Count), u.Last}
	}
	return naming("count uses", s.update(ctx, func(t *tx) error {
		t.list(addUses, list, nil)
		return nil
	}))
}
