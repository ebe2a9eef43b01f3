// Trees of refs: pages of them, rotations in them, and their end across sessions.

package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
)

// refTree is a space's root with two sessions below it, and their shares.
type refTree struct {
	*fixture
	space, root, a, b   string // a and b are sessions
	ownerA, ownerB      string
	helper, helpers, tb string // below ownerA, below helper, below ownerB
}

func newRefTree(t *testing.T, fresh Fresh) *refTree {
	f := begin(t, fresh)
	g := &refTree{fixture: f, space: newSpace(), a: newSession(), b: newSession()}
	g.root = newRef(g.space)
	g.ownerA, g.ownerB = newRef(g.a), newRef(g.b)
	g.helper, g.tb = newRef(g.a), newRef(g.b)
	g.helpers = newRef(g.a)
	f.save(&session.Changes{
		Sessions: []*session.Row{liveRow(g.a, g.space, 7), liveRow(g.b, g.space, 9)},
		Grants: []*capability.Grant{grant(g.root, ""), grant(g.ownerA, g.root), grant(g.ownerB, g.root),
			grant(g.helper, g.ownerA), grant(g.helpers, g.helper), grant(g.tb, g.ownerB)},
	}, g.a, g.b)
	return g
}

// all are the ids of a tree, read by pages of so many.
func (g *refTree) all(under string, limit int) (ids []string) {
	g.Helper()
	return g.list(under, limit, nil)
}

// list reads a tree by pages of so many; between is called with the last ref of each page
// that has a next one.
func (f *fixture) list(under string, limit int, between func(last string)) (ids []string) {
	f.Helper()
	for after := ""; ; {
		page, err := f.ReadTree(f.ctx, "", session.TreeQuery{Under: under, After: after, Limit: limit}, nil)
		f.must("read tree", err)
		if len(page.Rows) > limit || page.Moved || page.Next != "" && len(page.Rows) < limit {
			f.Fatalf("a page of %d has %d rows, moved %v, next %q", limit, len(page.Rows), page.Moved, page.Next)
		}
		for _, r := range page.Rows {
			ids = append(ids, r.Grant.ID)
		}
		if after = page.Next; after == "" {
			return ids
		}
		if between != nil {
			between(ids[len(ids)-1])
		}
	}
}

// treeModel is what there is in refs, as a model of them.
type treeModel struct {
	refs   []*capability.Grant
	parent map[string]string
}

// add mints below one of the forest's.
func (m *treeModel) add(g *capability.Grant) *capability.Grant {
	if m.parent == nil {
		m.parent = map[string]string{}
	}
	m.refs, m.parent[g.ID] = append(m.refs, g), g.Parent
	return g
}

// below are the ids from under on, depth first, children by their making.
func (m *treeModel) below(under string) []string {
	children := map[string][]*capability.Grant{}
	for _, g := range m.refs {
		children[m.parent[g.ID]] = append(children[m.parent[g.ID]], g)
	}
	var ids []string
	var walk func(id string)
	walk = func(id string) {
		ids = append(ids, id)
		slices.SortFunc(children[id], func(a, b *capability.Grant) int {
			return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID))
		})
		for _, c := range children[id] {
			walk(c.ID)
		}
	}
	walk(under)
	return ids
}

func testReadTree(t *testing.T, fresh Fresh) {
	g := newRefTree(t, fresh)
	siblings := []string{g.ownerA, g.ownerB} // made at once
	slices.Sort(siblings)
	want := []string{g.root}
	for _, owner := range siblings {
		if want = append(want, owner); owner == g.ownerA {
			want = append(want, g.helper, g.helpers)
		} else {
			want = append(want, g.tb)
		}
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		same(g.fixture, fmt.Sprintf("the tree by %d", limit), g.all(g.root, limit), want)
	}
	same(g.fixture, "a session's", g.all(g.ownerA, 2), []string{g.ownerA, g.helper, g.helpers})
	same(g.fixture, "a leaf's", g.all(g.helpers, 2), []string{g.helpers})
	same(g.fixture, "nobody's", g.all(newRef(g.a), 2), nil)

	page, err := g.ReadTree(g.ctx, g.a, session.TreeQuery{Under: g.helper, Limit: 10}, []string{g.ownerA})
	g.must("read tree", err)
	same(g.fixture, "the way up", page.Lineage, []string{g.helper, g.ownerA, g.root})
	if page.Row == nil || page.Grants[g.ownerA] == nil || page.Now == 0 {
		t.Errorf("the sight: %+v", page.Access)
	}
	if r := page.Rows[0]; r.Uses != 0 || r.LastUsed != 0 || r.Epoch != page.Row.Epoch || r.Grant.Parent != g.ownerA {
		t.Errorf("the helper's row, which nobody used: %+v of %+v", r, r.Grant)
	}
	// Clients of before go on after an id. What is not in the tree is no place to go on from,
	// nor is a place in another tree.
	first, err := g.ReadTree(g.ctx, "", session.TreeQuery{Under: g.helper, Limit: 1}, nil)
	g.must("read tree", err)
	for after, moved := range map[string]bool{g.helper: false, first.Next: true, g.tb: true, "x": true, "~": true, g.helper + "~": true} {
		page, err = g.ReadTree(g.ctx, "", session.TreeQuery{Under: g.ownerA, After: after, Limit: 10}, nil)
		g.must("read on", err)
		if page.Moved != moved || (len(page.Rows) != 0) == moved || len(page.Lineage) != 2 {
			t.Errorf("after %q: moved %v, %d rows, line %v", after, page.Moved, len(page.Rows), page.Lineage)
		}
	}
	_, err = g.ReadTree(g.ctx, "", session.TreeQuery{Under: "a\x00", Limit: 10}, nil)
	g.code("no text at all", err, fault.BadArgument)
}

