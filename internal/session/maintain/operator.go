package maintain

// Changes that the operator of a server makes, who has the database and needs no ref, and the expiry of refs.

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// ExpiryAudit returns the audit row of a ref that has expired by now; nil if it was dead before its
// expiry, or is not expired. row is its session's, under lock; nil for the ref of a space.
func ExpiryAudit(g *capability.Grant, row *session.Row, now int64) *capability.AuditRow {
	var epoch, cursor uint64
	if row != nil {
		if row.Life == session.Deleted {
			return nil
		}
		epoch, cursor = row.Epoch, row.Cursor
	}
	if dead := capability.Check(g, epoch, now, 0, ""); dead == nil || dead.Code != fault.Expired {
		return nil
	}
	return &capability.AuditRow{Target: g.Target, At: g.Expires, Act: capability.AuditExpiry, Ref: g.ID, Actor: g.Actor, Cursor: cursor}
}

// MintUnderRoot mints a ref from the living one of a space's roots, for the server itself to act
// under. The caller has locked the space. Errors: NotFound if no root is alive, and the errors of
// capability.Mint.
func MintUnderRoot(roots []*capability.Grant, m capability.MintRequest, now int64) (*session.Changes, error) {
	for _, root := range roots {
		if root.Revoked != 0 {
			continue
		}
		g, err := capability.Mint(root, m, 0, now)
		if err != nil {
			return nil, err
		}
		return &session.Changes{Grants: []*capability.Grant{g}, Audit: []*capability.AuditRow{{Target: g.Target, At: now, Act: capability.AuditShare,
			Ref: root.ID, Actor: "operator", Subject: g.ID}}}, nil
	}
	return nil, fault.NotFound.With("the database has no space %s with a living root", capability.Target(m.ID))
}

// RotateRoot recovers a space whose root ref was lost or stolen: it returns the changes that
// replace the existing roots (roots, living or dead) by root, made on the server's machine, and the
// id of the living one. there is the existing row with root's id, or nil: a repetition changes
// nothing. The caller has locked the space. NotFound if there is no root at all.
func RotateRoot(roots []*capability.Grant, there, root *capability.Grant, now int64) (c *session.Changes, old string, err error) {
	switch {
	case there != nil && there.Hash == root.Hash && there.Revoked == 0:
		return nil, "", nil
	case there != nil:
		return nil, "", fault.AlreadyExists.With("a ref with this id exists already")
	case len(roots) == 0:
		return nil, "", fault.NotFound.With("the database has no space %s", root.Target)
	}
	g := &capability.Grant{ID: root.ID, Target: root.Target, Hash: root.Hash, Rights: capability.SpaceRights, Label: root.Label, Created: now}
	c = &session.Changes{Grants: []*capability.Grant{g}}
	for _, r := range roots {
		if r.Revoked != 0 {
			continue
		}
		old, g.Actor = r.ID, r.Actor
		c.Rotate = append(c.Rotate, session.RotatedGrant{ID: r.ID, By: g.ID, At: now})
	}
	c.Audit = []*capability.AuditRow{{Target: g.Target, At: now, Act: capability.AuditRotate, Ref: old, Actor: "operator", Subject: g.ID}}
	return c, old, nil
}
