package capability_test

// Delegation: what minting takes from the parent, and that nothing minted is
// ever wider than it.

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

const (
	parentID = session1 + ".s01J00000000000000000000007"
	childID  = session1 + ".s01J00000000000000000000008"
)

// sealedID is that of a child which is bound to a key.
var sealedID = capability.DeriveSealedID(session1, capability.NewSecret())

// narrowParent is limited in every dimension but that of messages; to put and begin,
// unless to other methods.
func narrowParent(methods ...string) *capability.Grant {
	if methods == nil {
		methods = []string{"put", "begin"}
	}
	return &capability.Grant{ID: parentID, Target: session1, Epoch: 3, Rights: capability.Read | capability.Append | capability.Share,
		Methods: methods, Expires: 5000, VisibleFrom: 10, MaxRedemptions: 4, Actor: "team/a"}
}

// messageParent is for one message.
func messageParent() *capability.Grant {
	g := narrowParent()
	g.Message = "msg"
	return g
}

func spaceRef() *capability.Grant {
	return &capability.Grant{ID: space1 + ".s01J00000000000000000000004", Target: space1, Rights: capability.SpaceRights}
}

func ownerRef() *capability.Grant {
	return &capability.Grant{ID: parentID, Target: session1, Owner: true, Rights: capability.OwnerRights, Actor: "owner"}
}

func wish(change func(*capability.MintRequest)) capability.MintRequest {
	m := capability.MintRequest{ID: childID, Hash: [32]byte{1}, Rights: capability.Read}
	if change != nil {
		change(&m)
	}
	return m
}

func TestMintTakesTheParentsLimits(t *testing.T) {
	t.Parallel()
	seal := bytes.Repeat([]byte{7}, 32)
	g, err := capability.Mint(messageParent(), wish(func(m *capability.MintRequest) {
		m.ID, m.Rights, m.Seal, m.Label = sealedID, capability.Append, seal, "for b"
	}), 3, 777)
	if err != nil {
		t.Fatal(err)
	}
	want := &capability.Grant{ID: sealedID, Target: session1, Parent: parentID, Hash: [32]byte{1}, Epoch: 3, Rights: capability.Append,
		Methods: []string{"put", "begin"}, Expires: 5000, VisibleFrom: 10, MaxRedemptions: 4, Message: "msg", Seal: seal, Label: "for b", Actor: "team/a", Created: 777}
	if !reflect.DeepEqual(g, want) {
		t.Errorf("minted\n%+v, want\n%+v", g, want)
	}
	g, err = capability.Mint(ownerRef(), wish(nil), 3, 777)
	if err != nil {
		t.Fatal(err)
	}
	if g.Owner || g.Epoch != 3 || g.Actor != "owner" || g.Expires != 0 || g.MaxRedemptions != 0 {
		t.Errorf("from an owner ref: %+v", g)
	}
	g, err = capability.Mint(ownerRef(), wish(func(m *capability.MintRequest) { m.Lifetime = 1000 }), 3, 777)
	if err != nil || g.Expires != 1777 {
		t.Errorf("for 1000 ms from 777 on: %+v, %v", g, err)
	}
	g, err = capability.Mint(spaceRef(), wish(func(m *capability.MintRequest) { m.ID, m.Rights = space1+childID[len(session1):], capability.List }), 3, 777)
	if err != nil || g.Epoch != 0 {
		t.Errorf("from a space's ref, which is of no epoch: %+v, %v", g, err)
	}
}

