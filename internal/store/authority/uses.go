// Usage counts of refs, and the times of last use. They are in a table beside the refs: refs change
// under their session's lock, which counting must not wait for.
//
// The same table has the last page number of each writer, as the uses of a ref with target "" and
// the writer's name as tail. It tells a writer's retry of a committed page from a new page.

package authority

import (
	"cmp"
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	addUses = dialect.Both("ttii", `
		INSERT INTO uses (target, tail, uses, last) {values}
		ON CONFLICT (target, tail) DO UPDATE SET uses = uses.uses + excluded.uses,
			last = CASE WHEN excluded.last > uses.last THEN excluded.last ELSE uses.last END`)

	// claimKey returns a row if the page is new. It waits for an earlier transaction that has the
	// page, or the one before, and has not ended yet.
	claimKey = dialect.Both("", `
		INSERT INTO uses (target, tail, uses, last) VALUES ('', {1}, {2}, {3})
		ON CONFLICT (target, tail) DO UPDATE SET uses = excluded.uses, last = excluded.last
			WHERE uses.uses < excluded.uses
		RETURNING last`)
	pruneWriters = dialect.Both("", `DELETE FROM uses WHERE target = '' AND tail <> '' AND last < {1}`)
)

// writerRetention is how long a writer's last page number is kept, in ms: longer than a writer
// without an answer retries.
const writerRetention = 30 * 24 * 60 * 60 * 1000

// updateOnce runs fn in a transaction, unless a transaction with the same page was committed. A
// writer's first page removes writers past their retention.
func (s *Authority) updateOnce(ctx context.Context, page capability.IdempotencyKey, fn func(*txn.Tx) error) error {
	return s.db.Update(ctx, func(t *txn.Tx) error {
		t.Run.QueueNow(dialect.SetClock(&t.Now))
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		if page.Seq == 1 {
			t.Run.Queue(pruneWriters, nil, []any{t.Now - writerRetention}, nil)
		}
		fresh := false
		if err := dialect.Query(ctx, t.Run, claimKey, nil, []any{page.Writer, int64(page.Seq), t.Now}, func(row dialect.Scanner) error {
			var at int64
			fresh = true
			return row.Scan(&at)
		}); err != nil || !fresh {
			return err
		}
		return fn(t)
	})
}

// AddUses adds a page to the usage counts of refs, each named once. Concurrent calls of several
// servers do not deadlock: all lock in the order of the refs.
func (s *Authority) AddUses(ctx context.Context, page capability.IdempotencyKey, uses []capability.RefUses) error {
	if len(uses) == 0 {
		return nil
	}
	list := make([][]any, len(uses))
	for i, u := range slices.SortedFunc(slices.Values(uses), func(a, b capability.RefUses) int { return cmp.Compare(a.Ref, b.Ref) }) {
		target, tail := txn.SplitRef(u.Ref)
		list[i] = []any{target, tail, int64(u.Count), u.LastUsed}
	}
	return txn.Wrap("count uses", s.updateOnce(ctx, page, func(t *txn.Tx) error {
		t.QueueList(addUses, list, nil)
		return nil
	}))
}
