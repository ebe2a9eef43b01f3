// Sessions that refs of a space have opened, and the refs that a session began with.

package authority

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	findManaged = dialect.Both("", `
		SELECT m.session FROM managed m WHERE m.target = {1} AND m.tail = {2} AND m.session = {3}`)

	// readSessionRoots reads the refs of a session that were made from none of it.
	readSessionRoots = dialect.Both("", `
		SELECT `+txn.GrantColumns+` FROM grants g WHERE g.target = {1} AND g.parent_target <> {1}
		ORDER BY g.owner DESC, CASE WHEN g.owner = 1 AND g.revoked = 0 THEN 0 ELSE 1 END, g.created, g.tail`)
)

// FindManaged returns a session's row and the grant of a space's ref, and whether the ref has opened the
// session.
func (s *Authority) FindManaged(ctx context.Context, id, ref string) (access *session.Access, opened bool, err error) {
	if err := txn.CheckText(id, ref); err != nil {
		return nil, false, err
	}
	access = &session.Access{}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, access, id, []string{ref})
		target, tail := txn.SplitRef(ref)
		run.Queue(findManaged, nil, []any{target, tail, id}, func(dialect.Scanner) error {
			opened = true
			return nil
		})
		return nil
	})
	if err != nil {
		return nil, false, txn.Wrap("find a managed session", err)
	}
	return access, opened, nil
}

// SessionRoots returns the grants of a session that were made from none of it: the owner's that lives, those that it
// replaced, then others, the first made first.
func (s *Authority) SessionRoots(ctx context.Context, id string) (roots []*capability.Grant, err error) {
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(readSessionRoots, nil, []any{id}, dialect.Collect(&roots, txn.ScanRef))
		return nil
	})
	return roots, txn.Wrap("read a session's refs", err)
}
