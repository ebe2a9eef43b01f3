package session

// Trees of refs: pages of one, and the revocation of a tree that spans sessions.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
)

// TreeRow is a ref in a tree, as shown to a holder who may revoke it.
type TreeRow struct {
	Grant    *capability.Grant
	Epoch    uint64 // its session's; 0 for a space's ref
	Uses     uint64 // calls and ops under it
	LastUsed int64  // time of the last use, Unix ms; 0 never
}

// TreeQuery is a request for a page of a tree.
type TreeQuery struct {
	Under string // the root of the tree; "": the ref of the call
	After string // the previous page's TreePage.Next; "": from the start
	Limit int    // the maximum number of refs
}

// TreePage is a page of the tree below a ref in one snapshot.
type TreePage struct {
	Access
	// Lineage has the ids from the requested ref up to the root that all refs descend from; empty
	// if there is no such ref.
	Lineage []string
	// Rows are in depth-first order, siblings in order of creation: each ref is followed by its
	// descendants.
	Rows []TreeRow
	Next string // the After of the next page; "": there is none
	// Moved reports that the position After no longer exists: Rows is empty.
	Moved bool
}

// TreePosition returns the position in a tree after the first ref of line, which has the ids from
// that ref up to the tree's root. Refs are never removed from a tree, but a rotation moves the
// children of one ref below another, elsewhere in the order. So a position names the whole line.
func TreePosition(line []string) string {
	return line[0] + treePositionSep + lineageSum(line)
}

const treePositionSep = "~"

func lineageSum(line []string) string {
	sum := sha256.Sum256([]byte(strings.Join(line, " ")))
	return hex.EncodeToString(sum[:8])
}

// TreePositionRef returns the ref that a position is after.
func TreePositionRef(place string) string {
	ref, _, _ := strings.Cut(place, treePositionSep)
	return ref
}

// IsTreePosition reports whether a position is after the first of line. A position that is only a
// ref's id, as from clients of earlier versions, is wherever that ref is.
func IsTreePosition(place string, line []string) bool {
	ref, sum, whole := strings.Cut(place, treePositionSep)
	return len(line) > 0 && line[0] == ref && (!whole || sum == lineageSum(line))
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
func RevokeTree(ctx context.Context, tx Tx, by *capability.Grant, ref string, trees map[string]uint64, peer string) (refs uint64, published *Published, err error) {
	w := &ReadSet{Trees: []string{ref}}
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
	v := newView(ctx, tx, 0)
	v.now = rows.Now
	v.merge(w, rows)
	for _, n := range rows.Trees[ref] { // includes refs shared before the locks were taken
		refs += n
	}
	dead := RevokedGrant{ID: ref, By: by.ID, At: v.now}
	for _, id := range w.Sessions {
		s := v.sessions[id]
		if s.row.Life == Live {
			v.withdrawUnder(s, by, ref)
		}
		v.cut(s, by, ref, peer)
		if id == capability.Target(ref) {
			dead.Cut = s.row.Cursor
		}
	}
	if v.storeErr != nil {
		return 0, nil, v.storeErr
	}
	if target := capability.Target(ref); capability.IsSpace(target) {
		dead.Cut = 0
		v.audit = append(v.audit, &capability.AuditRow{Target: target, At: v.now, Act: capability.AuditRevoke, Ref: by.ID, Actor: actorOf(by), Subject: ref, Peer: peer})
	}
	v.revoked = append(v.revoked, dead)
	changes, published := v.changes()
	if changes == nil { // a session's ref that is dead already
		return refs, published, nil
	}
	return refs, published, tx.Save(ctx, changes)
}
