//go:build unix

// Trees of refs: who sees them, a space's share and revoke, rotations.

package node

import (
	"slices"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/batchtest"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// node is a ref of a tree, as a peer is told.
type node struct {
	id, parent string
	dead       fault.Code
	cut        uint64
}

// refsOf gives the tree below under ("": the ref itself) by pages of so many, which go on
// after the last id, as clients of before ask.
func refsOf(t testing.TB, live *rpc.Ref, m rpc.Method, under string, limit uint32) (nodes []node, err error) {
	t.Helper()
	for after, next := "", " "; next != ""; {
		var page []node
		if page, next, err = refsAfter(t, live, m, under, after, limit); err != nil {
			return nodes, err
		}
		nodes = append(nodes, page...)
		after = nodes[len(nodes)-1].id
	}
	return nodes, nil
}

// refsAfter gives a page of a tree, and where the next one goes on.
func refsAfter(t testing.TB, live *rpc.Ref, m rpc.Method, under, after string, limit uint32) (nodes []node, next string, err error) {
	t.Helper()
	s, _, err := call(t, live, m, batchtest.StructSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		q, err := wire.Session_refs_Params(s).NewQuery()
		if err != nil {
			return err
		}
		q.SetLimit(limit)
		if err := q.SetUnder(under); err != nil {
			return err
		}
		return q.SetAfter(after)
	})
	if err != nil {
		return nil, "", err
	}
	r := wire.Session_refs_Results(s)
	next, _ = r.Next()
	if r.More() != (next != "") {
		t.Errorf("more is %v, and next %q", r.More(), next)
	}
	list, _ := r.Refs()
	for i := range list.Len() {
		g, _ := list.At(i).Grant()
		n := node{dead: fault.Code(g.Dead()), cut: g.Cut()}
		n.id, _ = g.Id()
		n.parent, _ = list.At(i).Parent()
		nodes = append(nodes, n)
	}
	return nodes, next, nil
}

// tree is refsOf, which is given, and in which each comes after its parent.
func tree(t testing.TB, live *rpc.Ref, m rpc.Method, under string, limit uint32) []string {
	t.Helper()
	nodes, err := refsOf(t, live, m, under, limit)
	if err != nil {
		t.Fatalf("refs: %v", err)
	}
	var ids []string
	for i, n := range nodes {
		if i > 0 && !slices.Contains(ids, n.parent) {
			t.Errorf("%s comes before its parent %s", n.id, n.parent)
		}
		ids = append(ids, n.id)
	}
	slices.Sort(ids)
	return ids
}

// refusalOf is the refusal in an answer, nil if there is none.
func refusalOf(has bool, r wire.Refusal, err error) *fault.Error {
	if !has || err != nil {
		return nil
	}
	return readRefusal(r)
}

// sharing mints ref from the live space.
func sharing(t testing.TB, space *rpc.Ref, ref capability.Ref, rights capability.Rights, actor string) *fault.Error {
	t.Helper()
	s, _, err := call(t, space, methods.SpaceShare.Method, methods.SpaceShare.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		w, err := wire.Space_share_Params(s).NewRef()
		if err != nil {
			return err
		}
		limits, err := w.NewLimits()
		if err != nil {
			return err
		}
		limits.SetRights(uint16(rights))
		hash := ref.Secret.Hash()
		if err := limits.SetActor(actor); err != nil {
			return err
		}
		if err := w.SetHash(hash[:]); err != nil {
			return err
		}
		return w.SetId(ref.ID)
	})
	if err != nil {
		t.Fatalf("share: %v", err)
	}
	r := wire.Space_share_Results(s)
	f, err := r.Refusal()
	return refusalOf(r.HasRefusal(), f, err)
}

