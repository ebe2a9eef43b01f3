package session

// Trees of refs: what a reader is shown of one, and the end of one that goes
// beyond a session.

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
)

// TreeRow is a ref in a tree, as shown to whoever may revoke it.
type TreeRow struct {
	Grant    *capability.Grant
	Epoch    uint64 // its session's; 0 for a space's ref
	Uses     uint64 // calls and ops under it
	LastUsed int64  // when it was used last, Unix ms; 0 never
}

// TreeQuery is what is asked of a tree.
type TreeQuery struct {
	Under string // the ref it is below; "": the one that is asked through
	After string // the page before this one's TreePage.Next; "": from the start
	Limit int    // at most so many
}

// TreePage is a piece of the tree below a ref in one snapshot.
type TreePage struct {
	Access
	// Lineage are the ids of the refs from the one asked for up to the one that all
	// of them descend from; none if there is no such ref.
	Lineage []string
	// Rows are in depth-first order, children in that of their making: each stands after
	// the one it was minted from, and all that is below it right after it.
	Rows []TreeRow
	Next string // where the next page goes on; "": nothing is left
	// Moved says that there is no place to go on after, as it was given: Rows is empty.
	Moved bool
}

// TreePosition is where a list of refs goes on: after the first of line, which is the way from
// it up to the ref whose tree it is. Refs are never taken out of a tree, but a rotation puts
// what was minted from one ref under another, elsewhere in the order. So a place names the
// whole line.
func TreePosition(line []string) string {
	return line[0] + treePositionSep + lineageSum(line)
}

const treePositionSep = "~"

func lineageSum(line []string) string {
	sum := sha256.Sum256([]byte(strings.Join(line, " ")))
	return hex.EncodeToString(sum[:8])
}

// TreePositionRef is the ref that a place is after.
func TreePositionRef(place string) string {
	ref, _, _ := strings.Cut(place, treePositionSep)
	return ref
}

// IsTreePosition says whether a place is after the first of line. One that is a ref's id
// alone, as clients of before name it, is wherever that ref is.
func IsTreePosition(place string, line []string) bool {
	ref, sum, whole := strings.Cut(place, treePositionSep)
	return len(line) > 0 && line[0] == ref && (!whole || sum == lineageSum(line))
}

// RevokeTree revokes, inside tx, a ref of a space or of one of its sessions with
// everything below it, in one statement. The caller's first Load of tx has
// locked the space exclusively, so that no session begins below the ref, and
// decided that by may do this; trees is what that Load gave for ref (ReadSet.Trees),
// peer the address that it came from.
//
// Each session that loses a living ref is locked, in id order, and gets an event
// of it: its cursor is the cut of the session's refs, and it is what tells the
// subscribers on every replica at once, as a revoke in the session itself does.
// So a space's ref over very many sessions costs an event and two rows of audit
// for each, in one transaction. refs is how many died.
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
	v := newView(ctx, tx, 0)
	v.now = rows.Now
	v.merge(w, rows)
	for _, n := range rows.Trees[ref] { // also of what was shared before the locks were had
		refs += n
	}
	actor := cmp.Or(by.Actor, capability.DefaultOwnerActor) // a space's root ref names nobody
	row := func(target string, cut uint64) *capability.AuditRow {
		return &capability.AuditRow{Target: target, At: v.now, Act: capability.AuditRevoke, Ref: by.ID, Actor: actor, Subject: ref, Cursor: cut, Peer: peer}
	}
	dead := RevokedGrant{ID: ref, By: by.ID, At: v.now}
	for _, id := range w.Sessions {
		s := v.sessions[id]
		if s.row.Life == Live {
			v.emit(s, &Event{Method: MethodRevoke, Key: refKey(ref), Schema: 1, Payload: encode(revokePayload{ref}), Ref: by.ID, Actor: actor})
			v.changeRow(s).AuthGen++
		}
		v.audit = append(v.audit, row(id, s.row.Cursor))
		dead.Cut = s.row.Cursor // of a session's ref: then there is no other
	}
	if target := capability.Target(ref); capability.IsSpace(target) {
		dead.Cut = 0
		v.audit = append(v.audit, row(target, 0))
	}
	v.revoked = append(v.revoked, dead)
	changes, published := v.changes()
	if changes == nil { // a session's ref, dead already
		return refs, published, nil
	}
	return refs, published, tx.Save(ctx, changes)
}
