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

	// readTree gets a page of the tree below a ref, by depth and id, after a ref at
	// a depth. It goes through the whole tree, but no further than {6} refs of it,
	// and tells how many these were.
	readTree = statement("", `
		WITH RECURSIVE below(target, tail, depth) AS (
			SELECT g.target, g.tail, 0 FROM grants g WHERE g.target = {1} AND g.tail = {2}
			UNION ALL
			SELECT c.target, c.tail, below.depth + 1 FROM below CROSS JOIN grants c
			WHERE c.parent_target = below.target AND c.parent_tail = below.tail),
		looked AS (SELECT target, tail, depth FROM below LIMIT {6}),
		page AS (
			SELECT target, tail, depth FROM looked WHERE (depth, target, tail) > ({3}, {4}, {5})
			ORDER BY depth, target, tail LIMIT {7})
		SELECT `+grantColumns+`, COALESCE(s.epoch, 0), COALESCE(u.uses, 0), COALESCE(u.last, 0), (SELECT count(*) FROM looked)
		FROM page CROSS JOIN grants g
		LEFT JOIN sessions s ON s.id = g.target
		LEFT JOIN uses u ON u.target = g.target AND u.tail = g.tail
		WHERE g.target = page.target AND g.tail = page.tail
		ORDER BY page.depth, page.target, page.tail`)
)

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

// ReadTree gives the refs below under, itself first, after the ref after ("" for
// the start; one that is not in the tree is an empty page), at most limit. The
// sight is of the session id ("" for none) and refIDs.
func (s *Store) ReadTree(ctx context.Context, id, under, after string, limit int, refIDs []string) (*session.TreePage, error) {
	if err := sound(under, after); err != nil {
		return nil, err
	}
	page := &session.TreePage{}
	limit = max(limit, 1)
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		look(run, &page.Sight, id, refIDs)
		line := func(to *[]string) func(Scanner) error {
			return func(row Scanner) error {
				var target, tail string
				err := row.Scan(&target, &tail)
				*to = append(*to, join(target, tail))
				return err
			}
		}
		target, tail := split(under)
		run.Queue(readLine, nil, []any{target, tail}, line(&page.Line))
		depth, afterTarget, afterTail := int64(-1), "", ""
		if after != "" {
			var up []string
			afterTarget, afterTail = split(after)
			run.Queue(readLine, nil, []any{afterTarget, afterTail}, line(&up))
			if err := run.Flush(ctx); err != nil {
				return err
			}
			if depth = int64(slices.Index(up, under)); depth < 0 {
				return nil
			}
		}
		run.Queue(readTree, nil, []any{target, tail, depth, afterTarget, afterTail, int64(session.TreeMax) + 1, int64(limit) + 1}, func(row Scanner) error {
			if len(page.Rows) == limit {
				page.More = true
				return nil
			}
			r := session.TreeRow{}
			var epoch, uses, seen int64
			g, err := scanGrant(row, &epoch, &uses, &r.Last, &seen)
			if err != nil {
				return err
			}
			r.Grant, r.Epoch, r.Uses = g, uint64(epoch), uint64(uses)
			page.Rows, page.Cut = append(page.Rows, r), seen > session.TreeMax
			return nil
		})
		return nil
	})
	if err != nil {
		return nil, naming("read refs", err)
	}
	return page, nil
}
