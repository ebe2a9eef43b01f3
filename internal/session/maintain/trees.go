package maintain

// The right manage: a space's ref acts in every session of the space, under its own id, as an owner's ref of
// the session would. Its holder opens the session first, which is recorded (Managed), with audit rows of
// both, under a shared lock of the space. Whoever revokes or rotates the ref locks the space exclusively,
// so that no further session is opened, then the sessions that were, and gives each an event, whose cursor
// is the cut: a submission reads the ref's row under its session's lock, so nothing under the ref commits
// after it. So it is where a tree of refs that spans sessions is revoked.

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// OpenManaged records inside tx that a space's ref, whose space tx has locked, opens a session: at was
// read in tx.
func OpenManaged(ctx context.Context, tx session.Tx, row *session.Row, g *capability.Grant, now int64, peer string) error {
	audit := &capability.AuditRow{Target: row.ID, At: now, Act: capability.AuditManage, Ref: g.ID, Actor: actorOf(g), Cursor: row.Cursor, Peer: peer}
	return tx.Save(ctx, &session.Changes{Managed: []session.Managed{{Ref: g.ID, Session: row.ID}}, Audit: []*capability.AuditRow{audit, InSpace(audit)}})
}

// InSpace returns the row of the space's audit for an act that a ref of the space has done in a session.
func InSpace(row *capability.AuditRow) *capability.AuditRow {
	as := *row
	as.Target = capability.Target(row.Ref)
	if capability.Target(as.Subject) == "" { // a ref's id names its session
		as.Subject = row.Target
	}
	return &as
}

// actorOf returns the actor of events under g: a space's root ref has none.
func actorOf(g *capability.Grant) string { return cmp.Or(g.Actor, capability.DefaultOwnerActor) }

// CutRotated adds to c, which rotates a ref of a space, the end of what that ref does in the sessions that
// it has opened: each gets an event, as in RevokeTree. old is the ref's row, and the caller's first Load
// of tx has locked the space exclusively, and no session.
func CutRotated(ctx context.Context, tx session.Tx, c *session.Changes, old *capability.Grant, peer string) (*session.Published, error) {
	rows, err := tx.Load(ctx, &session.ReadSet{Managed: []string{old.ID}})
	if err != nil {
		return nil, err
	}
	w := &session.ReadSet{Sessions: rows.Managed[old.ID]}
	if len(w.Sessions) == 0 {
		return &session.Published{}, nil
	}
	if rows, err = tx.Load(ctx, w); err != nil {
		return nil, err
	}
	v := view.Of(ctx, tx, w, rows)
	for _, id := range w.Sessions {
		WithdrawReplaced(v, v.Sessions[id], old, old.ID)
		Cut(v, v.Sessions[id], old, old.ID, peer)
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	cuts, published := v.Changes()
	c.Sessions, c.Events, c.Entries, c.DropRequests, c.Audit = cuts.Sessions, cuts.Events, cuts.Entries, cuts.DropRequests, append(c.Audit, cuts.Audit...)
	return published, nil
}

// Cut writes the event and the audit row of a session that loses ref.
func Cut(v *view.View, s *view.Session, by *capability.Grant, ref, peer string) {
	if s.Row.Life == session.Live {
		v.Emit(s, &session.Event{Method: session.MethodRevoke, Key: session.RefKey(ref), Schema: 1, Payload: rawjson.Encode(RevokePayload{ref}), Ref: by.ID, Actor: actorOf(by)})
		v.ChangeRow(s).AuthGen++
	}
	v.AddAudit(&capability.AuditRow{Target: s.Row.ID, At: v.Now, Act: capability.AuditRevoke, Ref: by.ID, Actor: actorOf(by), Subject: ref, Cursor: s.Row.Cursor, Peer: peer})
}

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
			WithdrawUnder(v, s, by, ref)
		}
		Cut(v, s, by, ref, peer)
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

// ErrMoreChildren is the error of a transaction that was to cut refs off in the children of a session, while one
// was made there: it is tried again.
var ErrMoreChildren = errors.New("a child was made meanwhile in a session whose refs are cut off in its children")

// RevokePayload is the payload of a revoke event; the event's cursor is the cut.
type RevokePayload struct {
	Ref string `json:"ref"`
}
