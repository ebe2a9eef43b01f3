package decide

// The view of authority: grants and their lineages, the refs minted and revoked in this group, and
// the external ids of sessions.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// grant returns a ref's row; nil if there is none.
func (v *view) grant(id string) (*capability.Grant, *fault.Error) {
	if slot := v.grants[id]; slot != nil {
		return slot.grant, nil
	}
	if err := v.loadMissing(&session.ReadSet{Lineages: []string{id}}); err != nil {
		return nil, err
	}
	return v.grants[id].grant, nil
}

// mergeGrants adds loaded rows of refs, which are older than this group: a ref that the group has
// revoked meanwhile is dead, whatever its row says. Rolling back a revocation revives the refs it
// ended here; a revocation of an earlier, complete submission stays, even on rows that were loaded
// for a batch that is rolled back.
func (v *view) mergeGrants(ids []string, found map[string]*capability.Grant) {
	ids = slices.DeleteFunc(ids, func(id string) bool { return v.grants[id] != nil })
	for _, id := range ids {
		v.grants[id] = &grantState{grant: found[id]}
	}
	for i, r := range v.revoked {
		below := map[string]bool{r.ID: true}
		for _, id := range ids {
			slot := v.grants[id]
			if under, _ := v.walk(id, below); !under || slot.grant == nil || slot.grant.Revoked != 0 {
				continue
			}
			v.journalUndo(func() {
				if i >= len(v.revoked) {
					v.grants[id] = slot
				}
			})
			v.grants[id] = slot.withRevocation(r)
		}
	}
}

func (v *view) setGrant(id string, slot *grantState) {
	old := v.grants[id]
	v.journalUndo(func() { v.grants[id] = old })
	v.grants[id] = slot
}

// mint adds a new ref.
func (v *view) mint(g *capability.Grant) { v.setGrant(g.ID, &grantState{grant: g, minted: true}) }

// descends reports whether the ref id is ancestor or a descendant of it.
func (v *view) descends(id, ancestor string) (bool, *fault.Error) {
	return v.descendsFrom(id, map[string]bool{ancestor: true})
}

// descendsFrom is descends for many ids: known has the answers so far, initially the one for the
// ancestor itself, so that all refs of a long lineage cost one walk along it.
func (v *view) descendsFrom(id string, known map[string]bool) (bool, *fault.Error) {
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
func (v *view) walk(id string, known map[string]bool) (below bool, unread string) {
	var path []string
	for {
		below, found := known[id]
		if found || id == "" {
			for _, p := range path {
				known[p] = below
			}
			return below, ""
		}
		slot := v.grants[id]
		if slot == nil {
			return false, id
		}
		path = append(path, id)
		id = ""
		if slot.grant != nil {
			id = slot.grant.Parent
		}
	}
}

// revoke revokes a ref and all its loaded descendants; the rest of its subtree is revoked by the
// statement that r becomes.
func (v *view) revoke(r session.RevokedGrant) *fault.Error {
	if err := v.markRevoked(r); err != nil {
		return err
	}
	v.revoked = append(v.revoked, r)
	return nil
}

// withRevocation returns the state with its ref revoked by r.
func (slot *grantState) withRevocation(r session.RevokedGrant) *grantState {
	g := *slot.grant
	g.Revoked, g.RevokedBy, g.Cut = r.At, r.By, r.Cut
	return &grantState{grant: &g, minted: slot.minted, public: slot.public}
}

func (v *view) markRevoked(r session.RevokedGrant) *fault.Error {
	below := map[string]bool{r.ID: true}
	for known := -1; known != len(v.grants); { // descends may load ancestors
		known = len(v.grants)
		for id := range v.grants {
			if _, err := v.descendsFrom(id, below); err != nil {
				return err
			}
		}
	}
	for id, dead := range below {
		if slot := v.grants[id]; dead && slot.grant != nil && slot.grant.Revoked == 0 {
			v.setGrant(id, slot.withRevocation(r))
		}
	}
	return nil
}

// externalOf returns the living session with an external id, "" if it is free.
func (v *view) externalOf(x session.ExternalID) (string, *fault.Error) {
	if _, known := v.external[x]; !known {
		return "", fault.BadReference.With("external must be a value and not a reference") // see readset.go: the space must be locked for it
	}
	return v.external[x], nil
}

func (v *view) claimExternal(x session.ExternalID, session string) {
	before, known := v.external[x]
	v.journalUndo(func() {
		if delete(v.external, x); known {
			v.external[x] = before
		}
	})
	v.external[x] = session
}

// rotate revokes a ref alone, and makes its children the new one's: here the loaded ones, and all
// others by the statement that r becomes.
func (v *view) rotate(r session.RotatedGrant) {
	v.setGrant(r.ID, v.grants[r.ID].withRevocation(session.RevokedGrant(r)))
	for id, slot := range v.grants {
		if slot.grant != nil && slot.grant.Parent == r.ID {
			g := *slot.grant
			g.Parent = r.By
			v.setGrant(id, &grantState{grant: &g, minted: slot.minted})
		}
	}
	v.rotated = append(v.rotated, r)
}

// reparent sets the parents of rows that are loaded after a rotation of this group.
func (v *view) reparent(grants map[string]*capability.Grant) {
	for _, r := range v.rotated {
		for _, g := range grants {
			if g.Parent == r.ID {
				g.Parent = r.By
			}
		}
	}
}
