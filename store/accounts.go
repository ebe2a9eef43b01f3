// What all sessions hold that were made under one ref of a space: its account.

package store

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
)

var (
	// readSpaceRef gets the ref that a session was made under, which its owner's is below.
	readSpaceRef = statement("", `
		SELECT g.parent_target, g.parent_tail FROM grants g WHERE g.target = {1} AND g.owner = 1 ORDER BY g.revoked LIMIT 1`)

	// readAccount gets, of the way from a ref of a space up to the space's owner's, the last
	// before that: what is made from a ref counts for that one.
	readAccount = statement("", `
		WITH RECURSIVE line(target, tail, parent_target, parent_tail, last_target, last_tail) AS (
			SELECT g.target, g.tail, g.parent_target, g.parent_tail, g.target, g.tail FROM grants g WHERE g.target = {1} AND g.tail = {2}
			UNION ALL
			SELECT g.target, g.tail, g.parent_target, g.parent_tail, line.target, line.tail FROM line CROSS JOIN grants g
			WHERE g.target = line.parent_target AND g.tail = line.parent_tail)
		SELECT line.last_target, line.last_tail FROM line
		WHERE line.parent_target = '' AND NOT (line.target = {1} AND line.tail = {2})`)

	// sumAccount adds up the sessions whose owners' refs are below a ref of a space. That a ref is the
	// space's own is a column: where it is a condition on the target, Postgres looks for children by the
	// space alone, and compares each of its refs with all.
	sumAccount = statement("", `
		WITH RECURSIVE line(target, tail, own) AS (
			SELECT g.target, g.tail, 1 FROM grants g WHERE g.target = {1} AND g.tail = {2}
			UNION ALL
			SELECT g.target, g.tail, CASE WHEN g.target = {1} THEN 1 ELSE 0 END FROM line CROSS JOIN grants g
			WHERE g.parent_target = line.target AND g.parent_tail = line.tail AND line.own = 1)
		SELECT CAST(coalesce(sum(s.bytes), 0) AS bigint) FROM sessions s
		WHERE s.id IN (SELECT line.target FROM line WHERE line.own = 0)`)

	// exemptAccount keeps what was there before there was a quota, once all of it is measured.
	exemptAccount = statement("", `
		UPDATE grants SET spared = {3} WHERE target = {1} AND tail = {2} AND spared < 0
			AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.spared < 0)`)
	readExempt = statement("", `SELECT g.spared FROM grants g WHERE g.target = {1} AND g.tail = {2}`)
)

// AccountRef gives the ref of a space that a session counts for, or another ref of the space
// does; "" for what is the space's owner's.
func (s *Store) AccountRef(ctx context.Context, id string) (ref string, err error) {
	if err := checkText(id); err != nil {
		return "", err
	}
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		target, tail := splitRef(id)
		if tail == "" {
			run.Queue(readSpaceRef, nil, []any{id}, func(row Scanner) error { return row.Scan(&target, &tail) })
			if err := run.Flush(ctx); err != nil {
				return err
			}
		}
		run.Queue(readAccount, nil, []any{target, tail}, func(row Scanner) error {
			var target, tail string
			err := row.Scan(&target, &tail)
			ref = joinRef(target, tail)
			return err
		})
		return nil
	})
	return ref, wrap("find an account", err)
}

// AccountUsage adds up what all sessions hold that count for a ref of a space; spared is what was
// there before that had a quota, and -1 while that is not known.
func (s *Store) AccountUsage(ctx context.Context, ref string) (bytes, spared int64, err error) {
	if capability.Target(ref) == "" {
		return 0, 0, nil
	}
	target, tail := splitRef(ref)
	read := func(run Runner) {
		run.Queue(readExempt, nil, []any{target, tail}, func(row Scanner) error { return row.Scan(&spared) })
	}
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		run.Queue(sumAccount, nil, []any{target, tail}, func(row Scanner) error { return row.Scan(&bytes) })
		read(run)
		return nil
	})
	if err == nil && spared < 0 {
		err = s.update(ctx, func(t *tx) error {
			t.run.Queue(exemptAccount, nil, []any{target, tail, bytes}, nil)
			read(t.run)
			return nil
		})
	}
	return bytes, spared, wrap("add up an account", err)
}