// cutting revokes ref through the live space.
func cutting(t testing.TB, space *rpc.Ref, ref string) (died uint64, refused *fault.Error) {
	t.Helper()
	s, _, err := call(t, space, methods.SpaceRevoke.Method, methods.SpaceRevoke.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		return wire.Space_revoke_Params(s).SetRef(ref)
	})
	if err != nil {
		t.Fatalf("revoke: %v", err)
	}
	r := wire.Space_revoke_Results(s)
	f, err := r.Refusal()
	return r.Refs(), refusalOf(r.HasRefusal(), f, err)
}

// rotating puts ref in the place of the one of a live session or space.
func rotating(t testing.TB, live *rpc.Ref, m rpc.Method, ref capability.Ref) (cut uint64, refused *fault.Error) {
	t.Helper()
	s, _, err := call(t, live, m, batchtest.StructSize(0, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		hash := ref.Secret.Hash()
		p := wire.Session_rotate_Params(s)
		if err := p.SetHash(hash[:]); err != nil {
			return err
		}
		return p.SetRef(ref.ID)
	})
	if err != nil {
		t.Fatalf("rotate: %v", err)
	}
	if m == methods.SpaceRotate.Method {
		r := wire.Space_rotate_Results(s)
		f, err := r.Refusal()
		return 0, refusalOf(r.HasRefusal(), f, err)
	}
	r := wire.Session_rotate_Results(s)
	f, err := r.Refusal()
	return r.Cut(), refusalOf(r.HasRefusal(), f, err)
}

// under is a rig that makes its sessions under another space ref.
func (r *rig) under(ref capability.Ref) *rig {
	return &rig{t: r.t, server: r.server, owner: ref, stop: r.stop}
}

func refusedWith(t testing.TB, label string, got *fault.Error, want fault.Code) {
	t.Helper()
	switch {
	case want == fault.None && got != nil:
		t.Errorf("%s: %v", label, got)
	case want != fault.None && (got == nil || got.Code != want):
		t.Errorf("%s: %v, want %s", label, got, want)
	}
}

// A list of refs goes on through whatever is minted and revoked meanwhile, and says so
// where a rotation has moved the refs among which it stood.
func TestRefsChangeWhileTheyAreListed(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		one := p.share(m, "rights", []string{"read"})
		space := p.restore(r.owner)
		first, next, err := refsAfter(t, space, methods.SpaceRefs.Method, "", "", 3)
		if err != nil || len(first) != 3 || first[2].id != one.ID || next != "" {
			t.Fatalf("the tree: %v, next %q, %v", first, next, err)
		}
		two := p.share(m, "rights", []string{"read"})
		if first, next, err = refsAfter(t, space, methods.SpaceRefs.Method, "", "", 2); err != nil || first[1].id != m.owner.ID {
			t.Fatalf("the first page: %v, %v", first, err)
		}
		cut, _ := revoking(t, m.sess, one.ID)
		three := p.share(m, "rights", []string{"read"})
		rest, end, err := refsAfter(t, space, methods.SpaceRefs.Method, "", next, 10)
		if err != nil || end != "" || len(rest) != 3 {
			t.Fatalf("the rest: %v, next %q, %v", rest, end, err)
		}
		ids := []string{rest[0].id, rest[1].id, rest[2].id}
		for _, want := range []string{one.ID, two.ID, three.ID} {
			if !slices.Contains(ids, want) {
				t.Errorf("%s is not in %v", want, ids)
			}
		}
		for _, n := range rest {
			if n.id == one.ID && (n.dead != fault.Revoked || n.cut != cut) {
				t.Errorf("what was revoked between two pages: %+v, at %d", n, cut)
			}
		}
		_, next, err = refsAfter(t, space, methods.SpaceRefs.Method, "", "", 3)
		if err != nil {
			t.Fatal(err)
		}
		owner := m.owner.New(m.id)
		if _, refused := rotating(t, m.sess, methods.SessionRotate.Method, owner); refused != nil {
			t.Fatal(refused)
		}
		_, _, err = refsAfter(t, space, methods.SpaceRefs.Method, "", next, 10)
		wantCode(t, "after a rotation above the place", err, fault.Conflict)
		_, _, err = refsAfter(t, space, methods.SpaceRefs.Method, m.owner.ID, one.ID, 10)
		wantCode(t, "after a ref that is not there any more", err, fault.Conflict)
		if got := tree(t, space, methods.SpaceRefs.Method, "", 2); len(got) != 6 {
			t.Errorf("from the start: %v", got)
		}
	})
}