func TestMint(t *testing.T) {
	t.Parallel()
	all := capability.OwnerRights
	for _, row := range []struct {
		asks   string
		parent *capability.Grant
		change func(*capability.MintRequest)
		answer fault.Code
	}{
		{"all of a narrow parent", narrowParent(), func(m *capability.MintRequest) {
			m.Rights, m.Methods, m.Expires, m.VisibleFrom, m.MaxRedemptions, m.Actor = capability.Read|capability.Append|capability.Share, []string{"begin", "put"}, 5000, 10, 4, "team/a"
		}, fault.None},
		{"less of a narrow parent", narrowParent(), func(m *capability.MintRequest) {
			m.Rights, m.Methods, m.Expires, m.VisibleFrom, m.MaxRedemptions, m.Actor = capability.Append, []string{"put"}, 4999, 11, 1, "team/a/b.c"
		}, fault.None},
		{"all of an owner", ownerRef(), func(m *capability.MintRequest) {
			m.Rights, m.Methods, m.Expires, m.VisibleFrom, m.MaxRedemptions, m.Actor = all, []string{"anything"}, 1<<50, 1, 9, "owner/x"
		}, fault.None},

		{"a right more", narrowParent(), func(m *capability.MintRequest) { m.Rights = capability.Revoke }, fault.Widening},
		{"a method more", narrowParent(), func(m *capability.MintRequest) { m.Rights, m.Methods = capability.Append, []string{"put", "remove"} }, fault.Widening},
		{"a later expiry", narrowParent(), func(m *capability.MintRequest) { m.Expires = 5001 }, fault.Widening},
		{"a lifetime", narrowParent(), func(m *capability.MintRequest) { m.Expires, m.Lifetime = 1, 4000 }, fault.None},
		{"a lifetime beyond its parent's", narrowParent(), func(m *capability.MintRequest) { m.Lifetime = 4999 }, fault.Widening},
		{"a lifetime without end", ownerRef(), func(m *capability.MintRequest) { m.Lifetime = 1<<53 + 1 }, fault.BadArgument},
		{"an expiry that is past", ownerRef(), func(m *capability.MintRequest) { m.Expires = 777 }, fault.BadArgument},
		{"earlier events", narrowParent(), func(m *capability.MintRequest) { m.VisibleFrom = 9 }, fault.Widening},
		{"all events", narrowParent(), func(m *capability.MintRequest) { m.VisibleFrom = 1 }, fault.Widening},
		{"more redemptions", narrowParent(), func(m *capability.MintRequest) { m.MaxRedemptions = 5 }, fault.Widening},
		{"another actor", narrowParent(), func(m *capability.MintRequest) { m.Actor = "team/b" }, fault.Widening},
		{"an actor above", narrowParent(), func(m *capability.MintRequest) { m.Actor = "team" }, fault.Widening},
		{"an actor that only begins alike", narrowParent(), func(m *capability.MintRequest) { m.Actor = "team/ab" }, fault.Widening},

		{"more than its one method", narrowParent("put"), func(m *capability.MintRequest) { m.Rights, m.Methods = capability.Append, []string{"begin"} }, fault.Widening},
		{"the message of its parent", messageParent(), func(m *capability.MintRequest) { m.Message = "msg" }, fault.None},
		{"another message", messageParent(), func(m *capability.MintRequest) { m.Message = "other" }, fault.Widening},
		{"one message of all", ownerRef(), func(m *capability.MintRequest) { m.Message = strings.Repeat("x", 200) }, fault.None},
		{"as much as there may be", ownerRef(), func(m *capability.MintRequest) {
			m.Rights, m.Methods = capability.Append, slices.Repeat([]string{strings.Repeat("x", 64)}, 64)
			m.Label, m.Actor = strings.Repeat("x", 256), "owner/"+strings.Repeat("x", 64)+strings.Repeat("/"+strings.Repeat("x", 30), 6)
		}, fault.None},
		{"a seal", ownerRef(), func(m *capability.MintRequest) { m.ID, m.Seal = sealedID, make([]byte, 32) }, fault.None},

		{"no rights", ownerRef(), func(m *capability.MintRequest) { m.Rights = 0 }, fault.BadArgument},
		{"a space's right", ownerRef(), func(m *capability.MintRequest) { m.Rights = capability.Read | capability.Create }, fault.BadArgument},
		{"an id of another session", ownerRef(), func(m *capability.MintRequest) { m.ID = session2 + ".s01J00000000000000000000008" }, fault.BadArgument},
		{"no id", ownerRef(), func(m *capability.MintRequest) { m.ID = "" }, fault.BadArgument},
		{"no hash", ownerRef(), func(m *capability.MintRequest) { m.Hash = [32]byte{} }, fault.BadArgument},
		{"a negative expiry", ownerRef(), func(m *capability.MintRequest) { m.Expires = -1 }, fault.BadArgument},
		{"methods without append", ownerRef(), func(m *capability.MintRequest) { m.Methods = []string{"put"} }, fault.BadArgument},
		{"an empty list of methods", ownerRef(), func(m *capability.MintRequest) { m.Rights, m.Methods = capability.Append, []string{} }, fault.BadArgument},
		{"an empty method", ownerRef(), func(m *capability.MintRequest) { m.Rights, m.Methods = capability.Append, []string{""} }, fault.BadArgument},
		{"too many methods", ownerRef(), func(m *capability.MintRequest) {
			m.Rights, m.Methods = capability.Append, slices.Repeat([]string{"put"}, 65)
		}, fault.BadArgument},
		{"a label too long", ownerRef(), func(m *capability.MintRequest) { m.Label = strings.Repeat("x", 257) }, fault.BadArgument},
		{"a label with an escape", ownerRef(), func(m *capability.MintRequest) { m.Label = "a\x1b[2J" }, fault.BadArgument},
		{"a label with a delete", ownerRef(), func(m *capability.MintRequest) { m.Label = "a\x7f" }, fault.BadArgument},
		{"a label that is not UTF-8", ownerRef(), func(m *capability.MintRequest) { m.Label = "\xff" }, fault.BadArgument},
		{"an actor with a blank", ownerRef(), func(m *capability.MintRequest) { m.Actor = "owner/a b" }, fault.BadArgument},
		{"an actor going up", ownerRef(), func(m *capability.MintRequest) { m.Actor = "owner/../x" }, fault.BadArgument},
		{"an actor with an empty segment", ownerRef(), func(m *capability.MintRequest) { m.Actor = "owner/" }, fault.BadArgument},
		{"an actor too long", ownerRef(), func(m *capability.MintRequest) {
			m.Actor = "owner/" + strings.Repeat("x", 64) + strings.Repeat("/"+strings.Repeat("x", 30), 6) + "x"
		}, fault.BadArgument},
		{"an actor with a segment too long", ownerRef(), func(m *capability.MintRequest) { m.Actor = "owner/" + strings.Repeat("x", 65) }, fault.BadArgument},
		{"an actor that stays where it is", ownerRef(), func(m *capability.MintRequest) { m.Actor = "owner/./x" }, fault.BadArgument},
		{"a method too long", ownerRef(), func(m *capability.MintRequest) {
			m.Rights, m.Methods = capability.Append, []string{strings.Repeat("x", 65)}
		}, fault.BadArgument},
		{"a method with an escape", ownerRef(), func(m *capability.MintRequest) { m.Rights, m.Methods = capability.Append, []string{"\x1b"} }, fault.BadArgument},
		{"a message too long", ownerRef(), func(m *capability.MintRequest) { m.Message = strings.Repeat("x", 201) }, fault.BadArgument},
		{"a message with an escape", ownerRef(), func(m *capability.MintRequest) { m.Message = "\x1b" }, fault.BadArgument},
		{"a message of a space", spaceRef(), func(m *capability.MintRequest) {
			m.ID, m.Rights, m.Message = space1+childID[len(session1):], capability.List, "msg"
		}, fault.BadArgument},
		{"a space from a cursor on", spaceRef(), func(m *capability.MintRequest) {
			m.ID, m.Rights, m.VisibleFrom = space1+childID[len(session1):], capability.List, 2
		}, fault.BadArgument},
		{"a session's right of a space", spaceRef(), func(m *capability.MintRequest) {
			m.ID, m.Rights = space1+childID[len(session1):], capability.List|capability.Read
		}, fault.BadArgument},
		{"half a seal", ownerRef(), func(m *capability.MintRequest) { m.ID, m.Seal = sealedID, make([]byte, 31) }, fault.BadArgument},
		{"a seal that its id does not tell of", ownerRef(), func(m *capability.MintRequest) { m.Seal = make([]byte, 32) }, fault.BadArgument},
		{"an id that tells of a seal it has not", ownerRef(), func(m *capability.MintRequest) { m.ID = sealedID }, fault.BadArgument},
	} {
		t.Run(row.asks, func(t *testing.T) {
			t.Parallel()
			g, err := capability.Mint(row.parent, wish(row.change), 3, 777)
			if codeOf(err) != row.answer || (g == nil) != (err != nil) {
				t.Errorf("minted %+v, %v; want %s", g, err, row.answer)
			}
		})
	}
}

