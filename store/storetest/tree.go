// Trees of refs: pages of them, rotations in them, and their end across sessions.

package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// grove is a space's root with two sessions below it, and their shares.
type grove struct {
	*fixture
	space, root, a, b   string // a and b are sessions
	ownerA, ownerB      string
	helper, helpers, tb string // below ownerA, below helper, below ownerB
}

func plant(t *testing.T, fresh Fresh) *grove {
	f := begin(t, fresh)
	g := &grove{fixture: f, space: newSpace(), a: newSession(), b: newSession()}
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
func (g *grove) all(under string, limit int) (ids []string) {
	g.Helper()
	after := ""
	for more := true; more; {
		page, err := g.ReadTree(g.ctx, "", under, after, limit, nil)
		g.must("read tree", err)
		if len(page.Rows) > limit || page.Cut {
			g.Fatalf("a page of %d has %d rows, cut %v", limit, len(page.Rows), page.Cut)
		}
		for _, r := range page.Rows {
			ids = append(ids, r.Grant.ID)
			after = r.Grant.ID
		}
		more = page.More
	}
	return ids
}

func testReadTree(t *testing.T, fresh Fresh) {
	g := plant(t, fresh)
	var want []string // by depth, then by id
	for _, level := range [][]string{{g.root}, {g.ownerA, g.ownerB}, {g.helper, g.tb}, {g.helpers}} {
		slices.Sort(level)
		want = append(want, level...)
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		same(g.fixture, fmt.Sprintf("the tree by %d", limit), g.all(g.root, limit), want)
	}
	same(g.fixture, "a session's", g.all(g.ownerA, 2), []string{g.ownerA, g.helper, g.helpers})
	same(g.fixture, "a leaf's", g.all(g.helpers, 2), []string{g.helpers})
	same(g.fixture, "nobody's", g.all(newRef(g.a), 2), nil)

	page, err := g.ReadTree(g.ctx, g.a, g.helper, "", 10, []string{g.ownerA})
	g.must("read tree", err)
	same(g.fixture, "the way up", page.Line, []string{g.helper, g.ownerA, g.root})
	if page.Row == nil || page.Grants[g.ownerA] == nil || page.Now == 0 {
		t.Errorf("the sight: %+v", page.Sight)
	}
	if r := page.Rows[0]; r.Uses != 0 || r.Last != 0 || r.Epoch != page.Row.Epoch || r.Grant.Parent != g.ownerA {
		t.Errorf("the helper's row, which nobody used: %+v of %+v", r, r.Grant)
	}
	// What is not in the tree is no place to go on from.
	page, err = g.ReadTree(g.ctx, "", g.ownerA, g.tb, 10, nil)
	g.must("read on from a stranger", err)
	if len(page.Rows) != 0 {
		t.Errorf("after a ref of another tree: %d rows", len(page.Rows))
	}
	_, err = g.ReadTree(g.ctx, "", "a\x00", "", 10, nil)
	g.code("no text at all", err, fault.BadArgument)
}

// testReadTreeBound: one look goes through so many refs and no further.
func testReadTreeBound(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	root := newRef(id)
	grants := []*capability.Grant{grant(root, "")}
	for range session.TreeMax {
		grants = append(grants, grant(newRef(id), root))
	}
	f.save(&session.Changes{Grants: grants[:session.TreeMax]})
	page, err := f.ReadTree(f.ctx, "", root, "", 5, nil)
	f.must("read tree", err)
	if page.Cut || !page.More || len(page.Rows) != 5 {
		t.Errorf("as many as may be: cut %v, more %v, %d rows", page.Cut, page.More, len(page.Rows))
	}
	f.save(&session.Changes{Grants: grants[session.TreeMax:]})
	page, err = f.ReadTree(f.ctx, "", root, "", 5, nil)
	f.must("read tree", err)
	if !page.Cut {
		t.Error("one more than may be is not told")
	}
}

// revoked gives the cuts of those of refs that are dead, by id.
func (g *grove) revoked(refs ...string) map[string]uint64 {
	g.Helper()
	sight, err := g.Look(g.ctx, "", refs)
	g.must("look", err)
	got := map[string]uint64{}
	for _, ref := range refs {
		if grant := sight.Grants[ref]; grant.Revoked != 0 {
			got[ref] = grant.Cut
		}
	}
	return got
}

func (g *grove) refs() []string {
	return []string{g.root, g.ownerA, g.ownerB, g.helper, g.helpers, g.tb}
}

// testRevokeTree: a space's ref dies with what is below it in every session, each
// at its own session's cut, and each session's subscribers are told.
func testRevokeTree(t *testing.T, fresh Fresh) {
	g := plant(t, fresh)
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
func (g *grove) revokeTree(ref string) (died uint64, published *session.Published) {
	g.Helper()
	err := g.Update(g.ctx, func(tx session.Tx) error {
		rows, err := tx.Load(g.ctx, &session.Want{Claims: []string{g.space}, Grants: []string{g.root}, Trees: []string{ref}})
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
	g := plant(t, fresh)
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
	g := plant(t, fresh)
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
		rows, err := tx.Load(f.ctx, &session.Want{Claims: []string{root.Target}, Grants: []string{root.ID}, Trees: []string{root.ID}})
		if err != nil {
			return err
		}
		go func() {
			creates <- f.Update(f.ctx, func(tx session.Tx) error {
				rows, err := tx.Load(f.ctx, &session.Want{Spaces: []string{root.Target}, Grants: []string{root.ID}})
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
		if _, err := tx.Load(f.ctx, &session.Want{Claims: []string{newSpace()}}); err == nil {
			t.Error("a later load locked another space")
		}
		return nil
	})
	f.must("revoke", err)
	f.must("create", <-creates)
}
