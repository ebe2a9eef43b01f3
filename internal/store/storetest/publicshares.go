package storetest

// Public shares, and what is looked up to make one.

import (
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func newPublicShare(id string) capability.PublicShare {
	return capability.PublicShare{ID: "pub-" + newOp(), Session: id, Owner: newRef(id), Share: newRef(id), Reader: newRef(id)}
}

// asking is a request for a share that nobody has made before.
func asking() capability.ShareRequest {
	return capability.ShareRequest{Space: newSpace(), Fingerprint: hash(), DedupeWindow: time.Minute}
}

// sharedRefs are the refs of a share that has been made.
func sharedRefs(p *capability.PublicShare) []*capability.Grant {
	return []*capability.Grant{grant(p.Share, p.Owner), grant(p.Reader, p.Share)}
}

// testPublicShares: who asks again gets the share that stands, whoever asks for
// another gets another; a session's living share is its oldest.
func testPublicShares(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id, ask := newSession(), asking()
	publish := func(ask capability.ShareRequest) *capability.PublicShare {
		t.Helper()
		standing, err := f.PublishShare(f.ctx, newPublicShare(id), ask)
		f.must("publish", err)
		return standing
	}
	living := func(want string) {
		t.Helper()
		shares, err := f.SharesOf(f.ctx, []string{id, newSession()})
		f.must("shares", err)
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
	got, err := f.FindShare(f.ctx, first.ID)
	f.must("find", err)
	same(f, "the share", got, &first)
	same(f, "one that is planned", publish(ask), &first)
	living("")
	row := liveRow(id, newSpace(), 1)
	f.save(&session.Changes{Sessions: []*session.Row{row}, Grants: sharedRefs(&first)[:1]}, id)
	same(f, "one that is half made", publish(ask), &first)
	living("")
	f.save(&session.Changes{Grants: sharedRefs(&first)[1:]}, id)
	same(f, "one that is made", publish(ask), &first)
	living(first.ID)
	other, late := ask, ask
	other.Fingerprint, late.DedupeWindow = hash(), -time.Minute
	for what, ask := range map[string]capability.ShareRequest{"another asker": other, "too late": late} {
		if p := publish(ask); p.ID == first.ID {
			t.Errorf("%s is given the share", what)
		}
	}
	living(first.ID)

	f.save(&session.Changes{Revoke: []session.RevokedGrant{{ID: first.Share, By: first.Owner, At: 7, Cut: 1}}}, id)
	living("")
	ask = asking()
	second := *publish(ask)
	f.save(&session.Changes{Grants: sharedRefs(&second)}, id)
	same(f, "the next one", publish(ask), &second)
	living(second.ID)
	if _, err := f.FindShare(f.ctx, first.ID); err != nil {
		t.Errorf("the dead one: %v", err)
	}
	f.save(&session.Changes{Revoke: []session.RevokedGrant{{ID: second.Reader, By: second.Owner, At: 7, Cut: 1}}}, id)
	living("")
	third := *publish(ask)
	if third.ID == second.ID {
		t.Error("a share whose readers were revoked is given again")
	}
	f.save(&session.Changes{Grants: sharedRefs(&third)}, id)
	living(third.ID)
	row.Epoch = 2
	f.save(&session.Changes{Sessions: []*session.Row{row}}, id)
	living("")
	fourth := *publish(ask)
	if fourth.ID == third.ID {
		t.Error("a share of before the bump of the epoch is given again")
	}
	refs := sharedRefs(&fourth)
	refs[0].Epoch, refs[1].Epoch = 2, 2
	f.save(&session.Changes{Grants: refs}, id)
	living(fourth.ID)
	row.Life = session.Deleted
	f.save(&session.Changes{Sessions: []*session.Row{row}}, id)
	living("")
	if p := publish(ask); p.ID == fourth.ID {
		t.Error("the share of a deleted session is given again")
	}

	public := grant(newRef(id), third.Owner)
	public.Epoch = 2
	row.Life = session.Live
	f.save(&session.Changes{Sessions: []*session.Row{row}, Grants: []*capability.Grant{public}, Public: []capability.PublicShare{capability.NewPublicRef(public)}}, id)
	found, err := f.FindShare(f.ctx, capability.PublicID(public.ID, public.Hash))
	f.must("find a public ref", err)
	if found.Session != id || found.Share != public.ID || found.Reader != public.ID {
		t.Errorf("the public ref is %+v", found)
	}
	f.save(&session.Changes{Revoke: []session.RevokedGrant{{ID: fourth.Share, By: fourth.Owner, At: 7, Cut: 1}}}, id)
	living(found.ID)

	_, err = f.FindShare(f.ctx, "none")
	f.code("an unknown id", err, fault.NotFound)
	_, err = f.FindShare(f.ctx, "a\x00b")
	f.code("a strange id", err, fault.BadArgument)
	if shares, err := f.SharesOf(f.ctx, nil); err != nil || len(shares) != 0 {
		t.Errorf("shares of nothing: %v, %v", shares, err)
	}
}

// testPublishRace: all who ask the same at once go on with the same share.
func testPublishRace(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	root := grant(newRef(newSpace()), "")
	space, _, err := f.Init(f.ctx, root)
	f.must("init", err)
	ask := asking()
	ask.Space = space
	var all sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		all.Go(func() {
			p, err := f.PublishShare(f.ctx, newPublicShare(newSession()), ask)
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
func testListShares(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	want := map[string]string{}
	space := newSpace()
	for i := range 7 {
		id := newSession()
		row, put := liveRow(id, space, 1), event(id, 1, "session", `{"title":"`+id+`"}`)
		p, err := f.PublishShare(f.ctx, newPublicShare(id), asking())
		f.must("publish", err)
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
		f.save(&session.Changes{Sessions: []*session.Row{row}, Events: []*session.Event{put}, Entries: []*session.Entry{entryOf(put)}, Grants: grants}, id)
	}
	got, last := map[string]string{}, ""
	for after, pages := "", 0; ; pages++ {
		list, next, err := f.ListShares(f.ctx, after, 2)
		f.must("list", err)
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
	same(f, "the list", got, want)
}

// testRefusals: what a session lacks is noted once for each key, until it is taken away
// or the session is deleted.
func testRefusals(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	row := liveRow(newSession(), newSpace(), 1)
	f.save(&session.Changes{Sessions: []*session.Row{row}}, row.ID)
	change := func(add []capability.ShareRefusal, drop ...string) {
		t.Helper()
		f.must("change", f.ChangeRefusals(f.ctx, row.ID, add, drop))
	}
	lacks := func(want ...capability.ShareRefusal) {
		t.Helper()
		list, err := f.Refusals(f.ctx, row.ID)
		f.must("read", err)
		for i := range list {
			if list[i].At == 0 {
				t.Errorf("%+v does not say when", list[i])
			}
			list[i].At = 0
		}
		same(f, "what it lacks", list, want)
	}
	one, two, other := capability.ShareRefusal{Why: "x"}, capability.ShareRefusal{Key: "message/m", Why: "y"}, capability.ShareRefusal{Key: "message/m", Why: "z"}
	change([]capability.ShareRefusal{two, one})
	change([]capability.ShareRefusal{other})
	lacks(one, two)
	change([]capability.ShareRefusal{other}, "message/m", "message/n")
	lacks(one, other)
	change(nil, "")
	lacks(other)
	if list, err := f.Refusals(f.ctx, newSession()); err != nil || len(list) != 0 {
		t.Errorf("another lacks %v, %v", list, err)
	}
	row.Life = session.Deleted
	f.save(&session.Changes{Sessions: []*session.Row{row}, DropState: []string{row.ID}}, row.ID)
	lacks()
}

// testMintUnderRoot: whoever is first makes the ref, and nobody makes it again.
func testMintUnderRoot(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	root := &capability.Grant{ID: newRef(newSpace()), Hash: hash(), Rights: capability.SpaceRights}
	root.Target = capability.Target(root.ID)
	space, created, err := f.Init(f.ctx, root)
	f.must("init", err)
	if !created || space != root.Target {
		t.Fatal(space, created)
	}
	id := capability.FixedID(space, "x")
	got := make([]*capability.Grant, 6)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			var err error
			if got[i], err = f.MintUnderRoot(f.ctx, capability.MintRequest{ID: id, Hash: hash(), Rights: capability.Create, Label: "l", Actor: "owner/x"}); err != nil {
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
	if rows := f.load(&session.ReadSet{Grants: []string{id}}); rows.Grants[id] == nil || rows.Grants[id].Hash != got[0].Hash {
		t.Errorf("the row is %+v", rows.Grants[id])
	}

	f.save(&session.Changes{Revoke: []session.RevokedGrant{{ID: id, By: root.ID, At: 9}}})
	g, err := f.MintUnderRoot(f.ctx, capability.MintRequest{ID: id, Hash: hash(), Rights: capability.Create})
	if err != nil || g.Revoked == 0 {
		t.Errorf("a revoked one comes back: %+v, %v", g, err)
	}
	_, err = f.MintUnderRoot(f.ctx, capability.MintRequest{ID: newRef(newSpace()), Hash: hash(), Rights: capability.Create})
	f.code("another space", err, fault.NotFound)
	_, err = f.MintUnderRoot(f.ctx, capability.MintRequest{ID: newRef(newSession()), Hash: hash(), Rights: capability.Read})
	f.code("a session", err, fault.BadArgument)
	_, err = f.MintUnderRoot(f.ctx, capability.MintRequest{ID: newRef(space), Hash: hash(), Rights: capability.Read})
	f.code("a right that is none of a space", err, fault.BadArgument)
}

// testLookups: sessions by their external ids, owners, what was minted from a ref.
func testLookups(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id, space := newSession(), newSpace()
	row := liveRow(id, space, 1)
	row.External = "outside " + id
	old, owner := grant(newRef(id), newRef(space)), grant(newRef(id), newRef(space))
	old.Owner, owner.Owner, old.Revoked, owner.Rights = true, true, 5, capability.OwnerRights
	first, second, dead, below := grant(newRef(id), owner.ID), grant(newRef(id), owner.ID), grant(newRef(id), owner.ID), grant(newRef(id), "")
	first.Created, second.Created, dead.Revoked = 1, 2, 5
	below.Parent = first.ID
	f.save(&session.Changes{Sessions: []*session.Row{row}, Grants: []*capability.Grant{old, owner, second, first, dead, below}}, id)

	younger := liveRow(newSession(), space, 1)
	younger.External = row.External
	gone := *younger
	gone.ID, gone.Life = newSession(), session.Deleted
	f.save(&session.Changes{Sessions: []*session.Row{younger, &gone}}, younger.ID, gone.ID)
	for _, q := range []struct {
		space, external string
		limit           int
		want            []string
	}{
		{space, row.External, 9, []string{younger.ID, id}}, {space, row.External, 1, []string{younger.ID}},
		{space, "another", 9, nil}, {newSpace(), row.External, 9, nil},
	} {
		found, err := f.FindExternal(f.ctx, q.space, q.external, q.limit)
		f.must("find", err)
		same(f, "the sessions of an external id", found, q.want)
	}
	got, err := f.OwnerOf(f.ctx, id)
	f.must("owner", err)
	same(f, "the owner", got, owner)
	if got, err := f.OwnerOf(f.ctx, newSession()); err != nil || got != nil {
		t.Errorf("the owner of nothing: %v, %v", got, err)
	}
	list, err := f.MintedFrom(f.ctx, owner.ID, 10)
	f.must("minted", err)
	same(f, "what was minted from it", list, []*capability.Grant{first, second})
	list, err = f.MintedFrom(f.ctx, owner.ID, 1)
	f.must("minted", err)
	same(f, "the first", list, []*capability.Grant{first})
}
