package session

// The view of authority: grants, how they descend from one another, what was
// minted and revoked in this group, and which session has an external id.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// grant is a ref's row; nil if there is none.
func (v *view) grant(id string) (*capability.Grant, *fault.Error) {
	if slot := v.grants[id]; slot != nil {
		return slot.grant, nil
	}
	if err := v.loadMissing(&ReadSet{Lineages: []string{id}}); err != nil {
		return nil, err
	}
	return v.grants[id].grant, nil
}

// mergeGrants takes in rows of refs, which are from before this group: what it has
// revoked meanwhile is dead, whatever they say. A revocation that is taken back
// gives back what it ended here; one that is through, of an earlier submission,
// stays, though it was read for a batch that is undone.
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

// descends says whether the ref id is ancestor or below it.
func (v *view) descends(id, ancestor string) (bool, *fault.Error) {
	return v.descendsFrom(id, map[string]bool{ancestor: true})
}

// descendsFrom is descends for many ids: known holds the answers so far, to
// begin with that for the ancestor itself, so that asking for all refs of a
// long line costs one walk along it.
func (v *view) descendsFrom(id string, known map[string]bool) (bool, *fault.Error) {
	for {
		below, unread := v.walk(id, known)
		if unread == "" {
			return below, nil
		}
		if err := v.loadMissing(&ReadSet{Lineages: []string{unread}}); err != nil {
			return false, err
		}
	}
}

// walk is descendsFrom as far as the view goes; unread is where it ends.
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

// revoke marks a ref dead with all below it that the view knows; the rest of
// its subtree dies in the one statement that r becomes.
func (v *view) revoke(r RevokedGrant) *fault.Error {
	if err := v.markRevoked(r); err != nil {
		return err
	}
	v.revoked = append(v.revoked, r)
	return nil
}

// withRevocation is the slot with its ref revoked by r.
func (slot *grantState) withRevocation(r RevokedGrant) *grantState {
	g := *slot.grant
	g.Revoked, g.RevokedBy, g.Cut = r.At, r.By, r.Cut
	return &grantState{grant: &g, minted: slot.minted}
}

func (v *view) markRevoked(r RevokedGrant) *fault.Error {
	below := map[string]bool{r.ID: true}
	for known := -1; known != len(v.grants); { // ancestors may be read in
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

// externalOf is the living session that has an external id, "" if it is free.
func (v *view) externalOf(x ExternalID) (string, *fault.Error) {
	if _, known := v.external[x]; !known {
		return "", fault.BadReference.With("external must be a value and not a reference") // see wants: the space must be locked for it
	}
	return v.external[x], nil
}

func (v *view) claimExternal(x ExternalID, session string) {
	before, known := v.external[x]
	v.journalUndo(func() {
		if delete(v.external, x); known {
			v.external[x] = before
		}
	})
	v.external[x] = session
}

// rotate marks a ref dead, alone, and makes what was minted from it that of the
// new one: here what the view knows, and in the statement that r becomes all else.
func (v *view) rotate(r RotatedGrant) {
	v.setGrant(r.ID, v.grants[r.ID].withRevocation(RevokedGrant(r)))
	for id, slot := range v.grants {
		if slot.grant != nil && slot.grant.Parent == r.ID {
			g := *slot.grant
			g.Parent = r.By
			v.setGrant(id, &grantState{grant: &g, minted: slot.minted})
		}
	}
	v.rotated = append(v.rotated, r)
}

// reparent gives rows that were read after a rotation of this group the parents that
// they have by then.
func (v *view) reparent(grants map[string]*capability.Grant) {
	for _, r := range v.rotated {
		for _, g := range grants {
			if g.Parent == r.ID {
				g.Parent = r.By
			}
		}
	}
}