// CheckWithin alone, for what Mint cannot even ask for.
func TestNarrow(t *testing.T) {
	t.Parallel()
	child := func(parent *capability.Grant, change func(*capability.Grant)) *capability.Grant {
		c := *parent
		c.ID, c.Parent, c.Owner, c.Epoch = childID, parent.ID, false, 3
		change(&c)
		return &c
	}
	for name, row := range map[string]struct {
		parent *capability.Grant
		change func(*capability.Grant)
		answer fault.Code
	}{
		"just within":          {narrowParent(), func(*capability.Grant) {}, fault.None},
		"an owner ref":         {ownerRef(), func(c *capability.Grant) { c.Owner = true }, fault.Widening},
		"another session":      {ownerRef(), func(c *capability.Grant) { c.Target = session2 }, fault.Widening},
		"another parent":       {ownerRef(), func(c *capability.Grant) { c.Parent = "" }, fault.Widening},
		"an older epoch":       {narrowParent(), func(c *capability.Grant) { c.Epoch = 2 }, fault.Widening},
		"a newer epoch":        {narrowParent(), func(c *capability.Grant) { c.Epoch = 4 }, fault.Widening},
		"any method":           {narrowParent(), func(c *capability.Grant) { c.Methods = nil }, fault.Widening},
		"no append, no method": {narrowParent(), func(c *capability.Grant) { c.Rights, c.Methods = capability.Read, nil }, fault.None},
		"no expiry":            {narrowParent(), func(c *capability.Grant) { c.Expires = 0 }, fault.Widening},
		"all events":           {narrowParent(), func(c *capability.Grant) { c.VisibleFrom = 0 }, fault.Widening},
		"any redemptions":      {narrowParent(), func(c *capability.Grant) { c.MaxRedemptions = 0 }, fault.Widening},
		"no actor":             {narrowParent(), func(c *capability.Grant) { c.Actor = "" }, fault.Widening},
		"an owner's own epoch": {ownerRef(), func(c *capability.Grant) { c.Epoch = 9 }, fault.None},
		"any message":          {messageParent(), func(c *capability.Grant) { c.Message = "" }, fault.Widening},
		"from 1, which is all": {&capability.Grant{ID: parentID, VisibleFrom: 1}, func(c *capability.Grant) { c.VisibleFrom, c.Epoch = 0, 0 }, fault.None},
		"more than one method": {narrowParent("put"), func(c *capability.Grant) { c.Methods = nil }, fault.Widening},
	} {
		if err := capability.CheckWithin(row.parent, child(row.parent, row.change)); codeOf(err) != row.answer {
			t.Errorf("%s: %v, want %s", name, err, row.answer)
		}
	}
}

