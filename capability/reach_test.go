package capability_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// A ref has rights in children only if they are named, at most those that its maker may give, and not beside what
// is of one session.
func TestMintChildren(t *testing.T) {
	t.Parallel()
	const both = capability.Read | capability.Append
	for name, c := range map[string]struct {
		parent, ask capability.Rights // in children
		change      func(p *capability.Grant, m *capability.MintRequest)
		code        fault.Code
	}{
		"none named":     {parent: both},
		"the same":       {parent: both, ask: both},
		"fewer":          {parent: both, ask: capability.Read},
		"more":           {parent: capability.Read, ask: both, code: fault.Widening},
		"of one without": {ask: capability.Read, code: fault.Widening},
		"of an owner's":  {ask: both, change: func(p *capability.Grant, _ *capability.MintRequest) { p.Owner, p.Rights = true, capability.OwnerRights }},
		"share, of an owner's": {ask: capability.Share, change: func(p *capability.Grant, m *capability.MintRequest) {
			p.Owner, m.Rights = true, m.Rights|capability.Share
		}, code: fault.BadArgument},
		"revoke":                     {parent: both, ask: capability.Revoke, code: fault.BadArgument},
		"a right of spaces":          {parent: both, ask: capability.Create, code: fault.BadArgument},
		"one that it has not itself": {parent: both, ask: both, change: func(_ *capability.Grant, m *capability.MintRequest) { m.Rights = capability.Read }, code: fault.BadArgument},
		"with a message":             {parent: both, ask: both, change: func(_ *capability.Grant, m *capability.MintRequest) { m.Message = "m" }, code: fault.BadArgument},
		"of one with a message":      {parent: both, ask: both, change: func(p *capability.Grant, _ *capability.MintRequest) { p.Message = "m" }, code: fault.BadArgument},
		"from a cursor":              {parent: both, ask: both, change: func(_ *capability.Grant, m *capability.MintRequest) { m.VisibleFrom = 2 }, code: fault.BadArgument},
		"of one from a cursor":       {parent: both, ask: both, change: func(p *capability.Grant, _ *capability.MintRequest) { p.VisibleFrom = 2 }, code: fault.BadArgument},
		"from the first cursor":      {parent: both, ask: both, change: func(_ *capability.Grant, m *capability.MintRequest) { m.VisibleFrom = 1 }},
		"keys to read":               {parent: both, ask: both, change: func(_ *capability.Grant, m *capability.MintRequest) { m.ReadKeys = []string{"todo/"} }, code: fault.BadArgument},
		"keys to write":              {parent: both, ask: both, change: func(_ *capability.Grant, m *capability.MintRequest) { m.WriteKeys = []string{"todo/"} }, code: fault.BadArgument},
		"of one with keys":           {parent: both, ask: both, change: func(p *capability.Grant, _ *capability.MintRequest) { p.ReadKeys = []string{"todo/"} }, code: fault.BadArgument},
	} {
		p := ownerRef()
		p.Owner, p.Epoch, p.Rights, p.Children = false, 3, both|capability.Share, c.parent
		m := capability.MintRequest{ID: childID, Hash: [32]byte{1}, Rights: both, Children: c.ask}
		if c.change != nil {
			c.change(p, &m)
		}
		g, err := capability.Mint(p, m, 3, 1)
		if codeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		} else if err == nil && g.Children != c.ask {
			t.Errorf("%s: it has %s in children", name, g.Children)
		}
	}
	space := spaceRef()
	if _, err := capability.Mint(space, capability.MintRequest{ID: space1 + childID[len(session1):], Hash: [32]byte{1}, Rights: space.Rights, Children: capability.Read}, 0, 1); codeOf(err) != fault.BadArgument || !strings.Contains(err.Message, "only the ref of a session") {
		t.Errorf("of a space: %v", err)
	}
}

// The grant in a child has the ref's rights there, and its id, methods and end, and no more than it.
func TestReaching(t *testing.T) {
	t.Parallel()
	const child = "ses_01J0000000000000000000000C"
	ref := func(change func(*capability.Grant)) *capability.Grant {
		g := ownerRef()
		g.ID, g.Owner, g.Epoch, g.Rights, g.Children, g.Methods, g.Expires = childID, false, 3, capability.Read|capability.Append|capability.Share, capability.Append, []string{"put"}, 100
		if change != nil {
			change(g)
		}
		return g
	}
	g, err := capability.Reaching(ref(nil), nil, 3, child, 5)
	if err != nil || g.ID != childID || g.Target != child || g.Rights != capability.Append || g.Owner || g.Expires != 100 || !slices.Equal(g.Methods, []string{"put"}) {
		t.Errorf("%+v, %v", g, err)
	}
	if code := codeOf(capability.Check(g, 1, 5, capability.Append, "put")); code != fault.None {
		t.Errorf("in the child: %s", code)
	}
	for method, want := range map[string]fault.Code{"put": fault.None, "remove": fault.MissingRight} {
		if code := codeOf(capability.Check(g, 1, 5, capability.Append, method)); code != want {
			t.Errorf("%s in the child: %s", method, code)
		}
	}
	if code := codeOf(capability.Check(g, 2, 5, 0, "")); code != fault.StaleEpoch {
		t.Errorf("in another epoch of the child: %s", code)
	}
	reading, err := capability.Reaching(ref(func(g *capability.Grant) { g.Children = capability.Read }), nil, 3, child, 5)
	if err != nil || reading.Methods != nil {
		t.Errorf("methods, without append: %+v, %v", reading, err)
	}
	for name, c := range map[string]struct {
		g, narrow *capability.Grant
		epoch     uint64
		code      fault.Code
		grant     bool
	}{
		"no ref":            {nil, nil, 3, fault.UnknownRef, false},
		"no reach":          {ref(func(g *capability.Grant) { g.Children = 0 }), nil, 3, fault.MissingRight, false},
		"a narrower one":    {ref(nil), ref(func(g *capability.Grant) { g.Children = 0 }), 3, fault.MissingRight, false},
		"another epoch":     {ref(nil), nil, 4, fault.StaleEpoch, true},
		"revoked":           {ref(func(g *capability.Grant) { g.Revoked, g.Cut = 4, 77 }), nil, 3, fault.Revoked, true},
		"revoked, no reach": {ref(func(g *capability.Grant) { g.Revoked, g.Cut, g.Children = 4, 77, 0 }), nil, 3, fault.MissingRight, false},
		"expired":           {ref(func(g *capability.Grant) { g.Expires = 5 }), nil, 3, fault.Expired, true},
	} {
		g, err := capability.Reaching(c.g, c.narrow, c.epoch, child, 5)
		if codeOf(err) != c.code || (g != nil) != c.grant {
			t.Errorf("%s: %+v, %v", name, g, err)
			continue
		}
		if g == nil {
			continue
		}
		if again := capability.Check(g, 1, 5, 0, ""); codeOf(again) != c.code || g.Cut != 0 || again.At == 77 {
			t.Errorf("%s: the grant says %v, with the cut %d", name, again, g.Cut)
		}
	}
}
