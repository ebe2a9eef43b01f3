package view

// The view of authority: grants and their lineages, the refs minted and revoked in this group, and
// the external ids of sessions.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Grant returns a ref's row; nil if there is none.
func (v *View) Grant(id string) (*capability.Grant, *fault.Error) {
	if slot := v.Grants[id]; slot != nil {
		return slot.Grant, nil
	}
	if err := v.loadMissing(&session.ReadSet{Lineages: []string{id}}); err != nil {
		return nil, err
	}
	return v.Grants[id].Grant, nil
}

// mergeGrants adds loaded rows of refs, which are older than this group: a ref that the group has
// revoked meanwhile is dead, whatever its row says. Rolling back a revocation revives the refs it
// ended here; a revocation of an earlier, complete submission stays, even on rows that were loaded
// for a batch that is rolled back.
func (v *View) mergeGrants(ids []string, found map[string]*capability.Grant) {
	ids = slices.DeleteFunc(ids, func(id string) bool { return v.Grants[id] != nil })
	for _, id := range ids {
		v.Grants[id] = &GrantState{Grant: found[id]}
	}
	for i, r := range v.revoked {
		below := map[string]bool{r.ID: true}
		for _, id := range ids {
			slot := v.Grants[id]
			if under, _ := v.walk(id, below); !under || slot.Grant == nil || slot.Grant.Revoked != 0 {
				continue
			}
			v.journalUndo(func() {
				if i >= len(v.revoked) {
					v.Grants[id] = slot
				}
			})
			v.Grants[id] = slot.withRevocation(r)
		}
	}
}

func (v *View) setGrant(id string, slot *GrantState) {
	old := v.Grants[id]
	v.journalUndo(func() { v.Grants[id] = old })
	v.Grants[id] = slot
}

// Mint adds a new ref.
func (v *View) Mint(g *capability.Grant) { v.setGrant(g.ID, &GrantState{Grant: g, minted: true}) }

// Descends reports whether the ref id is ancestor or a descendant of it.
func (v *View) Descends(id, ancestor string) (bool, *fault.Error) {
	return v.DescendsFrom(id, map[string]bool{ancestor: true})
}

// DescendsFrom is descends for many ids: known has the answers so far, initially the one for the
// ancestor itself, so that all refs of a long lineage cost one walk along it.
func (v *View) DescendsFrom(id string, known map[string]bool) (bool, *fault.Error) {
	for {
		below, unread := v.walk(id, known)
		if unread == "" {
			return below, nil
		}
		if err := v.loadMissing(&session.ReadSet{Lineages: []string{unread}}); err != nil {
			return false, err
		}
	}
}

// walk is descendsFrom on the loaded rows; unread is the first ref that is not loaded.
func (v *View) walk(id string, known map[string]bool) (below bool, unread string) {
	var path []string
	for {
		below, found := known[id]
		if found || id == "" {
			for _, p := range path {
				known[p] = below
			}
			return below, ""
		}
		slot := v.Grants[id]
		if slot == nil {
			return false, id
		}
		path = append(path, id)
		id = ""
		if slot.Grant != nil {
			id = slot.Grant.Parent
		}
	}
}

// Revoke revokes a ref and all its loaded descendants; the rest of its subtree is revoked by the
// statement that r becomes.
func (v *View) Revoke(r session.RevokedGrant) *fault.Error {
	if err := v.markRevoked(r); err != nil {
		return err
	}
	v.revoked = append(v.revoked, r)
	return nil
}

// withRevocation returns the state with its ref revoked by r.
func (slot *GrantState) withRevocation(r session.RevokedGrant) *GrantState {
	g := *slot.Grant
	g.Revoked, g.RevokedBy, g.Cut = r.At, r.By, r.Cut
	return &GrantState{Grant: &g, minted: slot.minted, public: slot.public}
}

func (v *View) markRevoked(r session.RevokedGrant) *fault.Error {
	below := map[string]bool{r.ID: true}
	for known := -1; known != len(v.Grants); { // descends may load ancestors
		known = len(v.Grants)
		for id := range v.Grants {
			if _, err := v.DescendsFrom(id, below); err != nil {
				return err
			}
		}
	}
	for id, dead := range below {
		if slot := v.Grants[id]; dead && slot.Grant != nil && slot.Grant.Revoked == 0 {
			v.setGrant(id, slot.withRevocation(r))
		}
	}
	return nil
}

// ExternalOf returns the living session with an external id, "" if it is free.
func (v *View) ExternalOf(x session.ExternalID) (string, *fault.Error) {
	if _, known := v.external[x]; !known {
		return "", fault.BadReference.With("external must be a value and not a reference") // see readset.go: the space must be locked for it
	}
	return v.external[x], nil
}

// ClaimExternal gives an external id to a session.
func (v *View) ClaimExternal(x session.ExternalID, id string) {
	before, known := v.external[x]
	v.journalUndo(func() {
		if delete(v.external, x); known {
			v.external[x] = before
		}
	})
	v.external[x] = id
}

// Rotate revokes a ref alone, and makes its children the new one's: here the loaded ones, and all
// others by the statement that r becomes.
func (v *View) Rotate(r session.RotatedGrant) {
	v.setGrant(r.ID, v.Grants[r.ID].withRevocation(session.RevokedGrant(r)))
	for id, slot := range v.Grants {
		if slot.Grant != nil && slot.Grant.Parent == r.ID {
			g := *slot.Grant
			g.Parent = r.By
			v.setGrant(id, &GrantState{Grant: &g, minted: slot.minted})
		}
	}
	v.rotated = append(v.rotated, r)
}

// reparent sets the parents of rows that are loaded after a rotation of this group.
func (v *View) reparent(grants map[string]*capability.Grant) {
	for _, r := range v.rotated {
		for _, g := range grants {
			if g.Parent == r.ID {
				g.Parent = r.By
			}
		}
	}
}

// MarkPublic gives a ref that this group has minted a public id.
func (v *View) MarkPublic(id string) { v.Grants[id].public = true }

// AddRevocation adds a revocation whose descendants are not in the view.
func (v *View) AddRevocation(r session.RevokedGrant) { v.revoked = append(v.revoked, r) }

// AddAudit adds a row to the audit.
func (v *View) AddAudit(row *capability.AuditRow) { v.audit = append(v.audit, row) }