func TestMintOwner(t *testing.T) {
	t.Parallel()
	space := spaceRef()
	seal := bytes.Repeat([]byte{7}, 32)
	g, err := capability.MintOwner(space, wish(func(m *capability.MintRequest) { m.ID, m.Seal, m.Label = sealedID, seal, "mine" }), 777)
	if err != nil {
		t.Fatal(err)
	}
	want := &capability.Grant{ID: sealedID, Target: session1, Parent: space.ID, Hash: [32]byte{1}, Owner: true, Rights: capability.OwnerRights,
		Seal: seal, Label: "mine", Actor: "owner", Created: 777}
	if !reflect.DeepEqual(g, want) {
		t.Errorf("minted\n%+v, want\n%+v", g, want)
	}

	lent := *space
	lent.Expires, lent.Actor, lent.MaxRedemptions = 5000, "tenant", 2
	if g, err := capability.MintOwner(&lent, wish(nil), 1); err != nil || g.Expires != 5000 || g.Actor != "tenant/owner" || g.MaxRedemptions != 0 {
		t.Errorf("under a lent space: %+v, %v", g, err)
	}
	// A sealed space ref keeps what is there; a session made under it is its maker's.
	sealed := *space
	sealed.Seal = make([]byte, 32)
	if g, err := capability.MintOwner(&sealed, wish(nil), 1); err != nil || g.Seal != nil {
		t.Errorf("under a sealed space ref: %+v, %v", g, err)
	}
	if _, err := capability.Mint(&sealed, wish(func(m *capability.MintRequest) {
		m.ID, m.Rights = space1+".s01J00000000000000000000008", capability.Create
	}), 0, 1); codeOf(err) != fault.Widening {
		t.Errorf("an unsealed space ref under a sealed one: %v", err)
	}
	lister := *space
	lister.Rights = capability.List
	creator := ownerRef()
	creator.Rights |= capability.Create // which no session's ref can have
	for name, row := range map[string]struct {
		space  *capability.Grant
		change func(*capability.MintRequest)
		answer fault.Code
	}{
		"a longer life":       {&lent, func(m *capability.MintRequest) { m.Expires = 5001 }, fault.Widening},
		"another actor":       {&lent, func(m *capability.MintRequest) { m.Actor = "owner" }, fault.Widening},
		"no right to create":  {&lister, nil, fault.MissingRight},
		"from a session ref":  {ownerRef(), nil, fault.MissingRight},
		"a space's id":        {space, func(m *capability.MintRequest) { m.ID = space1 + ".s01J00000000000000000000008" }, fault.BadArgument},
		"from such a creator": {creator, nil, fault.MissingRight},
		"no id":               {space, func(m *capability.MintRequest) { m.ID = "" }, fault.BadArgument},
		"no hash":             {space, func(m *capability.MintRequest) { m.Hash = [32]byte{} }, fault.BadArgument},
	} {
		if _, err := capability.MintOwner(row.space, wish(row.change), 1); codeOf(err) != row.answer {
			t.Errorf("%s: %v, want %s", name, err, row.answer)
		}
	}
}