// testReadTrees: whatever the tree is like, and however it is cut into pages, it is listed
// depth first, whole and once; so is what was there at the start while refs are minted and
// revoked; and a rotation is noticed where it moves the place at which a list stands.
func testReadTrees(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	d := rand.New(rand.NewPCG(seed.Of(t), 0))
	space := newSpace()
	a, b := newSession(), newSession()
	f.save(&session.Changes{Sessions: []*session.Row{liveRow(a, space, 1), liveRow(b, space, 1)}}, a, b)
	for round := range 6 {
		m := &treeModel{}
		mint := func(now int64) *capability.Grant {
			parent, target := "", space
			if n := len(m.refs); n > 0 {
				near := min(n, []int{n, 3, 1}[d.IntN(3)]) // wide trees, narrow ones and chains
				parent = m.refs[n-1-d.IntN(near)].ID
				if target = capability.Target(parent); target == space {
					target = []string{space, a, b}[d.IntN(3)]
				}
			}
			g := grant(newRef(target), parent)
			g.Created = now
			return m.add(g)
		}
		var grants []*capability.Grant
		for range 2 + d.IntN(60) {
			grants = append(grants, mint(int64(1+d.IntN(9))))
		}
		f.save(&session.Changes{Grants: grants}, a, b)
		for range 4 {
			under, limit := grants[d.IntN(len(grants))].ID, 1+d.IntN(8)
			same(f, fmt.Sprintf("round %d, the tree by %d", round, limit), f.list(under, limit, nil), m.below(under))
		}

		root, now := grants[0].ID, int64(10)
		before := m.below(root)
		got := f.list(root, 1+d.IntN(4), func(string) {
			now++
			c := &session.Changes{Grants: []*capability.Grant{mint(now)}}
			if d.IntN(3) == 0 {
				ref := m.refs[d.IntN(len(m.refs))].ID
				c.Revoke = []session.RevokedGrant{{ID: ref, By: root, At: now}}
			}
			f.save(c, a, b)
		})
		shown := map[string]int{}
		for _, id := range got {
			shown[id]++
		}
		for _, id := range before {
			if shown[id] != 1 {
				t.Errorf("round %d: %s, which was there, is listed %d times", round, id, shown[id])
			}
		}
		after := m.below(root)
		after = slices.DeleteFunc(after, func(id string) bool { return shown[id] == 0 })
		same(f, fmt.Sprintf("round %d, with what was minted", round), got, after)

		// A ref is put in the place of another one.
		old := m.refs[1+d.IntN(len(m.refs)-1)]
		under := m.below(root)
		last := under[d.IntN(len(under)-1)]
		page, err := f.ReadTree(f.ctx, "", session.TreeQuery{Under: root, After: last, Limit: 1}, nil)
		f.must("read tree", err)
		if page.Next == "" { // the one after it was the last
			continue
		}
		stands := page.Rows[0].Grant.ID
		inside := slices.Contains(lineIn(m, stands)[1:], old.ID)
		next := grant(newRef(old.Target), old.Parent)
		next.Created = now + 1
		f.save(&session.Changes{Grants: []*capability.Grant{m.add(next)}, Rotate: []session.RotatedGrant{{ID: old.ID, By: next.ID, At: now + 1}}}, a, b)
		on, err := f.ReadTree(f.ctx, "", session.TreeQuery{Under: root, After: page.Next, Limit: 1}, nil)
		f.must("read on", err)
		if on.Moved != inside {
			t.Errorf("round %d: after a rotation of %s the list that stands at %s has moved: %v", round, old.ID, stands, on.Moved)
		}
	}
}

