// How often refs were used, and when last. It stands beside the refs and not in
// them: they change under their session's lock, which counting must not wait for.

package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
)

var readUses = statement("tt", `
	SELECT u.target, u.tail, u.uses, u.last FROM {w} CROSS JOIN uses u WHERE u.target = w.a AND u.tail = w.b`)

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

// Uses gives what is counted of refs, by id; one that was never used is not in it.
func (s *Store) Uses(ctx context.Context, ids []string) (map[string]capability.Uses, error) {
	found := map[string]capability.Uses{}
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		if len(ids) == 0 {
			return nil
		}
		run.Queue(readUses, refs(ids), nil, func(row Scanner) error {
			var target, tail string
			var count, last int64
			err := row.Scan(&target, &tail, &count, &last)
			id := join(target, tail)
			found[id] = capability.Uses{Ref: id, Count: uint64(count), Last: last}
			return err
		})
		return nil
	})
	if err != nil {
		return nil, naming("read uses", err)
	}
	return found, nil
}
