package capability_test

// Lists of keys: their form, what they cover, and that a minted ref covers no more than its parent.

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

func TestCheckKeys(t *testing.T) {
	t.Parallel()
	many := make([]string, capability.MaxKeys+1)
	for i := range many {
		many[i] = "todo/"
	}
	kind := strings.Repeat("k", capability.MaxKindBytes)
	long := kind + "/" + strings.Repeat("k", capability.MaxKeyBytes-len(kind)-1)
	for _, list := range [][]string{nil, {"todo/"}, {"plan"}, {"todo/1", "message/msg_1", "model/a/b:c@1.0+x-y/"}, {long}, {kind + "/"}, {"a-1_/X"}, many[1:]} {
		if err := capability.CheckKeys("read_keys", list); err != nil {
			t.Errorf("%q: %v", list, err)
		}
	}
	for _, list := range [][]string{{}, many, {""}, {"/"}, {"/todo"}, {"todo//1"}, {"todo/*"}, {"todo 1"}, {"todo\n"}, {"tödo/"}, {"todo/", "a,b"}, {long + "k"}, {"Todo/"}, {"todo/", "TODO"}, {"1/"}, {"_todo/"}, {"to.do/1"}, {"k" + kind + "/"}} {
		err := capability.CheckKeys("read_keys", list)
		if codeOf(err) != fault.BadArgument || !strings.HasPrefix(err.Message, "read_keys") || strings.Contains(err.Message, "\n") || len(err.Message) > 400 {
			t.Errorf("%.40q: %v", list, err)
		}
	}
}

func TestCoversKey(t *testing.T) {
	t.Parallel()
	list := []string{"todo/mine/", "plan", "part/m/"}
	for key, want := range map[string]bool{"todo/mine/1": true, "todo/mine/a/b": true, "plan": true, "part/m/p": true, "part/m/": true, "todo/mine/": true,
		"todo/mine": false, "todo/minefield": false, "todo/1": false, "plan/1": false, "plan2": false, "part/mm/p": false, "part/m": false, "": false} {
		if got := capability.CoversKey(list, key); got != want {
			t.Errorf("%q: %v", key, got)
		}
		if !capability.CoversKey(nil, key) {
			t.Errorf("no limit leaves out %q", key)
		}
	}
	for prefix, want := range map[string]bool{"part/m/": true, "part/": true, "todo/": true, "todo/mine/a/": true, "part/n/": false, "plan/": false, "part/m/p/": true} {
		if got := capability.TouchesKeys(list, prefix); got != want || !capability.TouchesKeys(nil, prefix) {
			t.Errorf("below %q: %v", prefix, got)
		}
	}
}

// A ref that is made from another has its keys, or fewer.
func TestMintNarrowsKeys(t *testing.T) {
	t.Parallel()
	all, part := []string(nil), []string{"todo/", "plan"}
	for name, c := range map[string]struct {
		parent, ask, want []string
		code              fault.Code
	}{
		"none of all":            {all, nil, nil, fault.None},
		"some of all":            {all, part, part, fault.None},
		"inherited":              {part, nil, part, fault.None},
		"the same":               {part, part, part, fault.None},
		"what earlier refs have": {[]string{"Todo/"}, nil, []string{"Todo/"}, fault.None},
		"fewer":                  {part, []string{"todo/mine/", "todo/1"}, []string{"todo/mine/", "todo/1"}, fault.None},
		"one key":                {part, []string{"plan"}, []string{"plan"}, fault.None},
		"another":                {part, []string{"todo/", "done/"}, nil, fault.Widening},
		"above":                  {[]string{"todo/mine/"}, []string{"todo/"}, nil, fault.Widening},
		"a prefix of a key":      {[]string{"plan"}, []string{"plan/"}, nil, fault.Widening},
		"the key of a prefix":    {[]string{"plan/"}, []string{"plan"}, nil, fault.Widening},
		"a longer key":           {[]string{"plan"}, []string{"plan2"}, nil, fault.Widening},
		"malformed":              {part, []string{"todo/*"}, nil, fault.BadArgument},
		"empty, which is no key": {part, []string{}, nil, fault.BadArgument},
	} {
		for _, reading := range []bool{true, false} {
			p := narrowParent()
			p.Methods, p.WriteKeys = nil, c.parent
			m := capability.MintRequest{ID: childID, Hash: [32]byte{1}, Rights: capability.Read | capability.Append, WriteKeys: c.ask}
			if reading {
				p.ReadKeys, p.WriteKeys, m.ReadKeys, m.WriteKeys = c.parent, nil, c.ask, nil
			}
			g, err := capability.Mint(p, m, p.Epoch, 1)
			if codeOf(err) != c.code {
				t.Errorf("%s, reading %v: %v, want %s", name, reading, err, c.code)
			} else if err == nil {
				got, other := g.WriteKeys, g.ReadKeys
				if reading {
					got, other = other, got
				}
				if strings.Join(got, " ") != strings.Join(c.want, " ") || other != nil || g.ShowsAllKeys() != (g.ReadKeys == nil) {
					t.Errorf("%s, reading %v: reads %q, writes %q", name, reading, g.ReadKeys, g.WriteKeys)
				}
			}
		}
	}
}

// Keys limit a right that the ref carries, of a session, and not beside a message.
func TestKeysOfWhichRefs(t *testing.T) {
	t.Parallel()
	keys := []string{"todo/"}
	mint := func(change func(*capability.Grant, *capability.MintRequest)) (*capability.Grant, fault.Code) {
		p, m := ownerRef(), capability.MintRequest{ID: childID, Hash: [32]byte{1}, Rights: capability.Read | capability.Append}
		change(p, &m)
		g, err := capability.Mint(p, m, 3, 1)
		return g, codeOf(err)
	}
	for name, change := range map[string]func(*capability.Grant, *capability.MintRequest){
		"reading, without the right":  func(_ *capability.Grant, m *capability.MintRequest) { m.ReadKeys, m.Rights = keys, capability.Append },
		"writing, without the right":  func(_ *capability.Grant, m *capability.MintRequest) { m.WriteKeys, m.Rights = keys, capability.Read },
		"reading, and a message":      func(_ *capability.Grant, m *capability.MintRequest) { m.ReadKeys, m.Message = keys, "m" },
		"writing, of a message's ref": func(p *capability.Grant, m *capability.MintRequest) { m.WriteKeys, p.Message = keys, "m" },
		"a message, of a keys' ref":   func(p *capability.Grant, m *capability.MintRequest) { p.ReadKeys, m.Message = keys, "m" },
	} {
		if _, code := mint(change); code != fault.BadArgument {
			t.Errorf("%s: %s", name, code)
		}
	}
	space := spaceRef()
	if _, err := capability.Mint(space, capability.MintRequest{ID: space1 + childID[len(session1):], Hash: [32]byte{1}, Rights: space.Rights, ReadKeys: keys}, 0, 1); codeOf(err) != fault.BadArgument || !strings.Contains(err.Message, "only the ref of a session") {
		t.Errorf("of a space: %v", err)
	}
	// What the parent's keys limit is limited below it, whichever rights the child carries.
	g, code := mint(func(p *capability.Grant, m *capability.MintRequest) {
		p.ReadKeys, p.WriteKeys, m.Rights = keys, keys, capability.Revoke
	})
	if code != fault.None || len(g.ReadKeys) != 1 || len(g.WriteKeys) != 1 {
		t.Errorf("a child with revoke alone: %s, %+v", code, g)
	}
}
