package session

// The view of authority: grants, how they descend from one another, what was
// minted and revoked in this group, and which session has an external id.

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// grant is a ref's row; nil if there is none.
func (v *view) grant(id string) (*capability.Grant, *fault.Error) {
	if slot := v.grants[id]; slot != nil {
		return slot.grant, nil
	}
	if err := v.need(&Want{Lineages: []string{id}}); err != nil {
		return nil, err
	}
	for _, r := range v.revoked { // what the store read is from before this group
		if err := v.kill(r); err != nil {
			return nil, err
		}
	}
	return v.grants[id].grant, nil
}

func (v *view) setGrant(id string, slot *grantSlot) {
	old := v.grants[id]
	v.log(func() { v.grants[id] = old })
	v.grants[id] = slot
}

// mint adds a new ref.
func (v *view) mint(g *capability.Grant) { v.setGrant(g.ID, &grantSlot{grant: g, minted: true}) }

// descends says whether the ref id is ancestor or below it.
func (v *view) descends(id, ancestor string) (bool, *fault.Error) {
	for id != "" {
		if id == ancestor {
			return true, nil
		}
		if v.grants[id] == nil {
			if err := v.need(&Want{Lineages: []string{id}}); err != nil {
				return false, err
			}
		}
		g := v.grants[id].grant
		if g == nil {
			return false, nil
		}
		id = g.Parent
	}
	return false, nil
}

// revoke marks a ref dead with all below it that the view knows; the rest of
// its subtree dies in the one statement that r becomes.
func (v *view) revoke(r RevokedGrant) *fault.Error {
	if err := v.kill(r); err != nil {
		return err
	}
	v.revoked = append(v.revoked, r)
	return nil
}

func (v *view) kill(r RevokedGrant) *fault.Error {
	var dead []string
	for known := -1; known != len(v.grants); { // descends may read ancestors in
		known = len(v.grants)
		dead = dead[:0]
		for id, slot := range v.grants {
			if slot == nil || slot.grant == nil || slot.grant.Revoked != 0 {
				continue
			}
			under, err := v.descends(id, r.ID)
			if err != nil {
				return err
			}
			if under {
				dead = append(dead, id)
			}
		}
	}
	for _, id := range dead {
		slot := v.grants[id]
		g := *slot.grant
		g.Revoked, g.RevokeBy, g.Cut = r.At, r.By, r.Cut
		v.setGrant(id, &grantSlot{grant: &g, minted: slot.minted})
	}
	return nil
}

// externalOf is the session that has an external id in a space, "" if it is free.
func (v *view) externalOf(space, external string) (string, *fault.Error) {
	if _, known := v.external[space][external]; !known {
		return "", fault.BadReference.With("external must be a value and not a reference") // see wants: the space must be locked for it
	}
	return v.external[space][external], nil
}

func (v *view) claimExternal(space, external, session string) {
	v.log(func() { v.external[space][external] = "" })
	v.external[space][external] = session
}
