package authority

// Public shares, and what is looked up to make one.

import (
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// sharedRefs are the refs of a share that has been made.
func sharedRefs(p *capability.PublicShare) []*capability.Grant {
	return []*capability.Grant{harness.Grant(p.Share, p.Owner), harness.Grant(p.Reader, p.Share)}
}

// testPublicShares: who asks again gets the share that stands, whoever asks for
// another gets another; a session's living share is its oldest.
func testPublicShares(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, ask := harness.NewSession(), harness.Asking()
	publish := func(ask capability.ShareRequest) *capability.PublicShare {
		t.Helper()
		standing, err := f.PublishShare(f.Ctx, harness.NewPublicShare(id), ask)
		f.Must("publish", err)
		return standing
	}
	living := func(want string) {
		t.Helper()
		shares, err := f.SharesOf(f.Ctx, []string{id, harness.NewSession()})
		f.Must("shares", err)
		got := ""
		if p := shares[id]; p != nil {
			got = p.ID
		}
		if got != want || len(shares) > 1 {
			t.Errorf("the living share is %q, want %q of %v", got, want, shares)
		}
	}

	first := *publish(ask)
	if first.Created == 0 {
		t.Error("it does not say when it was made")
	}
	got, err := f.FindShare(f.Ctx, first.ID)
	f.Must("find", err)
	harness.Same(f, "the share", got, &first)
	harness.Same(f, "one that is planned", publish(ask), &first)
	living("")
	row := harness.LiveRow(id, harness.NewSpace(), 1)
	f.Save(&session.Changes{Sessions: []*session.Row{row}, Grants: sharedRefs(&first)[:1]}, id)
	harness.Same(f, "one that is half made", publish(ask), &first)
	living("")
	f.Save(&session.Changes{Grants: sharedRefs(&first)[1:]}, id)
	harness.Same(f, "one that is made", publish(ask), &first)
	living(first.ID)
	other, late := ask, ask
	other.Fingerprint, late.DedupeWindow = harness.Hash(), -time.Minute
	for what, ask := range map[string]capability.ShareRequest{"another asker": other, "too late": late} {
		if p := publish(ask); p.ID == first.ID {
			t.Errorf("%s is given the share", what)
		}
	}
	living(first.ID)

	f.Save(&session.Changes{Revoke: []session.RevokedGrant{{ID: first.Share, By: first.Owner, At: 7, Cut: 1}}}, id)
	living("")
	ask = harness.Asking()
	second := *publish(ask)
	f.Save(&session.Changes{Grants: sharedRefs(&second)}, id)
	harness.Same(f, "the next one", publish(ask), &second)
	living(second.ID)
	if _, err := f.FindShare(f.Ctx, first.ID); err != nil {
		t.Errorf("the dead one: %v", err)
	}
	f.Save(&session.Changes{Revoke: []session.RevokedGrant{{ID: second.Reader, By: second.Owner, At: 7, Cut: 1}}}, id)
	living("")
	third := *publish(ask)
	if third.ID == second.ID {
		t.Error("a share whose readers were revoked is given again")
	}
	f.Save(&session.Changes{Grants: sharedRefs(&third)}, id)
	living(third.ID)
	row.Epoch = 2
	f.Save(&session.Changes{Sessions: []*session.Row{row}}, id)
	living("")
	fourth := *publish(ask)
	if fourth.ID == third.ID {
		t.Error("a share of before the bump of the epoch is given again")
	}
	refs := sharedRefs(&fourth)
	refs[0].Epoch, refs[1].Epoch = 2, 2
	f.Save(&session.Changes{Grants: refs}, id)
	living(fourth.ID)
	row.Life = session.Deleted
	f.Save(&session.Changes{Sessions: []*session.Row{row}}, id)
	living("")
	if p := publish(ask); p.ID == fourth.ID {
		t.Error("the share of a deleted session is given again")
	}

	public := harness.Grant(harness.NewRef(id), third.Owner)
	public.Epoch = 2
	row.Life = session.Live
	f.Save(&session.Changes{Sessions: []*session.Row{row}, Grants: []*capability.Grant{public}, Public: []capability.PublicShare{capability.NewPublicRef(public)}}, id)
	found, err := f.FindShare(f.Ctx, capability.PublicID(public.ID, public.Hash))
	f.Must("find a public ref", err)
	if found.Session != id || found.Share != public.ID || found.Reader != public.ID {
		t.Errorf("the public ref is %+v", found)
	}
	f.Save(&session.Changes{Revoke: []session.RevokedGrant{{ID: fourth.Share, By: fourth.Owner, At: 7, Cut: 1}}}, id)
	living(found.ID)

	_, err = f.FindShare(f.Ctx, "none")
	f.WantCode("an unknown id", err, fault.NotFound)
	_, err = f.FindShare(f.Ctx, "a\x00b")
	f.WantCode("a strange id", err, fault.BadArgument)
	if shares, err := f.SharesOf(f.Ctx, nil); err != nil || len(shares) != 0 {
		t.Errorf("shares of nothing: %v, %v", shares, err)
	}
}

// testPublishRace: all who ask the same at once go on with the same share.
func testPublishRace(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root := harness.Grant(harness.NewRef(harness.NewSpace()), "")
	space, _, err := f.Init(f.Ctx, root)
	f.Must("init", err)
	ask := harness.Asking()
	ask.Space = space
	var all sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		all.Go(func() {
			p, err := f.PublishShare(f.Ctx, harness.NewPublicShare(harness.NewSession()), ask)
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = p.ID
		})
	}
	all.Wait()
	for _, one := range got {
		if one != got[0] || one == "" {
			t.Fatalf("the shares are %q", got)
		}
	}
}

