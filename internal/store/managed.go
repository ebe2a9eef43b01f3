// Sessions that refs of a space have opened by the right manage.

package store

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

var (
	insertManaged = statement("ttt", `
		INSERT INTO managed (target, tail, session) {values} ON CONFLICT (session, target, tail) DO NOTHING`)
	findManaged = statement("", `
		SELECT m.session FROM managed m WHERE m.target = {1} AND m.tail = {2} AND m.session = {3}`)
	readManaged = statement("", `
		SELECT m.session FROM managed m WHERE m.target = {1} AND m.tail = {2} ORDER BY m.session`)

	// readSessionRoots reads the refs of a session that were made from none of it.
	readSessionRoots = statement("", `
		SELECT `+grantColumns+` FROM grants g WHERE g.target = {1} AND g.parent_target <> {1}
		ORDER BY g.owner DESC, CASE WHEN g.owner = 1 AND g.revoked = 0 THEN 0 ELSE 1 END, g.created, g.tail`)
)

func managedValues(m session.Managed) []any {
	target, tail := splitRef(m.Ref)
	return []any{target, tail, m.Session}
}

// readManaged reads for a transaction the sessions that refs have opened, after locking them.
func (t *tx) readManaged(w *session.ReadSet, out *session.Rows) {
	out.Managed = map[string][]string{}
	for _, ref := range w.Managed {
		target, tail := splitRef(ref)
		t.run.Queue(lockDescendants, nil, []any{target, tail}, nil)
		t.run.Queue(readManaged, nil, []any{target, tail}, func(row Scanner) error {
			var id string
			err := row.Scan(&id)
			out.Managed[ref] = append(out.Managed[ref], id)
			return err
		})
	}
}

// FindManaged returns a session's row and the grant of a space's ref, and whether the ref has opened the
// session.
func (s *Store) FindManaged(ctx context.Context, id, ref string) (access *session.Access, opened bool, err error) {
	if err := checkText(id, ref); err != nil {
		return nil, false, err
	}
	access = &session.Access{}
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		queueAccess(run, access, id, []string{ref})
		target, tail := splitRef(ref)
		run.Queue(findManaged, nil, []any{target, tail, id}, func(Scanner) error {
			opened = true
			return nil
		})
		return nil
	})
	if err != nil {
		return nil, false, wrap("find a managed session", err)
	}
	return access, opened, nil
}

// SessionRoots returns the grants of a session that were made from none of it: the owner's that lives, those that it
// replaced, then others, the first made first.
func (s *Store) SessionRoots(ctx context.Context, id string) (roots []*capability.Grant, err error) {
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		run.Queue(readSessionRoots, nil, []any{id}, func(row Scanner) error {
			g, err := scanGrant(row)
			roots = append(roots, g)
			return err
		})
		return nil
	})
	if err != nil {
		return nil, wrap("read a session's refs", err)
	}
	return roots, nil
}
