package decide

// The revocation of a tree of refs that spans sessions.

import (
	"context"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// RevokeTree revokes, inside tx, a ref of a space or of one of its sessions with all descendants,
// in one statement. The caller's first Load of tx has locked the space exclusively, so that no
// session can be created below the ref, and the caller has checked that by may revoke it; trees is
// that Load's result for ref (ReadSet.Trees), peer the address that the call came from.
//
// Each session that loses a living ref, or one that has opened it by the right manage, or one that reaches it from
// above, is locked, in id order, and gets an event: its cursor is the
// cut of the session's refs, and it notifies the subscribers on every replica, as a revoke in the
// session itself does. So a space's ref over very many sessions costs an event and two audit rows
// for each, in one transaction. refs is how many refs were revoked.
func RevokeTree(ctx context.Context, tx session.Tx, by *capability.Grant, ref string, trees map[string]uint64, peer string) (refs uint64, published *session.Published, err error) {
	w := &session.ReadSet{Trees: []string{ref}}
	for _, target := range slices.Sorted(maps.Keys(trees)) {
		if capability.IsSession(target) {
			w.Sessions = append(w.Sessions, target)
		}
	}
	rows, err := tx.Load(ctx, w)
	if err != nil {
		return 0, nil, err
	}
	for id := range rows.Trees[ref] {
		if capability.IsSession(id) && rows.Sessions[id] == nil {
			return 0, nil, ErrMoreChildren
		}
	}
	v := view.Of(ctx, tx, w, rows)
	for _, n := range rows.Trees[ref] { // includes refs shared before the locks were taken
		refs += n
	}
	dead := session.RevokedGrant{ID: ref, By: by.ID, At: v.Now}
	for _, id := range w.Sessions {
		s := v.Sessions[id]
		if s.Row.Life == session.Live {
			withdrawUnder(v, s, by, ref)
		}
		cut(v, s, by, ref, peer)
		if id == capability.Target(ref) {
			dead.Cut = s.Row.Cursor
		}
	}
	if err := v.Err(); err != nil {
		return 0, nil, err
	}
	if target := capability.Target(ref); capability.IsSpace(target) {
		dead.Cut = 0
		v.AddAudit(&capability.AuditRow{Target: target, At: v.Now, Act: capability.AuditRevoke, Ref: by.ID, Actor: actorOf(by), Subject: ref, Peer: peer})
	}
	v.AddRevocation(dead)
	changes, published := v.Changes()
	if changes == nil { // a session's ref that is dead already
		return refs, published, nil
	}
	return refs, published, tx.Save(ctx, changes)
}
