package capability_test

// Attenuation: a live capability is its ref with less, and dies with it.

import (
	"reflect"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

func TestAttenuate(t *testing.T) {
	t.Parallel()
	parent := messageParent()
	parent.ID, parent.Parent, parent.Hash, parent.Seal = sealedID, parentID, [32]byte{9}, make([]byte, 32)
	parent.Label, parent.Redemptions, parent.Created = "for b", 3, 555
	g, err := capability.Attenuate(parent, capability.MintRequest{}, 3, 777)
	if err != nil || !reflect.DeepEqual(g, parent) {
		t.Errorf("to all that it was: %+v, %v; want %+v", g, err, parent)
	}

	want := *parent
	want.Rights, want.Methods, want.Expires, want.VisibleFrom, want.Label, want.Actor = capability.Append, []string{"put"}, 4000, 11, "less", "team/a/b"
	less := capability.MintRequest{ID: childID, Hash: [32]byte{1}, MaxRedemptions: 1, Seal: make([]byte, 3), // these four it has of its ref
		Rights: want.Rights, Methods: want.Methods, Expires: want.Expires, VisibleFrom: want.VisibleFrom, Label: want.Label, Actor: want.Actor}
	if g, err := capability.Attenuate(parent, less, 3, 777); err != nil || !reflect.DeepEqual(g, &want) {
		t.Errorf("to less: %+v, %v; want %+v", g, err, &want)
	}

	more := capability.MintRequest{Rights: capability.Revoke}
	if g, err := capability.Attenuate(parent, more, 3, 777); g != nil || codeOf(err) != fault.Widening {
		t.Errorf("to more: %+v, %v", g, err)
	}
	if g, err := capability.Attenuate(ownerRef(), capability.MintRequest{Rights: capability.SessionRights}, 3, 777); g != nil || codeOf(err) != fault.BadArgument {
		t.Errorf("of a row without a hash: %+v, %v", g, err)
	}
	owner := ownerRef()
	owner.Hash = [32]byte{9}
	if g, err := capability.Attenuate(owner, capability.MintRequest{}, 3, 777); err != nil || g.Owner || g.Epoch != 3 || g.Rights != owner.Rights {
		t.Errorf("an owner's: %+v, %v", g, err)
	}
	narrow, err := capability.Attenuate(owner, capability.MintRequest{Methods: []string{"put"}}, 3, 777)
	if err != nil || narrow.Rights != capability.SessionRights {
		t.Errorf("an owner's, to one method: %+v, %v: no later right comes with a list of methods", narrow, err)
	}
	named := capability.MintRequest{Methods: []string{"put"}, Rights: capability.Append | capability.Schema}
	if g, err := capability.Attenuate(owner, named, 3, 777); err != nil || g.Rights != named.Rights {
		t.Errorf("an owner's, to one method and a later right: %+v, %v", g, err)
	}
	if g, err := capability.Attenuate(narrow, named, 3, 777); g != nil || codeOf(err) != fault.Widening {
		t.Errorf("from one method to a later right: %+v, %v", g, err)
	}
}

func TestCheckLive(t *testing.T) {
	t.Parallel()
	const epoch, now = 3, 1000
	ref := func(change func(*capability.Grant)) *capability.Grant {
		g := narrowParent()
		g.Created = 1
		if change != nil {
			change(g)
		}
		return g
	}
	narrow := ref(func(g *capability.Grant) { g.Rights, g.Actor = capability.Read, "team/a/b" })
	late := ref(func(g *capability.Grant) { g.Rights, g.Expires = capability.Read, now })
	revoked := ref(func(g *capability.Grant) { g.Revoked, g.Cut, g.RevokedBy = 900, 41, "by" })
	buried := *narrow
	buried.Revoked, buried.Cut, buried.RevokedBy = revoked.Revoked, revoked.Cut, revoked.RevokedBy
	for name, row := range map[string]struct {
		g, narrow *capability.Grant
		need      capability.Rights
		method    string
		acting    *capability.Grant
		answer    fault.Code
	}{
		"not narrowed":                     {ref(nil), nil, capability.Append, "put", ref(nil), fault.None},
		"not narrowed, a right too many":   {ref(nil), nil, capability.Revoke, "", ref(nil), fault.MissingRight},
		"not narrowed, dead":               {revoked, nil, capability.Read, "", revoked, fault.Revoked},
		"a ref that is gone":               {nil, narrow, capability.Read, "", nil, fault.UnknownRef},
		"narrowed":                         {ref(nil), narrow, capability.Read, "", narrow, fault.None},
		"narrowed, a right it is left out": {ref(nil), narrow, capability.Append, "put", narrow, fault.MissingRight},
		"narrowed in time":                 {ref(nil), late, capability.Read, "", late, fault.Expired},
		"narrowed, its ref dead":           {revoked, narrow, capability.Read, "", &buried, fault.Revoked},
		"narrowed, its ref of too little":  {ref(func(g *capability.Grant) { g.Rights = capability.Share }), narrow, capability.Read, "", narrow, fault.None},
	} {
		acting, err := capability.CheckLive(row.g, row.narrow, epoch, now, row.need, row.method)
		if codeOf(err) != row.answer || !reflect.DeepEqual(acting, row.acting) {
			t.Errorf("%s: %+v, %v; want %+v, %s", name, acting, err, row.acting, row.answer)
		}
	}
	if narrow.Revoked != 0 {
		t.Error("what was narrowed to was itself changed")
	}
}
