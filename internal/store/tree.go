// Trees of refs: reading them, the changes of a rotation, and the revocation of a tree that spans
// sessions.

package store

import (
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// descendantsCTE selects a ref and all its descendants.
const descendantsCTE = `below(target, tail) AS (
			SELECT g.target, g.tail FROM grants g WHERE g.target = {1} AND g.tail = {2}
			UNION
			SELECT c.target, c.tail FROM below CROSS JOIN grants c
			WHERE c.parent_target = below.target AND c.parent_tail = below.tail)`

var (
	// countTree counts the living refs of a tree, by target.
	countTree = statement("", `
		WITH RECURSIVE `+descendantsCTE+`
		SELECT g.target, count(*) FROM below CROSS JOIN grants g
		WHERE g.target = below.target AND g.tail = below.tail AND g.revoked = 0 GROUP BY g.target`)

	// readTreeManaged reads the sessions that a tree's living refs of the space have opened.
	readTreeManaged = statement("", `
		WITH RECURSIVE `+descendantsCTE+`
		SELECT DISTINCT m.session FROM below CROSS JOIN managed m
		WHERE m.target = below.target AND m.tail = below.tail
		AND (SELECT g.revoked FROM grants g WHERE g.target = m.target AND g.tail = m.tail) = 0`)

	// revokeSpaceSubtree is revokeSubtree for a tree with refs of several sessions: the cut of each
	// ref is its own session's cursor.
	revokeSpaceSubtree = statement("", `
		WITH RECURSIVE `+descendantsCTE+`
		UPDATE grants SET revoked = {3}, revoked_by = {4},
			cut = COALESCE((SELECT s.cursor FROM sessions s WHERE s.id = grants.target), 0)
		WHERE (target, tail) IN (SELECT target, tail FROM below) AND revoked = 0`)

	// lockDescendants locks the sessions whose refs were minted from a space's ref, and those that it
	// has opened, in id order. It runs before the rotation changes any of their refs.
	lockDescendants = postgresStatement("", `
		SELECT s.id FROM sessions s WHERE s.id IN (
			SELECT g.target FROM grants g WHERE g.parent_target = {1} AND g.parent_tail = {2}
			UNION SELECT m.session FROM managed m WHERE m.target = {1} AND m.tail = {2})
		ORDER BY s.id FOR UPDATE`)

	moveChildren = statement("", `
		UPDATE grants SET parent_target = {3}, parent_tail = {4} WHERE parent_target = {1} AND parent_tail = {2}`)
	revokeOne = statement("", `
		UPDATE grants SET revoked = {3}, cut = {4}, revoked_by = {5} WHERE target = {1} AND tail = {2} AND revoked = 0`)

	// readLineageIDs reads a ref and its ancestors, up to the one without a parent.
	readLineageIDs = statement("", `
		WITH RECURSIVE line(target, tail, up) AS (
			SELECT g.target, g.tail, 0 FROM grants g WHERE g.target = {1} AND g.tail = {2}
			UNION ALL
			SELECT g.parent_target, g.parent_tail, line.up + 1 FROM line CROSS JOIN grants g
			WHERE g.target = line.target AND g.tail = line.tail AND g.parent_target <> '')
		SELECT line.target, line.tail FROM line ORDER BY line.up`)

	// readTree walks the tree of the ref {1}.{2}, depth first, from {3}.{4} on, until it has found
	// {6} refs; {5} is 1 if the first counts as one of them. Its cost is that of the page, however
	// large the tree is.
	readTree = treeWalk()
)

// treeWalk returns readTree. A step of the walk goes down to a ref: to its first child or to its
// next sibling; or back up to its parent if there is neither. Children are ordered by creation, so
// that a new one mostly comes last.
func treeWalk() *Statement {
	ways := func(place string) string {
		return `
			SELECT 0 AS way, c.* FROM (
				SELECT g.target, g.tail, g.parent_target, g.parent_tail, g.created FROM grants g
				WHERE w.down = 1 AND g.parent_target = w.target AND g.parent_tail = w.tail
				ORDER BY g.created, g.target, g.tail LIMIT 1) AS c
			UNION ALL
			SELECT 1, s.* FROM (
				SELECT g.target, g.tail, g.parent_target, g.parent_tail, g.created FROM grants g
				WHERE (w.target, w.tail) <> ({1}, {2}) AND g.parent_target = w.parent_target AND g.parent_tail = w.parent_tail
				AND (g.created, g.target, g.tail) > ` + place + `
				ORDER BY g.created, g.target, g.tail LIMIT 1) AS s
			UNION ALL
			SELECT 2, g.target, g.tail, g.parent_target, g.parent_tail, g.created FROM grants g
			WHERE (w.target, w.tail) <> ({1}, {2}) AND g.target = w.parent_target AND g.tail = w.parent_tail`
	}
	// Each database has a fast plan for only one of these, and on the other form fails or reads all
	// refs. SQLite uses all columns of the index for a row comparison only if its values are no
	// plain columns: hence the + signs.
	onPostgres := `CROSS JOIN LATERAL (
			SELECT * FROM (` + ways(`(w.created, w.target, w.tail)`) + `) AS y ORDER BY y.way LIMIT 1) AS x WHERE w.n < {6}`
	onSQLite := `CROSS JOIN grants x WHERE w.n < {6} AND (x.target, x.tail) = (
			SELECT y.target, y.tail FROM (` + ways(`(+w.created, +w.target, +w.tail)`) + `) AS y ORDER BY y.way LIMIT 1)`
	text := func(step string) string {
		const down = `CASE WHEN x.target = w.parent_target AND x.tail = w.parent_tail THEN 0 ELSE 1 END`
		return `
		WITH RECURSIVE walk(step, n, down, target, tail, parent_target, parent_tail, created) AS (
			SELECT 0, CAST({5} AS bigint), 1, g.target, g.tail, g.parent_target, g.parent_tail, g.created
			FROM grants g WHERE g.target = {3} AND g.tail = {4}
			UNION ALL
			SELECT w.step + 1, w.n + ` + down + `, ` + down + `, x.target, x.tail, x.parent_target, x.parent_tail, x.created
			FROM walk w ` + step + `),
		page AS (SELECT step, target, tail FROM walk WHERE down = 1 AND n > 0)
		SELECT ` + grantColumns + `, COALESCE(s.epoch, 0), COALESCE(u.uses, 0), COALESCE(u.last, 0)
		FROM page CROSS JOIN grants g
		LEFT JOIN sessions s ON s.id = g.target
		LEFT JOIN uses u ON u.target = g.target AND u.tail = g.tail
		WHERE g.target = page.target AND g.tail = page.tail
		ORDER BY page.step`
	}
	s := statement("", text(onPostgres))
	s.SQLite = statement("", text(onSQLite)).SQLite
	return s
}

// saveRotations replaces refs by new ones, which exist already.
//
// The rotation of a space's ref moves refs of sessions, which otherwise change only under their
// sessions' locks. Without these locks, a session that rotates its owner ref at the same time would
// leave the new ref below the space's dead one, out of reach. The caller has locked the space
// exclusively and no session, so no session can be created below it meanwhile.
func (t *tx) saveRotations(rotations []session.RotatedGrant) {
	for _, r := range rotations {
		target, tail := splitRef(r.ID)
		newTarget, newTail := splitRef(r.By)
		if capability.IsSpace(target) {
			t.run.Queue(lockDescendants, nil, []any{target, tail}, nil)
		}
		t.run.Queue(moveChildren, nil, []any{target, tail, newTarget, newTail}, nil)
		t.run.Queue(revokeOne, nil, []any{target, tail, r.At, int64(r.Cut), r.By}, nil)
	}
}

// ReadTree returns a page of the refs below q.Under, that ref first, from the position q.After on.
// The page's Access has the rows of the session id ("" for none) and of refIDs.
func (s *Store) ReadTree(ctx context.Context, id string, q session.TreeQuery, refIDs []string) (*session.TreePage, error) {
	under, after, limit := q.Under, q.After, max(q.Limit, 1)
	if err := checkText(under, after); err != nil {
		return nil, err
	}
	page := &session.TreePage{}
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		queueAccess(run, &page.Access, id, refIDs)
		start, first, up := under, int64(1), []string(nil)
		queueLineage(run, under, &page.Lineage)
		if after != "" {
			start, first = session.TreePositionRef(after), 0
			queueLineage(run, start, &up)
			if err := run.Flush(ctx); err != nil {
				return err
			}
			end := slices.Index(up, under)
			if up = up[:end+1]; !session.IsTreePosition(after, up) {
				page.Moved = true
				return nil
			}
		}
		target, tail := splitRef(under)
		startTarget, startTail := splitRef(start)
		run.Queue(readTree, nil, []any{target, tail, startTarget, startTail, first, int64(limit) + 1}, func(row Scanner) error {
			if len(page.Rows) == limit {
				page.Next = session.TreePosition(lineageOf(page.Rows, up))
				return nil
			}
			r := session.TreeRow{}
			var epoch, uses int64
			g, err := scanGrant(row, &epoch, &uses, &r.LastUsed)
			if err != nil {
				return err
			}
			r.Grant, r.Epoch, r.Uses = g, uint64(epoch), uint64(uses)
			page.Rows = append(page.Rows, r)
			return nil
		})
		return nil
	})
	if err != nil {
		return nil, wrap("read refs", err)
	}
	return page, nil
}

// queueLineage queues a read of the ids from a ref up to its root.
func queueLineage(run Runner, ref string, to *[]string) {
	target, tail := splitRef(ref)
	run.Queue(readLineageIDs, nil, []any{target, tail}, func(row Scanner) error {
		var target, tail string
		err := row.Scan(&target, &tail)
		*to = append(*to, joinRef(target, tail))
		return err
	})
}

// lineageOf returns the ids from the last of a page's rows up to the ref whose tree it is; up is
// the same for the ref that the page continues after.
func lineageOf(rows []session.TreeRow, up []string) (line []string) {
	parent := ""
	for i, r := range slices.Backward(rows) { // each row comes after its parent
		if i == len(rows)-1 || r.Grant.ID == parent {
			line, parent = append(line, r.Grant.ID), r.Grant.Parent
		}
	}
	if i := slices.Index(up, parent); i >= 0 {
		line = append(line, up[i:]...)
	}
	return line
}