func TestRefsShowATreeToWhoMayCutIt(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		helper := p.share(m, "rights", []string{"read", "share", "revoke"}, "actor", "owner/helper")
		other := p.share(m, "rights", []string{"read"})
		hm := &made{id: m.id, owner: m.owner, sess: p.restore(helper), box: newBox()}
		hm.stream = p.open(hm.sess, hm.box)
		below := p.share(hm, "rights", []string{"read"})
		all := []string{m.owner.ID, helper.ID, other.ID, below.ID}
		slices.Sort(all)
		mine := []string{helper.ID, below.ID}
		slices.Sort(mine)

		owner := p.restore(m.owner)
		for _, limit := range []uint32{0, 1, 3} {
			if got := tree(t, owner, methods.SessionRefs.Method, "", limit); !slices.Equal(got, all) {
				t.Errorf("the owner's tree by %d: %v", limit, got)
			}
		}
		if got := tree(t, owner, methods.SessionRefs.Method, helper.ID, 0); !slices.Equal(got, mine) {
			t.Errorf("the helper's tree, as its owner sees it: %v", got)
		}
		if got := tree(t, hm.sess, methods.SessionRefs.Method, "", 0); !slices.Equal(got, mine) {
			t.Errorf("the helper's own tree: %v", got)
		}
		_, err := refsOf(t, hm.sess, methods.SessionRefs.Method, other.ID, 0)
		wantCode(t, "a tree beside one's own", err, fault.MissingRight)
		_, err = refsOf(t, hm.sess, methods.SessionRefs.Method, m.owner.ID, 0)
		wantCode(t, "the tree above", err, fault.MissingRight)
		_, err = refsOf(t, p.restore(other), methods.SessionRefs.Method, "", 0)
		wantCode(t, "without revoke", err, fault.MissingRight)
		stranger := r.create(p)
		_, err = refsOf(t, owner, methods.SessionRefs.Method, stranger.owner.ID, 0)
		wantCode(t, "another session's", err, fault.NotFound)

		cut, _ := revoking(t, owner, helper.ID)
		nodes, err := refsOf(t, owner, methods.SessionRefs.Method, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			dead := n.id == helper.ID || n.id == below.ID
			if dead != (n.dead == fault.Revoked) || dead && n.cut != cut {
				t.Errorf("after the revocation at %d: %+v", cut, n)
			}
		}
		_, err = refsOf(t, hm.sess, methods.SessionRefs.Method, "", 0)
		wantCode(t, "through a dead ref", err, fault.Revoked)
	})
}