// lineIn is the way up from a ref of a model.
func lineIn(m *treeModel, id string) (line []string) {
	for ; id != ""; id = m.parent[id] {
		line = append(line, id)
	}
	return line
}

// testReadLargeTree: a tree is listed a page at a time, however many refs it has.
func testReadLargeTree(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	m := &treeModel{}
	root := m.add(grant(newRef(id), ""))
	const wide, deep = 20_000, 600
	last := root
	for i := range wide + deep {
		g := grant(newRef(id), root.ID)
		if i >= wide {
			g.Parent = last.ID
		}
		g.Created = int64(i / (wide / 4)) // many at once
		last = m.add(g)
	}
	f.save(&session.Changes{Grants: m.refs})
	same(f, "a large tree", f.list(root.ID, 500, nil), m.below(root.ID))
}

// revoked gives the cuts of those of refs that are dead, by id.
func (g *refTree) revoked(refs ...string) map[string]uint64 {
	g.Helper()
	sight, err := g.ReadAccess(g.ctx, "", refs)
	g.must("look", err)
	got := map[string]uint64{}
	for _, ref := range refs {
		if grant := sight.Grants[ref]; grant.Revoked != 0 {
			got[ref] = grant.Cut
		}
	}
	return got
}

func (g *refTree) refs() []string {
	return []string{g.root, g.ownerA, g.ownerB, g.helper, g.helpers, g.tb}
}

// testRevokeTree: a space's ref dies with what is below it in every session, each
// at its own session's cut, and each session's subscribers are told.
func testRevokeTree(t *testing.T, fresh Fresh) {
	g := newRefTree(t, fresh)
	sub := newRef(g.space) // a narrower space ref, with session b's owner below it
	c := newSession()
	ownerC := newRef(c)
	g.save(&session.Changes{Sessions: []*session.Row{liveRow(c, g.space, 3)}, Grants: []*capability.Grant{grant(sub, g.root), grant(ownerC, sub)}}, c)

	died, published := g.revokeTree(sub)
	if died != 2 || len(published.Sessions) != 1 || published.Sessions[0].Row.ID != c || !published.Sessions[0].AuthChanged {
		t.Errorf("%d died, published %+v", died, published.Sessions)
	}
	same(g.fixture, "the narrower one's", g.revoked(append(g.refs(), sub, ownerC)...), map[string]uint64{sub: 0, ownerC: 4})
	row, err := g.ReadRows(g.ctx, []string{c})
	g.must("read rows", err)
	if row[c].Cursor != 4 || row[c].AuthGen == 0 {
		t.Errorf("the session's row: %+v", row[c])
	}
	died, _ = g.revokeTree(sub)
	if died != 0 {
		t.Errorf("%d died twice", died)
	}

	died, _ = g.revokeTree(g.root)
	if died != 6 {
		t.Errorf("%d died with the root, of 6", died)
	}
	same(g.fixture, "the root's", g.revoked(append(g.refs(), sub, ownerC)...), map[string]uint64{
		g.root: 0, g.ownerA: 8, g.helper: 8, g.helpers: 8, g.ownerB: 10, g.tb: 10, sub: 0, ownerC: 4})
	audit := g.audit(g.a)
	if len(audit) != 1 || audit[0].Act != capability.AuditRevoke || audit[0].Subject != g.root || audit[0].Cursor != 8 {
		t.Errorf("a session's audit: %+v", audit)
	}
	if audit := g.audit(g.space); len(audit) != 3 {
		t.Errorf("the space's audit has %d rows", len(audit))
	}
}

// revokeTree is what the server does for Space.revoke.
func (g *refTree) revokeTree(ref string) (died uint64, published *session.Published) {
	g.Helper()
	err := g.Update(g.ctx, func(tx session.Tx) error {
		rows, err := tx.Load(g.ctx, &session.ReadSet{ExclusiveSpaces: []string{g.space}, Grants: []string{g.root}, Trees: []string{ref}})
		if err != nil {
			return err
		}
		died, published, err = session.RevokeTree(g.ctx, tx, rows.Grants[g.root], ref, rows.Trees[ref], "")
		return err
	})
	g.must("revoke tree", err)
	return died, published
}

