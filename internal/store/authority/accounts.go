// Accounts: the bytes stored in all sessions that were created under one ref of a space.

package authority

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	// readSpaceRef selects the ref that a session was created under, the parent of its owner ref.
	readSpaceRef = dialect.Both("", `
		SELECT g.parent_target, g.parent_tail FROM grants g WHERE g.target = {1} AND g.owner = 1 ORDER BY g.revoked LIMIT 1`)

	// readAccount selects, on the way from a ref of a space up to the space's owner ref, the last
	// one below that: it is charged for everything created under its descendants.
	readAccount = dialect.Both("", `
		WITH RECURSIVE line(target, tail, parent_target, parent_tail, last_target, last_tail) AS (
			SELECT g.target, g.tail, g.parent_target, g.parent_tail, g.target, g.tail FROM grants g WHERE g.target = {1} AND g.tail = {2}
			UNION ALL
			SELECT g.target, g.tail, g.parent_target, g.parent_tail, line.target, line.tail FROM line CROSS JOIN grants g
			WHERE g.target = line.parent_target AND g.tail = line.parent_tail)
		SELECT line.last_target, line.last_tail FROM line
		WHERE line.parent_target = '' AND NOT (line.target = {1} AND line.tail = {2})`)

	// sumAccount sums the sessions whose owner refs are below a ref of a space. "Is the space's own
	// ref" is an output column: as a condition on the target it makes Postgres search children by
	// space alone, and compare each of the space's refs with all.
	sumAccount = dialect.Both("", `
		WITH RECURSIVE line(target, tail, own) AS (
			SELECT g.target, g.tail, 1 FROM grants g WHERE g.target = {1} AND g.tail = {2}
			UNION ALL
			SELECT g.target, g.tail, CASE WHEN g.target = {1} THEN 1 ELSE 0 END FROM line CROSS JOIN grants g
			WHERE g.parent_target = line.target AND g.parent_tail = line.tail AND line.own = 1)
		SELECT CAST(coalesce(sum(s.bytes), 0) AS bigint) FROM sessions s
		WHERE s.id IN (SELECT line.target FROM line WHERE line.own = 0)`)

	// exemptAccount stores the bytes from before there was a quota, once all sessions are measured.
	exemptAccount = dialect.Both("", `
		UPDATE grants SET spared = {3} WHERE target = {1} AND tail = {2} AND spared < 0
			AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.spared < 0)`)
	readExempt = dialect.Both("", `SELECT g.spared FROM grants g WHERE g.target = {1} AND g.tail = {2}`)
)

// AccountRef returns the ref of a space that a session, or another ref of the space, is charged to;
// "" for the space's owner.
func (s *Authority) AccountRef(ctx context.Context, id string) (ref string, err error) {
	if err := txn.CheckText(id); err != nil {
		return "", err
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		target, tail := txn.SplitRef(id)
		if tail == "" {
			if err := dialect.Query(ctx, run, readSpaceRef, nil, []any{id}, func(row dialect.Scanner) error { return row.Scan(&target, &tail) }); err != nil {
				return err
			}
		}
		run.Queue(readAccount, nil, []any{target, tail}, func(row dialect.Scanner) error {
			var target, tail string
			err := row.Scan(&target, &tail)
			ref = txn.JoinRef(target, tail)
			return err
		})
		return nil
	})
	return ref, txn.Wrap("find an account", err)
}

// AccountUsage sums the bytes of all sessions that are charged to a ref of a space; spared is the
// exempt part, from before there was a quota, and -1 while that is unknown.
func (s *Authority) AccountUsage(ctx context.Context, ref string) (bytes, spared int64, err error) {
	if capability.Target(ref) == "" {
		return 0, 0, nil
	}
	target, tail := txn.SplitRef(ref)
	read := func(run dialect.Runner) {
		run.Queue(readExempt, nil, []any{target, tail}, func(row dialect.Scanner) error { return row.Scan(&spared) })
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(sumAccount, nil, []any{target, tail}, func(row dialect.Scanner) error { return row.Scan(&bytes) })
		read(run)
		return nil
	})
	if err == nil && spared < 0 {
		err = s.db.Update(ctx, func(t *txn.Tx) error {
			t.Run.Queue(exemptAccount, nil, []any{target, tail, bytes}, nil)
			read(t.Run)
			return nil
		})
	}
	return bytes, spared, txn.Wrap("add up an account", err)
}
