package decide

// Operations on authority for the operator of a server, who has the database and needs no ref.
// (RotateRoot in rotate.go is another.)

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

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