// testListShares lists those that live, in pages.
func testListShares(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	want := map[string]string{}
	space := harness.NewSpace()
	for i := range 7 {
		id := harness.NewSession()
		row, put := harness.LiveRow(id, space, 1), harness.Event(id, 1, "session", `{"title":"`+id+`"}`)
		p, err := f.PublishShare(f.Ctx, harness.NewPublicShare(id), harness.Asking())
		f.Must("publish", err)
		grants := sharedRefs(p)
		switch i {
		case 0:
			grants = nil // planned
		case 1:
			grants[0].Revoked = 3
		case 2:
			row.Life = session.Deleted
		default:
			want[p.ID] = id // its title
		}
		f.Save(&session.Changes{Sessions: []*session.Row{row}, Events: []*session.Event{put}, Entries: []*session.Entry{harness.EntryOf(put)}, Grants: grants}, id)
	}
	got, last := map[string]string{}, ""
	for after, pages := "", 0; ; pages++ {
		list, next, err := f.ListShares(f.Ctx, after, 2)
		f.Must("list", err)
		for _, l := range list {
			if l.Share.ID <= last || l.Share.Session != l.ID || l.External != "" {
				t.Errorf("%+v after %s", l, last)
			}
			last = l.Share.ID
			got[l.Share.ID] = l.Title
		}
		if next == "" {
			break
		}
		if after = next; pages > 10 {
			t.Fatal("there is no end to it")
		}
	}
	harness.Same(f, "the list", got, want)
}

// testRefusals: what a session lacks is noted once for each key, until it is taken away
// or the session is deleted.
func testRefusals(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	row := harness.LiveRow(harness.NewSession(), harness.NewSpace(), 1)
	f.Save(&session.Changes{Sessions: []*session.Row{row}}, row.ID)
	change := func(add []capability.ShareRefusal, drop ...string) {
		t.Helper()
		f.Must("change", f.ChangeRefusals(f.Ctx, row.ID, add, drop))
	}
	lacks := func(want ...capability.ShareRefusal) {
		t.Helper()
		list, err := f.Refusals(f.Ctx, row.ID)
		f.Must("read", err)
		for i := range list {
			if list[i].At == 0 {
				t.Errorf("%+v does not say when", list[i])
			}
			list[i].At = 0
		}
		harness.Same(f, "what it lacks", list, want)
	}
	one, two, other := capability.ShareRefusal{Why: "x"}, capability.ShareRefusal{Key: "message/m", Why: "y"}, capability.ShareRefusal{Key: "message/m", Why: "z"}
	change([]capability.ShareRefusal{two, one})
	change([]capability.ShareRefusal{other})
	lacks(one, two)
	change([]capability.ShareRefusal{other}, "message/m", "message/n")
	lacks(one, other)
	change(nil, "")
	lacks(other)
	if list, err := f.Refusals(f.Ctx, harness.NewSession()); err != nil || len(list) != 0 {
		t.Errorf("another lacks %v, %v", list, err)
	}
	row.Life = session.Deleted
	f.Save(&session.Changes{Sessions: []*session.Row{row}, DropState: []string{row.ID}}, row.ID)
	lacks()
}

