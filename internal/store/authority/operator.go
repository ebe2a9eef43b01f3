// Operations for the operator of a database, who needs no ref: reading the first space's id, and
// replacing a space's root ref or minting from it.

package authority

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var readRoots = dialect.Both("", `
	SELECT `+txn.GrantColumns+` FROM grants g WHERE g.target = {1} AND g.parent_target = '' ORDER BY g.tail`)

var claimDone = dialect.Both("", `DELETE FROM meta WHERE name = {1} RETURNING name`)

// FirstSpace returns the id of the space created by the first start; NotFound if there is none.
func (s *Authority) FirstSpace(ctx context.Context) (space string, err error) {
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(txn.ReadMeta, nil, []any{firstSpace}, func(row dialect.Scanner) error { return row.Scan(&space) })
		return nil
	})
	if err == nil && space == "" {
		err = fault.NotFound.With("the database has no space yet: the first start of a server makes one")
	}
	return space, txn.Wrap("find the first space", err)
}

// withRoots locks a space's row and calls change for the changes that a new ref of the space makes,
// with the existing roots, living and dead, the row of the new ref, nil if it has none, and the
// database's time. Nothing is written if there are no changes.
func (s *Authority) withRoots(ctx context.Context, ref string, change func(roots []*capability.Grant, there *capability.Grant, now int64) (*session.Changes, error)) error {
	space := capability.Target(ref)
	return s.db.Update(ctx, func(t *txn.Tx) error {
		rows, err := t.Load(ctx, &session.ReadSet{ExclusiveSpaces: []string{space}, Grants: []string{ref}})
		if err != nil {
			return err
		}
		var roots []*capability.Grant
		if err := dialect.Query(ctx, t.Run, readRoots, nil, []any{space}, dialect.Collect(&roots, txn.ScanRef)); err != nil {
			return err
		}
		c, err := change(roots, rows.Grants[ref], rows.Now)
		if err != nil || c == nil {
			return err
		}
		for _, g := range roots {
			if len(c.Rotate) > 0 && g.ID == c.Rotate[0].ID {
				if _, err := maintain.CutRotated(ctx, t, c, g, "operator"); err != nil {
					return err
				}
			}
		}
		return t.Save(ctx, c)
	})
}

// RotateRoot replaces the living root ref of a space by root, which is new, with the authority of
// the database's operator: no holder of the old one is needed. If root has replaced it already,
// nothing changes. It returns the old ref's id; NotFound if the database has no such space.
func (s *Authority) RotateRoot(ctx context.Context, root *capability.Grant) (old string, err error) {
	err = s.withRoots(ctx, root.ID, func(roots []*capability.Grant, there *capability.Grant, now int64) (c *session.Changes, err error) {
		c, old, err = maintain.RotateRoot(roots, there, root, now)
		return c, err
	})
	if err != nil {
		return "", txn.Wrap("rotate the root", err)
	}
	return old, nil
}

// MintUnderRoot mints a ref of a space from its living root, with the authority of the database's
// operator: no holder of the root is needed. If the ref exists, dead or alive, nothing changes. It
// returns the ref as it is now. Errors: NotFound if the space has no living root, and the errors of
// capability.Mint.
func (s *Authority) MintUnderRoot(ctx context.Context, m capability.MintRequest) (g *capability.Grant, err error) {
	if !capability.IsSpace(capability.Target(m.ID)) {
		return nil, fault.BadArgument.With("the new ref's id is not one for a space")
	}
	err = s.withRoots(ctx, m.ID, func(roots []*capability.Grant, there *capability.Grant, now int64) (*session.Changes, error) {
		if g = there; g != nil {
			return nil, nil
		}
		c, err := maintain.MintUnderRoot(roots, m, now)
		if err == nil {
			g = c.Grants[0]
		}
		return c, err
	})
	if err != nil {
		return nil, txn.Wrap("mint under the root", err)
	}
	return g, nil
}

// manageName is the name in meta of a row that is there until the audit of a space that is older than the
// right manage says that its root ref has it.
const manageName = "manage"

// AuditManage adds to the audit of a space that is older than the right manage that its root ref has it now:
// once, however often it is called. The caller has found the right in use.
func (s *Authority) AuditManage(ctx context.Context) error {
	return txn.Wrap("audit the right manage", s.db.Update(ctx, func(t *txn.Tx) error { return auditManage(ctx, t) }))
}

func auditManage(ctx context.Context, t *txn.Tx) error {
	var state string
	if err := dialect.Query(ctx, t.Run, txn.ReadMeta, nil, []any{manageName}, func(row dialect.Scanner) error { return row.Scan(&state) }); err != nil || state == "" {
		return err
	}
	done, space := false, ""
	var roots []*capability.Grant
	t.Run.Queue(claimDone, nil, []any{manageName}, func(dialect.Scanner) error {
		done = true
		return nil
	})
	t.Run.Queue(txn.ReadMeta, nil, []any{firstSpace}, func(row dialect.Scanner) error { return row.Scan(&space) })
	if err := t.Run.Flush(ctx); err != nil || !done {
		return err
	}
	if err := dialect.Query(ctx, t.Run, readRoots, nil, []any{space}, dialect.Collect(&roots, txn.ScanRef)); err != nil {
		return err
	}
	var rows []*capability.AuditRow
	for _, g := range roots {
		if g.Revoked != 0 {
			continue
		}
		rows = append(rows, &capability.AuditRow{Target: g.Target, Act: capability.AuditManage, Ref: g.ID, Actor: "operator", Subject: g.ID})
	}
	return t.SaveAudit(ctx, rows)
}