func TestSpaceRefsAreSharedNarrowedAndRevoked(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		root := p.restore(r.owner)
		r.untilInUse(session.AllFeatures)
		team, guest, wide := r.owner.New(r.owner.Target()), r.owner.New(r.owner.Target()), r.owner.New(r.owner.Target())
		refusedWith(t, "share", sharing(t, root, team, capability.SpaceRights, "team"), fault.None)
		refusedWith(t, "the same again", sharing(t, root, team, capability.SpaceRights, "team"), fault.None)
		refusedWith(t, "the same id, other limits", sharing(t, root, team, capability.List, "team"), fault.AlreadyExists)
		refusedWith(t, "a session's right", sharing(t, root, wide, capability.Read, ""), fault.BadArgument)
		live := p.restore(team)
		refusedWith(t, "share on", sharing(t, live, guest, capability.List, "team/guest"), fault.None)
		refusedWith(t, "an actor beside", sharing(t, live, wide, capability.List, "boss"), fault.Widening)
		visitor := p.restore(guest)
		refusedWith(t, "without share", sharing(t, visitor, wide, capability.List, ""), fault.MissingRight)
		_, refused := cutting(t, visitor, guest.ID)
		refusedWith(t, "without revoke", refused, fault.MissingRight)
		_, refused = cutting(t, live, r.owner.ID)
		refusedWith(t, "the ref above", refused, fault.MissingRight)

		m := r.under(team).create(p)
		mine := r.create(p)
		reader := p.share(m, "rights", []string{"read"})
		want := []string{team.ID, guest.ID, m.owner.ID, reader.ID}
		slices.Sort(want)
		if got := tree(t, live, methods.SpaceRefs.Method, "", 2); !slices.Equal(got, want) {
			t.Errorf("the team's tree: %v, want %v", got, want)
		}
		if got := tree(t, root, methods.SpaceRefs.Method, m.owner.ID, 0); len(got) != 2 {
			t.Errorf("a session's tree through its space: %v", got)
		}
		_, err := refsOf(t, live, methods.SpaceRefs.Method, mine.owner.ID, 0)
		wantCode(t, "a session beside", err, fault.MissingRight)

		// A session's ref can be cut through the space too; its owner lives.
		k := newRecorder()
		defer p.subscribe(p.restore(reader), k, 0).Release()
		k.untilCursor(t, 2)
		died, refused := cutting(t, live, reader.ID)
		refusedWith(t, "cut a session's ref", refused, fault.None)
		if died != 1 {
			t.Errorf("%d died with a leaf", died)
		}
		k.until(t, "the end", func() bool { return k.ended != nil && k.ended.Code == fault.Revoked && k.ended.At == 3 })
		p.must(m.stream, m.batch(put(1)))

		died, refused = cutting(t, root, team.ID)
		refusedWith(t, "cut", refused, fault.None)
		if died != 3 {
			t.Errorf("%d died with the team, of 3 that lived", died)
		}
		died, refused = cutting(t, root, team.ID)
		refusedWith(t, "cut again", refused, fault.None)
		if died != 0 {
			t.Errorf("%d died twice", died)
		}
		_, err = refsOf(t, visitor, methods.SpaceRefs.Method, "", 0)
		wantCode(t, "the guest", err, fault.Revoked)
		if o := p.must(m.stream, m.batch(put(2))).outcomes[0]; o.Status != ledger.Denied || o.Reason != fault.Revoked {
			t.Errorf("the team's session: %+v", o)
		}
		if o := p.must(mine.stream, mine.batch(put(2))).outcomes[0]; o.Status != ledger.Applied {
			t.Errorf("a session beside: %+v", o)
		}
	})
}

