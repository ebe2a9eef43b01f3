// How often refs were used, and when last. It stands beside the refs and not in
// them: they change under their session's lock, which counting must not wait for.
//
// How far those are who write such pages stands there too, as the uses of nobody's ref:
// "" and the writer's name. A page that was committed is known by it, whatever its
// writer heard of that.

package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
)

var (
	addUses = statement("ttii", `
		INSERT INTO uses (target, tail, uses, last) {values}
		ON CONFLICT (target, tail) DO UPDATE SET uses = uses.uses + excluded.uses,
			last = CASE WHEN excluded.last > uses.last THEN excluded.last ELSE uses.last END`)

	// turnPage gives a row if the page is new. It waits for an earlier transaction that
	// has the page, or the one before, and has not ended yet.
	turnPage = statement("", `
		INSERT INTO uses (target, tail, uses, last) VALUES ('', {1}, {2}, {3})
		ON CONFLICT (target, tail) DO UPDATE SET uses = excluded.uses, last = excluded.last
			WHERE uses.uses < excluded.uses
		RETURNING last`)
	forgetWriters = statement("", `DELETE FROM uses WHERE target = '' AND tail <> '' AND last < {1}`)
)

// writersKept is how long it is known how far a writer came, in ms: longer than any that
// has not heard of its page tries again.
const writersKept = 30 * 24 * 60 * 60 * 1000

// once runs fn in a transaction, unless one that it was run in for the same page was
// committed. A writer's first page forgets those who are long gone.
func (s *Store) once(ctx context.Context, page capability.Page, fn func(*tx) error) error {
	return s.update(ctx, func(t *tx) error {
		t.run.QueueNow(clock(&t.now))
		if err := t.run.Flush(ctx); err != nil {
			return err
		}
		if page.Number == 1 {
			t.run.Queue(forgetWriters, nil, []any{t.now - writersKept}, nil)
		}
		fresh := false
		t.run.Queue(turnPage, nil, []any{page.Writer, int64(page.Number), t.now}, func(row Scanner) error {
			var at int64
			fresh = true
			return row.Scan(&at)
		})
		if err := t.run.Flush(ctx); err != nil || !fresh {
			return err
		}
		return fn(t)
	})
}

// Used adds a page to the uses of refs, each of which is named once. Servers that add at
// once do not wait for each other in a circle: all go by the refs' order.
func (s *Store) Used(ctx context.Context, page capability.Page, uses []capability.Uses) error {
	if len(uses) == 0 {
		return nil
	}
	list := make([][]any, len(uses))
	for i, u := range slices.SortedFunc(slices.Values(uses), func(a, b capability.Uses) int { return cmp.Compare(a.Ref, b.Ref) }) {
		target, tail := split(u.Ref)
		list[i] = []any{target, tail, int64(u.Count), u.Last}
	}
	return naming("count uses", s.once(ctx, page, func(t *tx) error {
		t.list(addUses, list, nil)
		return nil
	}))
}
