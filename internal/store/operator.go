// Operations for the operator of a database, who needs no ref: reading the first space's id, and
// replacing a space's root ref or minting from it.

package store

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

var readRoots = statement("", `
	SELECT `+grantColumns+` FROM grants g WHERE g.target = {1} AND g.parent_target = '' ORDER BY g.tail`)

// FirstSpace returns the id of the space created by the first start; NotFound if there is none.
func (s *Store) FirstSpace(ctx context.Context) (space string, err error) {
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		run.Queue(readMeta, nil, []any{firstSpace}, func(row Scanner) error { return row.Scan(&space) })
		return nil
	})
	if err == nil && space == "" {
		err = fault.NotFound.With("the database has no space yet: the first start of a server makes one")
	}
	return space, wrap("find the first space", err)
}

// withRoots locks a space's row and calls decide for the changes that a new ref of the space makes,
// with the existing roots, living and dead, the row of the new ref, nil if it has none, and the
// database's time. Nothing is written if there are no changes.
func (s *Store) withRoots(ctx context.Context, ref string, decide func(roots []*capability.Grant, there *capability.Grant, now int64) (*session.Changes, error)) error {
	space := capability.Target(ref)
	return s.update(ctx, func(t *tx) error {
		rows, err := t.Load(ctx, &session.ReadSet{ExclusiveSpaces: []string{space}, Grants: []string{ref}})
		if err != nil {
			return err
		}
		var roots []*capability.Grant
		t.run.Queue(readRoots, nil, []any{space}, collect(&roots, scanRef))
		if err := t.run.Flush(ctx); err != nil {
			return err
		}
		c, err := decide(roots, rows.Grants[ref], rows.Now)
		if err != nil || c == nil {
			return err
		}
		for _, g := range roots {
			if len(c.Rotate) > 0 && g.ID == c.Rotate[0].ID {
				if _, err := session.CutRotated(ctx, t, c, g, "operator"); err != nil {
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
func (s *Store) RotateRoot(ctx context.Context, root *capability.Grant) (old string, err error) {
	err = s.withRoots(ctx, root.ID, func(roots []*capability.Grant, there *capability.Grant, now int64) (c *session.Changes, err error) {
		c, old, err = session.RotateRoot(roots, there, root, now)
		return c, err
	})
	if err != nil {
		return "", wrap("rotate the root", err)
	}
	return old, nil
}

// MintUnderRoot mints a ref of a space from its living root, with the authority of the database's
// operator: no holder of the root is needed. If the ref exists, dead or alive, nothing changes. It
// returns the ref as it is now. Errors: NotFound if the space has no living root, and the errors of
// capability.Mint.
func (s *Store) MintUnderRoot(ctx context.Context, m capability.MintRequest) (g *capability.Grant, err error) {
	if !capability.IsSpace(capability.Target(m.ID)) {
		return nil, fault.BadArgument.With("the new ref's id is not one for a space")
	}
	err = s.withRoots(ctx, m.ID, func(roots []*capability.Grant, there *capability.Grant, now int64) (*session.Changes, error) {
		if g = there; g != nil {
			return nil, nil
		}
		c, err := session.MintUnderRoot(roots, m, now)
		if err == nil {
			g = c.Grants[0]
		}
		return c, err
	})
	if err != nil {
		return nil, wrap("mint under the root", err)
	}
	return g, nil
}
