// Trees of refs: pages of them, rotations in them, and their end across sessions.

package authority

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
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// refTree is a space's root with two sessions below it, and their shares.
type refTree struct {
	*harness.Fixture
	space, root, a, b   string // a and b are sessions
	ownerA, ownerB      string
	helper, helpers, tb string // below ownerA, below helper, below ownerB
}

func newRefTree(t *testing.T, fresh harness.Fresh) *refTree {
	f := harness.Begin(t, fresh)
	g := &refTree{Fixture: f, space: harness.NewSpace(), a: harness.NewSession(), b: harness.NewSession()}
	g.root = harness.NewRef(g.space)
	g.ownerA, g.ownerB = harness.NewRef(g.a), harness.NewRef(g.b)
	g.helper, g.tb = harness.NewRef(g.a), harness.NewRef(g.b)
	g.helpers = harness.NewRef(g.a)
	f.Save(&session.Changes{
		Sessions: []*session.Row{harness.LiveRow(g.a, g.space, 7), harness.LiveRow(g.b, g.space, 9)},
		Grants: []*capability.Grant{harness.Grant(g.root, ""), harness.Grant(g.ownerA, g.root), harness.Grant(g.ownerB, g.root),
			harness.Grant(g.helper, g.ownerA), harness.Grant(g.helpers, g.helper), harness.Grant(g.tb, g.ownerB)},
	}, g.a, g.b)
	return g
}

// all are the ids of a tree, read by pages of so many.
func (g *refTree) all(under string, limit int) (ids []string) {
	g.Helper()
	return list(g.Fixture, under, limit, nil)
}

