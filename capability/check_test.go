package capability_test

// What a ref allows, and who may hold it, row by row.

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	const epoch, now = 3, 1_000_000
	share := func(change func(*capability.Grant)) *capability.Grant {
		g := &capability.Grant{ID: session1 + ".sX", Target: session1, Epoch: epoch, Rights: capability.Read | capability.Append}
		if change != nil {
			change(g)
		}
		return g
	}
	revoked := func(g *capability.Grant) { g.Revoked, g.Cut = now-5, 41 }
	stale := func(g *capability.Grant) { g.Epoch = 2 }
	expired := func(g *capability.Grant) { g.Expires = now }
	both := func(fs ...func(*capability.Grant)) func(*capability.Grant) {
		return func(g *capability.Grant) {
			for _, f := range fs {
				f(g)
			}
		}
	}
	owner := func(g *capability.Grant) { g.Owner, g.Epoch, g.Rights = true, 0, capability.SessionRights }
	puts := func(g *capability.Grant) { g.Methods = []string{"put", "remove"} }
	for _, row := range []struct {
		ref    string
		grant  *capability.Grant
		need   capability.Rights
		method string
		answer fault.Code
		at     uint64
	}{
		{"no row", nil, capability.Read, "", fault.UnknownRef, 0},
		{"revoked", share(revoked), capability.Read, "", fault.Revoked, 41},
		{"revoked before the first event", share(func(g *capability.Grant) { g.Revoked = 1 }), 0, "", fault.Revoked, 0},
		{"revoked, stale, expired, without the right", share(both(revoked, stale, expired)), capability.Share, "", fault.Revoked, 41},
		{"stale epoch", share(stale), capability.Read, "", fault.StaleEpoch, 3},
		{"of an epoch yet to come", share(func(g *capability.Grant) { g.Epoch = 4 }), capability.Read, "", fault.StaleEpoch, 3},
		{"stale, expired, without the right", share(both(stale, expired)), capability.Share, "", fault.StaleEpoch, 3},
		{"expired, at the very moment", share(expired), capability.Read, "", fault.Expired, now},
		{"expired, without the right", share(expired), capability.Share, "", fault.Expired, now},
		{"a moment before its expiry", share(func(g *capability.Grant) { g.Expires = now + 1 }), capability.Read, "", fault.None, 0},
		{"without the right", share(nil), capability.Share, "", fault.MissingRight, 0},
		{"with one of two rights", share(nil), capability.Read | capability.Revoke, "", fault.MissingRight, 0},
		{"append of another method", share(puts), capability.Append, "begin", fault.MissingRight, 0},
		{"append of a named method", share(puts), capability.Append, "remove", fault.None, 0},
		{"append of another than the one method", share(func(g *capability.Grant) { g.Methods = []string{"put"} }), capability.Append, "begin", fault.MissingRight, 0},
		{"append as such, with named methods", share(puts), capability.Append, "", fault.None, 0},
		{"read, with named methods", share(puts), capability.Read, "begin", fault.None, 0},
		{"append of any method", share(nil), capability.Append, "begin", fault.None, 0},
		{"alive, nothing needed", share(nil), 0, "void", fault.None, 0},
		{"an owner's, at any epoch", share(owner), capability.SessionRights, "delete", fault.None, 0},
		{"an owner's, revoked", share(both(owner, revoked)), capability.Read, "", fault.Revoked, 41},
		{"an owner's, expired", share(both(owner, expired)), capability.Read, "", fault.Expired, now},
	} {
		t.Run(row.ref, func(t *testing.T) {
			t.Parallel()
			err := capability.Check(row.grant, epoch, now, row.need, row.method)
			if codeOf(err) != row.answer {
				t.Fatalf("answer %v, want %s", err, row.answer)
			}
			if err != nil && (err.At != row.at || err.Message == "") {
				t.Errorf("at %d, want %d; message %q", err.At, row.at, err.Message)
			}
			if row.answer == fault.Revoked && strings.Contains(err.Message, "cursor") != (row.at != 0) {
				t.Errorf("names no cut, or one that there is not: %s", err.Message)
			}
			if row.answer == fault.StaleEpoch && !(strings.Contains(err.Message, "epoch 3") && strings.Contains(err.Message, "under epoch ")) {
				t.Errorf("does not name both epochs: %s", err.Message)
			}
		})
	}
	space := &capability.Grant{Target: space1, Rights: capability.SpaceRights}
	if err := capability.Check(space, 0, now, capability.Create|capability.List, ""); err != nil {
		t.Errorf("a space's root ref: %v", err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	right, wrong := capability.NewSecret(), capability.NewSecret()
	offline := capability.DeriveID(session1, right)
	server := session1 + ".s01J00000000000000000000009"
	row := func(id string) *capability.Grant {
		return &capability.Grant{ID: id, Target: session1, Hash: right.Hash()}
	}
	dead := row(offline)
	dead.Revoked = 1
	var texts []string
	for _, r := range []struct {
		who    string
		grant  *capability.Grant
		id     string
		secret capability.Secret
		answer fault.Code
	}{
		{"the holder", row(offline), offline, right, fault.None},
		{"the holder of a server's ref", row(server), server, right, fault.None},
		{"the holder of a dead ref", dead, offline, right, fault.None},
		{"a wrong secret", row(offline), offline, wrong, fault.UnknownRef},
		{"no secret", row(offline), offline, capability.Secret{}, fault.UnknownRef},
		{"no secret, and a row without a hash", &capability.Grant{ID: offline}, offline, capability.Secret{}, fault.UnknownRef},
		{"no secret, and a row with the hash of none", &capability.Grant{ID: offline, Hash: capability.Secret{}.Hash()}, offline, capability.Secret{}, fault.UnknownRef},
		{"another ref's row", row(server), offline, right, fault.UnknownRef},
		{"an unseen offline ref", nil, offline, right, fault.NotYetKnown},
		{"an unseen offline ref, with a secret that does not fit", nil, offline, wrong, fault.UnknownRef},
		{"an unseen server's ref", nil, server, right, fault.UnknownRef},
		{"nonsense", nil, "x", right, fault.UnknownRef},
	} {
		err := capability.Authenticate(r.grant, r.id, r.secret)
		if codeOf(err) != r.answer {
			t.Errorf("%s: %v, want %s", r.who, err, r.answer)
		}
		if r.answer == fault.UnknownRef && err != nil {
			texts = append(texts, err.Error())
		}
	}
	for _, text := range texts {
		if text != texts[0] {
			t.Errorf("unknown and wrong can be told apart: %q, %q", text, texts[0])
		}
	}
}

func TestCheckRedemption(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		limit, used uint32
		known       bool
		answer      fault.Code
	}{
		{0, 99, false, fault.None},
		{3, 2, false, fault.None},
		{3, 3, false, fault.Exhausted},
		{3, 4, false, fault.Exhausted},
		{3, 3, true, fault.None},
	} {
		g, free := &capability.Grant{MaxRedemptions: row.limit, Redemptions: row.used}, &capability.Grant{Redemptions: 99}
		if err := capability.CheckRedemption(g, nil, row.known); codeOf(err) != row.answer {
			t.Errorf("%+v: %v", row, err)
		}
		if err := capability.CheckRedemption(free, []*capability.Grant{free, g}, row.known); codeOf(err) != row.answer {
			t.Errorf("%+v of one that it was made from: %v", row, err)
		}
	}
}

