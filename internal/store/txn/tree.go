// Trees of refs: the changes of a rotation, the revocation of a tree that spans sessions, and the sessions that
// refs of a space have opened by the right manage.

package txn

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// descendantsCTE selects a ref and all its descendants.
const descendantsCTE = `below(target, tail) AS (
			SELECT g.target, g.tail FROM grants g WHERE g.target = {1} AND g.tail = {2}
			UNION
			SELECT c.target, c.tail FROM below CROSS JOIN grants c
			WHERE c.parent_target = below.target AND c.parent_tail = below.tail)`

var (
	// countTree counts the living refs of a tree, by target.
	countTree = dialect.Both("", `
		WITH RECURSIVE `+descendantsCTE+`
		SELECT g.target, count(*) FROM below CROSS JOIN grants g
		WHERE g.target = below.target AND g.tail = below.tail AND g.revoked = 0 GROUP BY g.target`)

	// readTreeManaged reads the sessions that a tree's living refs of the space have opened.
	readTreeManaged = dialect.Both("", `
		WITH RECURSIVE `+descendantsCTE+`
		SELECT DISTINCT m.session FROM below CROSS JOIN managed m
		WHERE m.target = below.target AND m.tail = below.tail
		AND (SELECT g.revoked FROM grants g WHERE g.target = m.target AND g.tail = m.tail) = 0`)

	// revokeSpaceSubtree is revokeSubtree for a tree with refs of several sessions: the cut of each
	// ref is its own session's cursor.
	revokeSpaceSubtree = dialect.Both("", `
		WITH RECURSIVE `+descendantsCTE+`
		UPDATE grants SET revoked = {3}, revoked_by = {4},
			cut = COALESCE((SELECT s.cursor FROM sessions s WHERE s.id = grants.target), 0)
		WHERE (target, tail) IN (SELECT target, tail FROM below) AND revoked = 0`)

	// lockDescendants locks the sessions whose refs were minted from a space's ref, and those that it
	// has opened, in id order. It runs before the rotation changes any of their refs.
	lockDescendants = dialect.PostgresOnly("", `
		SELECT s.id FROM sessions s WHERE s.id IN (
			SELECT g.target FROM grants g WHERE g.parent_target = {1} AND g.parent_tail = {2}
			UNION SELECT m.session FROM managed m WHERE m.target = {1} AND m.tail = {2})
		ORDER BY s.id FOR UPDATE`)

	moveChildren = dialect.Both("", `
		UPDATE grants SET parent_target = {3}, parent_tail = {4} WHERE parent_target = {1} AND parent_tail = {2}`)
	revokeOne = dialect.Both("", `
		UPDATE grants SET revoked = {3}, cut = {4}, revoked_by = {5} WHERE target = {1} AND tail = {2} AND revoked = 0`)
)

// saveRotations replaces refs by new ones, which exist already.
//
// The rotation of a space's ref moves refs of sessions, which otherwise change only under their
// sessions' locks. Without these locks, a session that rotates its owner ref at the same time would
// leave the new ref below the space's dead one, out of reach. The caller has locked the space
// exclusively and no session, so no session can be created below it meanwhile.
func (t *Tx) saveRotations(rotations []session.RotatedGrant) {
	for _, r := range rotations {
		target, tail := SplitRef(r.ID)
		newTarget, newTail := SplitRef(r.By)
		if capability.IsSpace(target) {
			t.Run.Queue(lockDescendants, nil, []any{target, tail}, nil)
		}
		t.Run.Queue(moveChildren, nil, []any{target, tail, newTarget, newTail}, nil)
		t.Run.Queue(revokeOne, nil, []any{target, tail, r.At, int64(r.Cut), r.By}, nil)
	}
}

var (
	insertManaged = dialect.Both("ttt", `
		INSERT INTO managed (target, tail, session) {values} ON CONFLICT (session, target, tail) DO NOTHING`)
	readManaged = dialect.Both("", `
		SELECT m.session FROM managed m WHERE m.target = {1} AND m.tail = {2} ORDER BY m.session`)
)

func managedValues(m session.Managed) []any {
	target, tail := SplitRef(m.Ref)
	return []any{target, tail, m.Session}
}

// readManaged reads for a transaction the sessions that refs have opened, after locking them.
func (t *Tx) readManaged(w *session.ReadSet, out *session.Rows) {
	out.Managed = map[string][]string{}
	for _, ref := range w.Managed {
		target, tail := SplitRef(ref)
		t.Run.Queue(lockDescendants, nil, []any{target, tail}, nil)
		t.Run.Queue(readManaged, nil, []any{target, tail}, func(row dialect.Scanner) error {
			var id string
			err := row.Scan(&id)
			out.Managed[ref] = append(out.Managed[ref], id)
			return err
		})
	}
}
