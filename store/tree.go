// Trees of refs: what is read of one, what a rotation changes in it, and the end
// of one that goes beyond a session.

package store

import (
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/session"
)

// below is a ref and all that descend from it.
const below = `below(target, tail) AS (
			SELECT g.target, g.tail FROM grants g WHERE g.target = {1} AND g.tail = {2}
			UNION
			SELECT c.target, c.tail FROM below CROSS JOIN grants c
			WHERE c.parent_target = below.target AND c.parent_tail = below.tail)`

var (
	// countTree counts the living refs of a tree, by what they are for.
	countTree = statement("", `
		WITH RECURSIVE `+below+`
		SELECT g.target, count(*) FROM below CROSS JOIN grants g
		WHERE g.target = below.target AND g.tail = below.tail AND g.revoked = 0 GROUP BY g.target`)

	// revokeAcross is revokeSubtree for a tree that has sessions' refs in it: the
	// cut of each is its own session's cursor.
	revokeAcross = statement("", `
		WITH RECURSIVE `+below+`
		UPDATE grants SET revoked = {3}, revoked_by = {4},
			cut = COALESCE((SELECT s.cursor FROM sessions s WHERE s.id = grants.target), 0)
		WHERE (target, tail) IN (SELECT target, tail FROM below) AND revoked = 0`)

	// touchBelow locks the sessions whose refs were minted from a space's ref, in id
	// order, and gives their rows another version (see touch). It comes before anything
	// that such a rotation changes in their refs.
	touchBelow = onPostgres("", `
		WITH held AS MATERIALIZED (
			SELECT s.id FROM sessions s WHERE s.id IN (
				SELECT g.target FROM grants g WHERE g.parent_target = {1} AND g.parent_tail = {2})
			ORDER BY s.id FOR UPDATE)
		UPDATE sessions SET cursor = cursor FROM held WHERE sessions.id = held.id`)

	moveChildren = statement("", `
		UPDATE grants SET parent_target = {3}, parent_tail = {4} WHERE parent_target = {1} AND parent_tail = {2}`)
	retireRef = statement("", `
		UPDATE grants SET revoked = {3}, cut = {4}, revoked_by = {5} WHERE target = {1} AND tail = {2} AND revoked = 0`)

	// readLine is the way from a ref up to the one without a parent.
	readLine = statement("", `
		WITH RECURSIVE line(target, tail, up) AS (
			SELECT g.target, g.tail, 0 FROM grants g WHERE g.target = {1} AND g.tail = {2}
			UNION ALL
			SELECT g.parent_target, g.parent_tail, line.up + 1 FROM line CROSS JOIN grants g
			WHERE g.target = line.target AND g.tail = line.tail AND g.parent_target <> '')
		SELECT line.target, line.tail FROM line ORDER BY line.up`)

	// readTree walks through the tree of the ref {1}.{2}, depth first, from {3}.{4} on, until it
	// has found {6} refs; {5} says that the first is one of them. It takes no step that the
	// page does not need, however large the tree is.
	readTree = walking()
)

// walking is readTree. A step of the walk goes down to a ref, to its first child or to the
// next of its siblings, or back up to its parent where there is neither. Children are in the
// order of their making, so that a new one mostly comes behind all others.
func walking() *Statement {
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
	// Each database is quick with one of these, and does not know the other or reads all refs
	// for it. SQLite looks up a place whole where its values are no columns'.
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

// saveRotations puts refs in the place of others. The new ones are there already.
//
// The rotation of a space's ref moves refs of sessions, which change under their
// sessions' locks alone: without these a session that rotates its owner's ref
// meanwhile would leave the new one below the space's dead one, out of reach. The
// caller has the space to itself and no session, so no session begins below it.
func (t *tx) saveRotations(rotations []session.RotatedGrant) {
	for _, r := range rotations {
		target, tail := split(r.ID)
		newTarget, newTail := split(r.By)
		if capability.IsSpace(target) {
			t.run.Queue(touchBelow, nil, []any{target, tail}, nil)
		}
		t.run.Queue(moveChildren, nil, []any{target, tail, newTarget, newTail}, nil)
		t.run.Queue(retireRef, nil, []any{target, tail, r.At, int64(r.Cut), r.By}, nil)
	}
}

// ReadTree gives the refs below q.Under, itself first, after a place in their list. The
// sight is of the session id ("" for none) and refIDs.
func (s *Store) ReadTree(ctx context.Context, id string, q session.TreeQuery, refIDs []string) (*session.TreePage, error) {
	under, after, limit := q.Under, q.After, max(q.Limit, 1)
	if err := sound(under, after); err != nil {
		return nil, err
	}
	page := &session.TreePage{}
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		look(run, &page.Sight, id, refIDs)
		start, first, up := under, int64(1), []string(nil)
		queueLine(run, under, &page.Line)
		if after != "" {
			start, first = session.TreePlaceRef(after), 0
			queueLine(run, start, &up)
			if err := run.Flush(ctx); err != nil {
				return err
			}
			end := slices.Index(up, under)
			if up = up[:end+1]; !session.IsTreePlace(after, up) {
				page.Moved = true
				return nil
			}
		}
		target, tail := split(under)
		startTarget, startTail := split(start)
		run.Queue(readTree, nil, []any{target, tail, startTarget, startTail, first, int64(limit) + 1}, func(row Scanner) error {
			if len(page.Rows) == limit {
				page.Next = session.TreePlace(lineOf(page.Rows, up))
				return nil
			}
			r := session.TreeRow{}
			var epoch, uses int64
			g, err := scanGrant(row, &epoch, &uses, &r.Last)
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
		return nil, naming("read refs", err)
	}
	return page, nil
}

// queueLine has the way up from a ref read.
func queueLine(run Runner, ref string, to *[]string) {
	target, tail := split(ref)
	run.Queue(readLine, nil, []any{target, tail}, func(row Scanner) error {
		var target, tail string
		err := row.Scan(&target, &tail)
		*to = append(*to, join(target, tail))
		return err
	})
}

// lineOf is the way up from the last of a page's rows to the ref that was asked for; up is
// that from the ref which the page goes on after.
func lineOf(rows []session.TreeRow, up []string) (line []string) {
	parent := ""
	for i, r := range slices.Backward(rows) { // each is behind its parent
		if i == len(rows)-1 || r.Grant.ID == parent {
			line, parent = append(line, r.Grant.ID), r.Grant.Parent
		}
	}
	if i := slices.Index(up, parent); i >= 0 {
		line = append(line, up[i:]...)
	}
	return line
}