// Minting the same again changes nothing, whatever has become of the ref since.
func TestReminted(t *testing.T) {
	t.Parallel()
	g, err := capability.Mint(narrowParent(), wish(nil), 3, 777)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		change func(*capability.Grant)
		answer fault.Code
	}{
		"as it was":         {func(*capability.Grant) {}, fault.None},
		"used and dead":     {func(g *capability.Grant) { g.Redemptions, g.Revoked, g.Cut, g.RevokedBy = 2, 800, 41, "by" }, fault.None},
		"made earlier":      {func(g *capability.Grant) { g.Created, g.Epoch = 1, 2 }, fault.None},
		"of another secret": {func(g *capability.Grant) { g.Hash[0]++ }, fault.AlreadyExists},
		"of more rights":    {func(g *capability.Grant) { g.Rights |= capability.Share }, fault.AlreadyExists},
		"of another parent": {func(g *capability.Grant) { g.Parent = "x" }, fault.AlreadyExists},
		"of another label":  {func(g *capability.Grant) { g.Label = "x" }, fault.AlreadyExists},
	} {
		there := *g
		row.change(&there)
		was := there
		if err := capability.CheckSameMint(&there, g); codeOf(err) != row.answer || !reflect.DeepEqual(there, was) {
			t.Errorf("%s: %v, want %s", name, err, row.answer)
		}
	}
}

// act is one thing someone may try under a ref.
type act struct {
	epoch  uint64
	now    int64
	need   capability.Rights
	method string
	cursor uint64
	used   uint32
	actor  string
}

// allowed says, in the plainest way, whether a ref allows an act.
func allowed(g *capability.Grant, a act) bool {
	if capability.Check(g, a.epoch, a.now, a.need, a.method) != nil || a.cursor < g.VisibleFrom {
		return false
	}
	redeem := *g
	redeem.Redemptions = a.used
	return capability.CheckRedemption(&redeem, nil, false) == nil && (g.Actor == "" || a.actor == g.Actor || strings.HasPrefix(a.actor, g.Actor+"/"))
}

// A chain of refs, each minted from the one before with any wish at all: what
// one allows, all above it allow.
func TestMintedIsNeverWider(t *testing.T) {
	t.Parallel()
	methods := []string{"put", "begin", "remove"}
	actors := []string{"", "a", "a/b", "a/bc", "a/b/c", "b"}
	rapid.Check(t, func(t *rapid.T) {
		epoch := rapid.Uint64Range(1, 2).Draw(t, "epoch")
		root := ownerRef()
		root.Actor = rapid.SampledFrom(actors).Draw(t, "root actor")
		root.Expires = rapid.Int64Range(0, 4).Draw(t, "root expires")
		chain := []*capability.Grant{root}
		for i := range rapid.IntRange(1, 4).Draw(t, "refs") {
			parent := chain[len(chain)-1]
			m := capability.MintRequest{ID: fmt.Sprintf("%s.s01J0000000000000000000010%d", session1, i), Hash: [32]byte{1},
				Rights:  capability.Rights(rapid.Uint8Range(0, 15).Draw(t, "rights")),
				Expires: rapid.Int64Range(0, 4).Draw(t, "expires"), VisibleFrom: rapid.Uint64Range(0, 4).Draw(t, "from"),
				MaxRedemptions: rapid.Uint32Range(0, 3).Draw(t, "limit"), Actor: rapid.SampledFrom(actors).Draw(t, "actor")}
			if some := rapid.SliceOfN(rapid.SampledFrom(methods), 0, 2).Draw(t, "methods"); len(some) > 0 {
				m.Methods = some
			}
			child, err := capability.Mint(parent, m, epoch, 1)
			if err != nil {
				continue
			}
			if err := capability.CheckWithin(parent, child); err != nil {
				t.Fatalf("minted, yet %v", err)
			}
			chain = append(chain, child)
		}
		a := act{epoch: rapid.Uint64Range(1, 3).Draw(t, "now epoch"), now: rapid.Int64Range(0, 5).Draw(t, "now"),
			need:   capability.Rights(rapid.Uint8Range(0, 15).Draw(t, "need")),
			method: rapid.SampledFrom(append(methods, "")).Draw(t, "method"), cursor: rapid.Uint64Range(1, 5).Draw(t, "cursor"),
			used: rapid.Uint32Range(0, 3).Draw(t, "used"), actor: rapid.SampledFrom(actors).Draw(t, "as")}
		for i := 1; i < len(chain); i++ {
			if allowed(chain[i], a) && !allowed(chain[i-1], a) {
				t.Fatalf("%+v is allowed by\n%+v but not by its parent\n%+v", a, chain[i], chain[i-1])
			}
		}
	})
}