func TestPublicShareStands(t *testing.T) {
	t.Parallel()
	const epoch, now = 3, 1000
	p := &capability.PublicShare{Share: "share", Reader: "reader"}
	alive := &capability.Grant{Epoch: epoch}
	for name, row := range map[string]struct {
		share, reader *capability.Grant
		stands, lives bool
	}{
		"made":               {alive, alive, true, true},
		"about to be made":   {nil, nil, true, false},
		"half made":          {alive, nil, true, false},
		"the other half":     {nil, alive, true, false},
		"its share revoked":  {&capability.Grant{Epoch: epoch, Revoked: 1}, alive, false, false},
		"half made, and so":  {&capability.Grant{Epoch: epoch, Revoked: 1}, nil, false, false},
		"its reader expired": {alive, &capability.Grant{Epoch: epoch, Expires: now}, false, false},
		"of another epoch":   {&capability.Grant{Epoch: 2}, &capability.Grant{Epoch: 2}, false, false},
	} {
		grants := map[string]*capability.Grant{"other": {Revoked: 1}}
		if row.share != nil {
			grants[p.Share] = row.share
		}
		if row.reader != nil {
			grants[p.Reader] = row.reader
		}
		if stands, lives := p.Valid(grants, epoch, now), p.Live(grants, epoch, now); stands != row.stands || lives != row.lives {
			t.Errorf("%s: stands %v, lives %v", name, stands, lives)
		}
	}
}

func TestGrantJSONHasNoHash(t *testing.T) {
	t.Parallel()
	s := mustSecret(t, secretText)
	g := capability.Grant{ID: capability.DeriveID(session1, s), Target: session1, Hash: s.Hash(), Rights: capability.Read | capability.Share, Expires: 9}
	text, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"` + g.ID + `","target":"` + session1 + `","rights":["read","share"],"expires":9}`
	if string(text) != want {
		t.Errorf("JSON %s, want %s", text, want)
	}
	var back capability.Grant
	if err := json.Unmarshal(text, &back); err != nil || back.Rights != g.Rights || back.Hash != [32]byte{} {
		t.Errorf("read back %+v, %v", back, err)
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text   string
		rights capability.Rights
		print  string
	}{
		{"read", capability.Read, "read"},
		{"share, read,append ,read", capability.Read | capability.Append | capability.Share, "read,append,share"},
		{"revoke,create,list", capability.Revoke | capability.Create | capability.List, "revoke,create,list"},
	} {
		r, err := capability.ParseRights(row.text)
		if err != nil || r != row.rights || r.String() != row.print {
			t.Errorf("%q reads as %s, %v", row.text, r, err)
		}
	}
	for _, bad := range []string{"", ",", "read,", "write", "Read", "read append", strings.Repeat("x", 500)} {
		if r, err := capability.ParseRights(bad); r != 0 || fault.CodeOf(err) != fault.BadArgument || len(err.Error()) > 250 {
			t.Errorf("%.20q reads as %s, %v", bad, r, err)
		}
	}
	if capability.Rights(0).String() != "none" {
		t.Error("no rights print as", capability.Rights(0))
	}
	var r capability.Rights
	for _, bad := range []string{`"read"`, `[]`, `["read",1]`, `["all"]`, `null`} {
		if err := json.Unmarshal([]byte(bad), &r); fault.CodeOf(err) != fault.BadArgument {
			t.Errorf("%s reads as %s, %v", bad, r, err)
		}
	}
}