// TestSpaceRevokeUnderFire: while sessions are made, appended to and followed
// under a space's ref, it is revoked. Nothing under it commits after its session's
// cut, none is delivered above it, and no session begins under it afterwards.
func TestSpaceRevokeUnderFire(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		root := p.restore(r.owner)
		r.untilInUse(session.AllFeatures)
		team := r.owner.New(r.owner.Target())
		refusedWith(t, "share", sharing(t, root, team, capability.SpaceRights, ""), fault.None)

		const writers = 6
		var mu sync.Mutex
		last := map[string]uint64{}  // session → cursor of its last op that applied
		made := map[string]*made{}   //
		begun := make(chan struct{}) // every writer has a session
		var first, gone sync.WaitGroup
		first.Add(writers)
		go func() { first.Wait(); close(begun) }()
		var followers []*recorder
		for range writers {
			q := r.dial()
			m := r.under(team).create(q)
			k := newRecorder()
			followers = append(followers, k)
			t.Cleanup(q.subscribe(q.restore(m.owner), k, 0).Release)
			mu.Lock()
			made[m.id] = m
			mu.Unlock()
			gone.Go(func() {
				for n := 0; ; n++ {
					o := q.must(m.stream, m.batch(put(n))).outcomes[0]
					if n == 20 {
						first.Done()
					}
					if o.Status == ledger.Denied {
						if o.Reason != fault.Revoked {
							t.Errorf("denied with %s", o.Reason)
						}
						return
					}
					mu.Lock()
					last[m.id] = o.Cursor
					mu.Unlock()
				}
			})
		}
		var late []string // sessions made beside the revocation
		maker := r.dial()
		gone.Go(func() {
			for {
				id, b := capability.SessionPrefix+ulid.Make().String(), newBox()
				owner := team.New(id)
				sess := maker.restore(team).Call(within(t), methods.SpaceCreate.Method, methods.SpaceCreate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
					params := wire.Space_create_Params(s)
					if err := params.SetSession(id); err != nil {
						return err
					}
					return params.SetOwner(owner.ID)
				}).Cap(0)
				o := maker.must(maker.open(sess, b), b.batch(id, op("create", "ref", owner.ID, "hash", hashText(owner.Secret)))).outcomes[0]
				if o.Status == ledger.Denied {
					return
				}
				late = append(late, owner.ID)
			}
		})
		<-begun
		died, refused := cutting(t, root, team.ID)
		refusedWith(t, "cut", refused, fault.None)
		gone.Wait()
		for _, k := range followers {
			k.until(t, "the end", func() bool { return k.ended != nil })
		}

		nodes, err := refsOf(t, root, methods.SpaceRefs.Method, team.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		cuts := map[string]uint64{}
		for _, n := range nodes {
			if n.dead != fault.Revoked {
				t.Errorf("%+v is alive", n)
			}
			cuts[n.id] = n.cut
		}
		if int(died) != 1+writers+len(late) || len(nodes) != int(died) {
			t.Errorf("%d died, %d are in the tree, of the team, %d writers and %d more sessions", died, len(nodes), writers, len(late))
		}
		for id, m := range made {
			if cut := cuts[m.owner.ID]; cut <= last[id] {
				t.Errorf("%s: an op applied at %d, the cut is at %d", id, last[id], cut)
			}
		}
		for _, k := range followers {
			k.mu.Lock()
			if k.ended.Code != fault.Revoked || k.cursors[len(k.cursors)-1] > k.ended.At {
				t.Errorf("a follower was ended with %v after event %d", k.ended, k.cursors[len(k.cursors)-1])
			}
			k.mu.Unlock()
		}
		t.Logf("%d refs died, %d of sessions made meanwhile", died, len(late))
	})
}

