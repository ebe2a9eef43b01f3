package capability_test

// What acts by the right manage has every limit of the space's ref, and so has what is minted there.

import (
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

func TestWhatIsMintedUnderManage(t *testing.T) {
	t.Parallel()
	const space, session = space1, session1
	const now, expires = 1_000, 9_000
	secret := capability.NewSecret()
	plain, sealed := capability.DeriveID(session, secret), capability.DeriveSealedID(session, secret)
	for name, c := range map[string]struct {
		limit func(*capability.Grant)
		ask   capability.MintRequest
		want  fault.Code
		check func(*capability.Grant) bool
	}{
		"no limit":                 {func(*capability.Grant) {}, capability.MintRequest{}, fault.None, func(g *capability.Grant) bool { return g.Expires == 0 && g.Actor == "" }},
		"it ends with it":          {func(g *capability.Grant) { g.Expires = expires }, capability.MintRequest{}, fault.None, func(g *capability.Grant) bool { return g.Expires == expires }},
		"it ends before":           {func(g *capability.Grant) { g.Expires = expires }, capability.MintRequest{Lifetime: 10}, fault.None, func(g *capability.Grant) bool { return g.Expires == now+10 }},
		"it would outlive it":      {func(g *capability.Grant) { g.Expires = expires }, capability.MintRequest{Expires: expires + 1}, fault.Widening, nil},
		"as many redemptions":      {func(g *capability.Grant) { g.MaxRedemptions = 2 }, capability.MintRequest{}, fault.None, func(g *capability.Grant) bool { return g.MaxRedemptions == 2 }},
		"more redemptions":         {func(g *capability.Grant) { g.MaxRedemptions = 2 }, capability.MintRequest{MaxRedemptions: 3}, fault.Widening, nil},
		"below its actor":          {func(g *capability.Grant) { g.Actor = "ops" }, capability.MintRequest{Actor: "ops/ann"}, fault.None, func(g *capability.Grant) bool { return g.Actor == "ops/ann" }},
		"another actor":            {func(g *capability.Grant) { g.Actor = "ops" }, capability.MintRequest{Actor: "owner"}, fault.Widening, nil},
		"sealed, as it is":         {func(g *capability.Grant) { g.Seal = make([]byte, 32) }, capability.MintRequest{ID: sealed, Seal: make([]byte, 32)}, fault.None, func(g *capability.Grant) bool { return len(g.Seal) == 32 }},
		"not sealed, though it is": {func(g *capability.Grant) { g.Seal = make([]byte, 32) }, capability.MintRequest{}, fault.Widening, nil},
	} {
		ref := &capability.Grant{ID: capability.DeriveID(space, secret), Target: space, Parent: space + ".root", Rights: capability.Manage}
		c.limit(ref)
		acting, refused := capability.Managing(ref, nil, session, now)
		if refused != nil || acting.Parent != ref.Parent || !acting.Owner {
			t.Fatalf("%s: %+v, %v", name, acting, refused)
		}
		m := c.ask
		m.Hash, m.Rights = secret.Hash(), capability.Read
		if m.ID == "" {
			m.ID = plain
		}
		g, err := capability.Mint(acting, m, 1, now)
		if codeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		} else if err == nil && (!c.check(g) || g.Parent != ref.ID || g.Owner) {
			t.Errorf("%s: %+v", name, g)
		}
	}
	dead := &capability.Grant{ID: capability.DeriveID(space, secret), Target: space, Rights: capability.Manage, Expires: now}
	if _, refused := capability.Managing(dead, nil, session, now); codeOf(refused) != fault.Expired {
		t.Errorf("an expired one: %v", refused)
	}
}