// testMintUnderRoot: whoever is first makes the ref, and nobody makes it again.
func testMintUnderRoot(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root := &capability.Grant{ID: harness.NewRef(harness.NewSpace()), Hash: harness.Hash(), Rights: capability.SpaceRights}
	root.Target = capability.Target(root.ID)
	space, created, err := f.Init(f.Ctx, root)
	f.Must("init", err)
	if !created || space != root.Target {
		t.Fatal(space, created)
	}
	id := capability.FixedID(space, "x")
	got := make([]*capability.Grant, 6)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			var err error
			if got[i], err = f.MintUnderRoot(f.Ctx, capability.MintRequest{ID: id, Hash: harness.Hash(), Rights: capability.Create, Label: "l", Actor: "owner/x"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, g := range got {
		if g == nil || g.Hash != got[0].Hash || g.Parent != root.ID || g.Rights != capability.Create || g.Actor != "owner/x" {
			t.Fatalf("%+v, and %+v", g, got[0])
		}
	}
	if rows := f.Load(&session.ReadSet{Grants: []string{id}}); rows.Grants[id] == nil || rows.Grants[id].Hash != got[0].Hash {
		t.Errorf("the row is %+v", rows.Grants[id])
	}

	f.Save(&session.Changes{Revoke: []session.RevokedGrant{{ID: id, By: root.ID, At: 9}}})
	g, err := f.MintUnderRoot(f.Ctx, capability.MintRequest{ID: id, Hash: harness.Hash(), Rights: capability.Create})
	if err != nil || g.Revoked == 0 {
		t.Errorf("a revoked one comes back: %+v, %v", g, err)
	}
	_, err = f.MintUnderRoot(f.Ctx, capability.MintRequest{ID: harness.NewRef(harness.NewSpace()), Hash: harness.Hash(), Rights: capability.Create})
	f.WantCode("another space", err, fault.NotFound)
	_, err = f.MintUnderRoot(f.Ctx, capability.MintRequest{ID: harness.NewRef(harness.NewSession()), Hash: harness.Hash(), Rights: capability.Read})
	f.WantCode("a session", err, fault.BadArgument)
	_, err = f.MintUnderRoot(f.Ctx, capability.MintRequest{ID: harness.NewRef(space), Hash: harness.Hash(), Rights: capability.Read})
	f.WantCode("a right that is none of a space", err, fault.BadArgument)
}

// testLookups: sessions by their external ids, owners, what was minted from a ref.
func testLookups(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, space := harness.NewSession(), harness.NewSpace()
	row := harness.LiveRow(id, space, 1)
	row.External = "outside " + id
	old, owner := harness.Grant(harness.NewRef(id), harness.NewRef(space)), harness.Grant(harness.NewRef(id), harness.NewRef(space))
	old.Owner, owner.Owner, old.Revoked, owner.Rights = true, true, 5, capability.OwnerRights
	first, second, dead, below := harness.Grant(harness.NewRef(id), owner.ID), harness.Grant(harness.NewRef(id), owner.ID), harness.Grant(harness.NewRef(id), owner.ID), harness.Grant(harness.NewRef(id), "")
	first.Created, second.Created, dead.Revoked = 1, 2, 5
	below.Parent = first.ID
	f.Save(&session.Changes{Sessions: []*session.Row{row}, Grants: []*capability.Grant{old, owner, second, first, dead, below}}, id)

	younger := harness.LiveRow(harness.NewSession(), space, 1)
	younger.External = row.External
	gone := *younger
	gone.ID, gone.Life = harness.NewSession(), session.Deleted
	f.Save(&session.Changes{Sessions: []*session.Row{younger, &gone}}, younger.ID, gone.ID)
	for _, q := range []struct {
		space, external string
		limit           int
		want            []string
	}{
		{space, row.External, 9, []string{younger.ID, id}}, {space, row.External, 1, []string{younger.ID}},
		{space, "another", 9, nil}, {harness.NewSpace(), row.External, 9, nil},
	} {
		found, err := f.FindExternal(f.Ctx, q.space, q.external, q.limit)
		f.Must("find", err)
		harness.Same(f, "the sessions of an external id", found, q.want)
	}
	got, err := f.OwnerOf(f.Ctx, id)
	f.Must("owner", err)
	harness.Same(f, "the owner", got, owner)
	if got, err := f.OwnerOf(f.Ctx, harness.NewSession()); err != nil || got != nil {
		t.Errorf("the owner of nothing: %v, %v", got, err)
	}
	list, err := f.MintedFrom(f.Ctx, owner.ID, 10)
	f.Must("minted", err)
	harness.Same(f, "what was minted from it", list, []*capability.Grant{first, second})
	list, err = f.MintedFrom(f.Ctx, owner.ID, 1)
	f.Must("minted", err)
	harness.Same(f, "the first", list, []*capability.Grant{first})
}