// testRotate: a ref is replaced, its children stay alive under the new one, and
// an end of the new one is theirs.
func testRotate(t *testing.T, fresh Fresh) {
	g := newRefTree(t, fresh)
	next := newRef(g.a)
	g.save(&session.Changes{Grants: []*capability.Grant{grant(next, g.root)},
		Rotate: []session.RotatedGrant{{ID: g.ownerA, By: next, At: 5, Cut: 8}}}, g.a)
	same(g.fixture, "dead", g.revoked(append(g.refs(), next)...), map[string]uint64{g.ownerA: 8})
	same(g.fixture, "the new one's tree", g.all(next, 10), []string{next, g.helper, g.helpers})
	same(g.fixture, "the old one's", g.all(g.ownerA, 10), []string{g.ownerA})

	// Rotated and revoked in one group: what was minted in it as well goes along.
	last, late := newRef(g.a), newRef(g.a)
	g.save(&session.Changes{Grants: []*capability.Grant{grant(late, next), grant(last, g.root)},
		Rotate: []session.RotatedGrant{{ID: next, By: last, At: 6, Cut: 9}},
		Revoke: []session.RevokedGrant{{ID: last, By: last, At: 7, Cut: 10}}}, g.a)
	same(g.fixture, "dead afterwards", g.revoked(g.ownerA, next, last, late, g.helper, g.helpers, g.ownerB),
		map[string]uint64{g.ownerA: 8, next: 9, last: 10, late: 10, g.helper: 10, g.helpers: 10})
}

// testRotateRoot: the rescue puts a new root in the place of the old one, once.
func testRotateRoot(t *testing.T, fresh Fresh) {
	g := newRefTree(t, fresh)
	root := &capability.Grant{ID: newRef(g.space), Target: g.space, Hash: hash(), Rights: capability.SpaceRights, Label: "root"}
	old, err := g.RotateRoot(g.ctx, root)
	g.must("rotate the root", err)
	if old != g.root {
		t.Errorf("replaced %q, want %q", old, g.root)
	}
	old, err = g.RotateRoot(g.ctx, root)
	g.must("rotate the root again", err)
	if old != "" {
		t.Errorf("the same again replaced %q", old)
	}
	same(g.fixture, "dead", g.revoked(append(g.refs(), root.ID)...), map[string]uint64{g.root: 0})
	if ids := g.all(root.ID, 10); len(ids) != 6 || ids[0] != root.ID {
		t.Errorf("the new root's tree: %v", ids)
	}
	if audit := g.audit(g.space); len(audit) != 1 || audit[0].Act != capability.AuditRotate || audit[0].Subject != root.ID {
		t.Errorf("audit: %+v", audit)
	}
	root.Target = newSpace()
	root.ID = newRef(root.Target)
	_, err = g.RotateRoot(g.ctx, root)
	g.code("a space that is not there", err, fault.NotFound)
}

// testSpaceLock: who makes a session in a space waits for who claims it, and then
// sees what that one did. Sessions may be locked by a later load, once.
func testSpaceLock(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	root := grant(newRef(newSpace()), "")
	_, _, err := f.Init(f.ctx, root)
	f.must("init", err)
	creates := make(chan error, 1)
	err = f.Update(f.ctx, func(tx session.Tx) error {
		rows, err := tx.Load(f.ctx, &session.ReadSet{ExclusiveSpaces: []string{root.Target}, Grants: []string{root.ID}, Trees: []string{root.ID}})
		if err != nil {
			return err
		}
		go func() {
			creates <- f.Update(f.ctx, func(tx session.Tx) error {
				rows, err := tx.Load(f.ctx, &session.ReadSet{Spaces: []string{root.Target}, Grants: []string{root.ID}})
				if err == nil && rows.Grants[root.ID].Revoked == 0 {
					err = fmt.Errorf("the root was alive beside a claim under which it was revoked")
				}
				return err
			})
		}()
		select {
		case err := <-creates:
			return fmt.Errorf("it did not wait: %w", err)
		case <-time.After(50 * time.Millisecond): // long enough to get there; what is tested holds without it
		}
		if _, _, err = session.RevokeTree(f.ctx, tx, rows.Grants[root.ID], root.ID, rows.Trees[root.ID], ""); err != nil {
			return err
		}
		if _, err := tx.Load(f.ctx, &session.ReadSet{ExclusiveSpaces: []string{newSpace()}}); err == nil {
			t.Error("a later load locked another space")
		}
		return nil
	})
	f.must("revoke", err)
	f.must("create", <-creates)
}
