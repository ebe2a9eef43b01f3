package decide

// Changes of a session without an op: expired leases and expired refs, and refs that the operator of a server makes, who has the
// database and needs no ref (RotateRoot in rotate.go is another).

import (
	"context"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// Lapse marks as interrupted, inside tx, the streaming turns of sessions whose lease has expired by
// the database's clock, or all of them if the server has just started and has no stream (all). It
// ends claims whose lease has expired, and requests that have. Each gets an event. Turns and claims that were renewed, resumed
// or ended since the sessions were found do not change, so it may run on any server, any number of
// times. The sessions must exist.
func Lapse(ctx context.Context, tx session.Tx, sessions []string, all bool) (*session.Published, error) {
	ids := slices.Clone(sessions)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	v := view.New(ctx, tx, 0)
	if err := v.Load(&session.ReadSet{Sessions: ids, StreamingTurns: ids}, true); err != nil {
		return nil, err
	}
	if err := v.Load(&session.ReadSet{LapsedClaims: ids, LapsedBy: v.Now}, false); err != nil {
		return nil, err
	}
	reason := lapsePayload{"its lease lapsed"}
	if all {
		reason.Reason = "the server started"
	}
	for _, id := range ids {
		s := v.Sessions[id]
		if s.Row.Life != session.Live {
			continue
		}
		for _, t := range v.LoadedTurns(s, "") {
			next, err := t.Status.Next(session.StepLapse)
			if err != nil || next == t.Status || !all && t.Lease > v.Now {
				continue
			}
			v.Emit(s, &session.Event{Method: session.MethodInterrupted, Key: session.MessageKey(t.Message), Schema: 1, Payload: rawjson.Encode(reason)})
			gone := *t
			gone.Status = next
			v.SetTurn(s, gone)
		}
		for _, key := range slices.Sorted(maps.Keys(s.Entries)) {
			lapseClaim(v, s, key, s.Entries[key])
		}
		lapseRequests(v, s)
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	changes, published := v.Changes()
	if changes == nil {
		return published, nil
	}
	return published, tx.Save(ctx, changes)
}

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

// lapsePayload is the payload of an interrupted event.
type lapsePayload struct {
	Reason string `json:"reason"`
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