// list reads a tree by pages of so many; between is called with the last ref of each page
// that has a next one.
func list(f *harness.Fixture, under string, limit int, between func(last string)) (ids []string) {
	f.Helper()
	for after := ""; ; {
		page, err := f.ReadTree(f.Ctx, "", session.TreeQuery{Under: under, After: after, Limit: limit}, nil)
		f.Must("read tree", err)
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

func testReadTree(t *testing.T, fresh harness.Fresh) {
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
		harness.Same(g.Fixture, fmt.Sprintf("the tree by %d", limit), g.all(g.root, limit), want)
	}
	harness.Same(g.Fixture, "a session's", g.all(g.ownerA, 2), []string{g.ownerA, g.helper, g.helpers})
	harness.Same(g.Fixture, "a leaf's", g.all(g.helpers, 2), []string{g.helpers})
	harness.Same(g.Fixture, "nobody's", g.all(harness.NewRef(g.a), 2), nil)

	page, err := g.ReadTree(g.Ctx, g.a, session.TreeQuery{Under: g.helper, Limit: 10}, []string{g.ownerA})
	g.Must("read tree", err)
	harness.Same(g.Fixture, "the way up", page.Lineage, []string{g.helper, g.ownerA, g.root})
	if page.Row == nil || page.Grants[g.ownerA] == nil || page.Now == 0 {
		t.Errorf("the sight: %+v", page.Access)
	}
	if r := page.Rows[0]; r.Uses != 0 || r.LastUsed != 0 || r.Epoch != page.Row.Epoch || r.Grant.Parent != g.ownerA {
		t.Errorf("the helper's row, which nobody used: %+v of %+v", r, r.Grant)
	}
	// Clients of before go on after an id. What is not in the tree is no place to go on from,
	// nor is a place in another tree.
	first, err := g.ReadTree(g.Ctx, "", session.TreeQuery{Under: g.helper, Limit: 1}, nil)
	g.Must("read tree", err)
	for after, moved := range map[string]bool{g.helper: false, first.Next: true, g.tb: true, "x": true, "~": true, g.helper + "~": true} {
		page, err = g.ReadTree(g.Ctx, "", session.TreeQuery{Under: g.ownerA, After: after, Limit: 10}, nil)
		g.Must("read on", err)
		if page.Moved != moved || (len(page.Rows) != 0) == moved || len(page.Lineage) != 2 {
			t.Errorf("after %q: moved %v, %d rows, line %v", after, page.Moved, len(page.Rows), page.Lineage)
		}
	}
	_, err = g.ReadTree(g.Ctx, "", session.TreeQuery{Under: "a\x00", Limit: 10}, nil)
	g.WantCode("no text at all", err, fault.BadArgument)
}

// testReadTrees: whatever the tree is like, and however it is cut into pages, it is listed
// depth first, whole and once; so is what was there at the start while refs are minted and
// revoked; and a rotation is noticed where it moves the place at which a list stands.
func testReadTrees(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	d := rand.New(rand.NewPCG(seed.Of(t), 0))
	space := harness.NewSpace()
	a, b := harness.NewSession(), harness.NewSession()
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(a, space, 1), harness.LiveRow(b, space, 1)}}, a, b)
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
			g := harness.Grant(harness.NewRef(target), parent)
			g.Created = now
			return m.add(g)
		}
		var grants []*capability.Grant
		for range 2 + d.IntN(60) {
			grants = append(grants, mint(int64(1+d.IntN(9))))
		}
		f.Save(&session.Changes{Grants: grants}, a, b)
		for range 4 {
			under, limit := grants[d.IntN(len(grants))].ID, 1+d.IntN(8)
			harness.Same(f, fmt.Sprintf("round %d, the tree by %d", round, limit), list(f, under, limit, nil), m.below(under))
		}

		root, now := grants[0].ID, int64(10)
		before := m.below(root)
		got := list(f, root, 1+d.IntN(4), func(string) {
			now++
			c := &session.Changes{Grants: []*capability.Grant{mint(now)}}
			if d.IntN(3) == 0 {
				ref := m.refs[d.IntN(len(m.refs))].ID
				c.Revoke = []session.RevokedGrant{{ID: ref, By: root, At: now}}
			}
			f.Save(c, a, b)
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
		harness.Same(f, fmt.Sprintf("round %d, with what was minted", round), got, after)

		// A ref is put in the place of another one.
		old := m.refs[1+d.IntN(len(m.refs)-1)]
		under := m.below(root)
		last := under[d.IntN(len(under)-1)]
		page, err := f.ReadTree(f.Ctx, "", session.TreeQuery{Under: root, After: last, Limit: 1}, nil)
		f.Must("read tree", err)
		if page.Next == "" { // the one after it was the last
			continue
		}
		stands := page.Rows[0].Grant.ID
		inside := slices.Contains(lineIn(m, stands)[1:], old.ID)
		next := harness.Grant(harness.NewRef(old.Target), old.Parent)
		next.Created = now + 1
		f.Save(&session.Changes{Grants: []*capability.Grant{m.add(next)}, Rotate: []session.RotatedGrant{{ID: old.ID, By: next.ID, At: now + 1}}}, a, b)
		on, err := f.ReadTree(f.Ctx, "", session.TreeQuery{Under: root, After: page.Next, Limit: 1}, nil)
		f.Must("read on", err)
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
func testReadLargeTree(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	m := &treeModel{}
	root := m.add(harness.Grant(harness.NewRef(id), ""))
	const wide, deep = 20_000, 600
	last := root
	for i := range wide + deep {
		g := harness.Grant(harness.NewRef(id), root.ID)
		if i >= wide {
			g.Parent = last.ID
		}
		g.Created = int64(i / (wide / 4)) // many at once
		last = m.add(g)
	}
	f.Save(&session.Changes{Grants: m.refs})
	harness.Same(f, "a large tree", list(f, root.ID, 500, nil), m.below(root.ID))
}

// revoked gives the cuts of those of refs that are dead, by id.
func (g *refTree) revoked(refs ...string) map[string]uint64 {
	g.Helper()
	sight, err := g.ReadAccess(g.Ctx, "", refs)
	g.Must("look", err)
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
func testRevokeTree(t *testing.T, fresh harness.Fresh) {
	g := newRefTree(t, fresh)
	sub := harness.NewRef(g.space) // a narrower space ref, with session b's owner below it
	c := harness.NewSession()
	ownerC := harness.NewRef(c)
	g.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(c, g.space, 3)}, Grants: []*capability.Grant{harness.Grant(sub, g.root), harness.Grant(ownerC, sub)}}, c)

	died, published := g.revokeTree(sub)
	if died != 2 || len(published.Sessions) != 1 || published.Sessions[0].Row.ID != c || !published.Sessions[0].AuthChanged {
		t.Errorf("%d died, published %+v", died, published.Sessions)
	}
	harness.Same(g.Fixture, "the narrower one's", g.revoked(append(g.refs(), sub, ownerC)...), map[string]uint64{sub: 0, ownerC: 4})
	row, err := g.ReadRows(g.Ctx, []string{c})
	g.Must("read rows", err)
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
	harness.Same(g.Fixture, "the root's", g.revoked(append(g.refs(), sub, ownerC)...), map[string]uint64{
		g.root: 0, g.ownerA: 8, g.helper: 8, g.helpers: 8, g.ownerB: 10, g.tb: 10, sub: 0, ownerC: 4})
	audit := g.AuditOf(g.a)
	if len(audit) != 1 || audit[0].Act != capability.AuditRevoke || audit[0].Subject != g.root || audit[0].Cursor != 8 {
		t.Errorf("a session's audit: %+v", audit)
	}
	if audit := g.AuditOf(g.space); len(audit) != 3 {
		t.Errorf("the space's audit has %d rows", len(audit))
	}
}