func TestRotateAnOwnersRef(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		helper := p.share(m, "rights", []string{"read", "append", "revoke"})
		k := newRecorder()
		old, held := p.restore(m.owner), p.restore(helper)
		defer p.subscribe(old, k, 0).Release()
		kept := newRecorder()
		defer p.subscribe(held, kept, 0).Release()
		next := m.owner.New(m.id)
		_, refused := rotating(t, held, methods.SessionRotate.Method, next)
		refusedWith(t, "through a helper", refused, fault.NotAnOwner)
		cut, refused := rotating(t, old, methods.SessionRotate.Method, next)
		refusedWith(t, "rotate", refused, fault.None)
		again, refused := rotating(t, p.restore(m.owner), methods.SessionRotate.Method, next)
		refusedWith(t, "the same again", refused, fault.None)
		if again != cut || cut == 0 {
			t.Errorf("cut at %d, then at %d", cut, again)
		}
		_, refused = rotating(t, old, methods.SessionRotate.Method, m.owner.New(m.id))
		refusedWith(t, "once more through the dead one", refused, fault.Revoked)
		k.until(t, "the old one's end", func() bool { return k.ended != nil && k.ended.Code == fault.Revoked && k.ended.At == cut })

		// Whoever made the session cannot come back by naming the new ref.
		if o := p.must(m.stream, m.batch(put(1))).outcomes[0]; o.Status != ledger.Denied {
			t.Errorf("the maker's object: %+v", o)
		}
		named := p.restore(r.owner).Call(within(t), methods.SpaceCreate.Method, methods.SpaceCreate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
			params := wire.Space_create_Params(s)
			if err := params.SetSession(m.id); err != nil {
				return err
			}
			return params.SetOwner(next.ID)
		}).Cap(0)
		if o := p.must(p.open(named, m.box), m.batch(put(2))).outcomes[0]; o.Status != ledger.Denied {
			t.Errorf("an object that names the new ref: %+v", o)
		}

		owner := p.restore(next)
		b := newBox()
		if o := p.must(p.open(owner, b), b.batch(m.id, put(3))).outcomes[0]; o.Status != ledger.Applied {
			t.Errorf("the new one: %+v", o)
		}
		kept.untilCursor(t, cut+1) // the helper goes on
		want := []string{next.ID, helper.ID}
		slices.Sort(want)
		if got := tree(t, owner, methods.SessionRefs.Method, "", 0); !slices.Equal(got, want) {
			t.Errorf("the new one's tree: %v, want %v", got, want)
		}

		// The space's root.
		root := p.restore(r.owner)
		r.untilInUse(session.AllFeatures)
		fresh := r.owner.New(r.owner.Target())
		team := r.owner.New(r.owner.Target())
		refusedWith(t, "share", sharing(t, root, team, capability.SpaceRights, ""), fault.None)
		_, refused = rotating(t, p.restore(team), methods.SpaceRotate.Method, fresh)
		refusedWith(t, "of a space's ref that is no root", refused, fault.NotAnOwner)
		for _, label := range []string{"rotate the root", "the same again"} {
			_, refused = rotating(t, p.restore(r.owner), methods.SpaceRotate.Method, fresh)
			refusedWith(t, label, refused, fault.None)
		}
		_, refused = rotating(t, root, methods.SpaceRotate.Method, r.owner.New(r.owner.Target()))
		refusedWith(t, "once more through the dead root", refused, fault.Revoked)
		want = []string{fresh.ID, team.ID, next.ID, helper.ID, m.owner.ID} // the owner that was rotated is below the root still
		slices.Sort(want)
		if got := tree(t, p.restore(fresh), methods.SpaceRefs.Method, "", 0); !slices.Equal(got, want) {
			t.Errorf("the new root's tree: %v, want %v", got, want)
		}
		refusedWith(t, "share through the new root", sharing(t, p.restore(fresh), r.owner.New(r.owner.Target()), capability.List, ""), fault.None)
		r.under(team).create(p)
	})
}

// What a tree shows of uses does not wait for their being written now and then.
func TestRefsShowWhatWasJustUsed(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.SweepInterval, c.AuditWindow = time.Hour, time.Hour })
	p := r.dial()
	m := r.create(p)
	ref := p.share(m, "rights", []string{"read"})
	reader := p.restore(ref)
	for range 3 {
		if _, _, err := call(t, reader, methods.SessionEvents.Method, methods.SessionEvents.Params, nil); err != nil {
			t.Fatal(err)
		}
	}
	s, _, err := call(t, m.sess, methods.SessionRefs.Method, methods.SessionRefs.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		_, err := wire.Session_refs_Params(s).NewQuery()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	list, _ := wire.Session_refs_Results(s).Refs()
	for i := range list.Len() {
		grant, _ := list.At(i).Grant()
		if id, _ := grant.Id(); id == ref.ID && (list.At(i).Uses() != 3 || list.At(i).LastUsed() == 0) {
			t.Errorf("used %d times, last at %d", list.At(i).Uses(), list.At(i).LastUsed())
		}
	}
}