// revokeTree is what the server does for Space.revoke.
func (g *refTree) revokeTree(ref string) (died uint64, published *session.Published) {
	g.Helper()
	err := g.Update(g.Ctx, func(tx session.Tx) error {
		rows, err := tx.Load(g.Ctx, &session.ReadSet{ExclusiveSpaces: []string{g.space}, Grants: []string{g.root}, Trees: []string{ref}})
		if err != nil {
			return err
		}
		died, published, err = maintain.RevokeTree(g.Ctx, tx, rows.Grants[g.root], ref, rows.Trees[ref], "")
		return err
	})
	g.Must("revoke tree", err)
	return died, published
}

// testRotate: a ref is replaced, its children stay alive under the new one, and
// an end of the new one is theirs.
func testRotate(t *testing.T, fresh harness.Fresh) {
	g := newRefTree(t, fresh)
	next := harness.NewRef(g.a)
	g.Save(&session.Changes{Grants: []*capability.Grant{harness.Grant(next, g.root)},
		Rotate: []session.RotatedGrant{{ID: g.ownerA, By: next, At: 5, Cut: 8}}}, g.a)
	harness.Same(g.Fixture, "dead", g.revoked(append(g.refs(), next)...), map[string]uint64{g.ownerA: 8})
	harness.Same(g.Fixture, "the new one's tree", g.all(next, 10), []string{next, g.helper, g.helpers})
	harness.Same(g.Fixture, "the old one's", g.all(g.ownerA, 10), []string{g.ownerA})

	// Rotated and revoked in one group: what was minted in it as well goes along.
	last, late := harness.NewRef(g.a), harness.NewRef(g.a)
	g.Save(&session.Changes{Grants: []*capability.Grant{harness.Grant(late, next), harness.Grant(last, g.root)},
		Rotate: []session.RotatedGrant{{ID: next, By: last, At: 6, Cut: 9}},
		Revoke: []session.RevokedGrant{{ID: last, By: last, At: 7, Cut: 10}}}, g.a)
	harness.Same(g.Fixture, "dead afterwards", g.revoked(g.ownerA, next, last, late, g.helper, g.helpers, g.ownerB),
		map[string]uint64{g.ownerA: 8, next: 9, last: 10, late: 10, g.helper: 10, g.helpers: 10})
}

// testRotateRoot: the rescue puts a new root in the place of the old one, once.
func testRotateRoot(t *testing.T, fresh harness.Fresh) {
	g := newRefTree(t, fresh)
	root := &capability.Grant{ID: harness.NewRef(g.space), Target: g.space, Hash: harness.Hash(), Rights: capability.SpaceRights, Label: "root"}
	old, err := g.RotateRoot(g.Ctx, root)
	g.Must("rotate the root", err)
	if old != g.root {
		t.Errorf("replaced %q, want %q", old, g.root)
	}
	old, err = g.RotateRoot(g.Ctx, root)
	g.Must("rotate the root again", err)
	if old != "" {
		t.Errorf("the same again replaced %q", old)
	}
	harness.Same(g.Fixture, "dead", g.revoked(append(g.refs(), root.ID)...), map[string]uint64{g.root: 0})
	if ids := g.all(root.ID, 10); len(ids) != 6 || ids[0] != root.ID {
		t.Errorf("the new root's tree: %v", ids)
	}
	if audit := g.AuditOf(g.space); len(audit) != 1 || audit[0].Act != capability.AuditRotate || audit[0].Subject != root.ID {
		t.Errorf("audit: %+v", audit)
	}
	root.Target = harness.NewSpace()
	root.ID = harness.NewRef(root.Target)
	_, err = g.RotateRoot(g.Ctx, root)
	g.WantCode("a space that is not there", err, fault.NotFound)
}

// testSpaceLock: who makes a session in a space waits for who claims it, and then
// sees what that one did. Sessions may be locked by a later load, once.
func testSpaceLock(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root := harness.Grant(harness.NewRef(harness.NewSpace()), "")
	_, _, err := f.Init(f.Ctx, root)
	f.Must("init", err)
	creates := make(chan error, 1)
	err = f.Update(f.Ctx, func(tx session.Tx) error {
		rows, err := tx.Load(f.Ctx, &session.ReadSet{ExclusiveSpaces: []string{root.Target}, Grants: []string{root.ID}, Trees: []string{root.ID}})
		if err != nil {
			return err
		}
		go func() {
			creates <- f.Update(f.Ctx, func(tx session.Tx) error {
				rows, err := tx.Load(f.Ctx, &session.ReadSet{Spaces: []string{root.Target}, Grants: []string{root.ID}})
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
		if _, _, err = maintain.RevokeTree(f.Ctx, tx, rows.Grants[root.ID], root.ID, rows.Trees[root.ID], ""); err != nil {
			return err
		}
		if _, err := tx.Load(f.Ctx, &session.ReadSet{ExclusiveSpaces: []string{harness.NewSpace()}}); err == nil {
			t.Error("a later load locked another space")
		}
		return nil
	})
	f.Must("revoke", err)
	f.Must("create", <-creates)
}
