// Streams, redemptions, revocation and the first start.

package authority

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

func testRedeem(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	row, g := harness.LiveRow(id, harness.NewSpace(), 4), harness.Grant(harness.NewRef(id), "")
	root := harness.Grant(harness.NewRef(harness.NewSpace()), "")
	f.Save(&session.Changes{Sessions: []*session.Row{row}, Grants: []*capability.Grant{g, root}}, id)

	var seen *session.Redemption
	accept := func(r *session.Redemption) error { seen = r; return nil }
	used := func(ref string) uint32 {
		t.Helper()
		sight, err := f.ReadAccess(f.Ctx, "", []string{ref})
		f.Must("look", err)
		return sight.Grants[ref].Redemptions
	}

	f.Must("redeem", f.Redeem(f.Ctx, g.ID, "r1", "192.0.2.1", accept))
	if seen.AlreadyCounted || seen.Row == nil || seen.Row.Cursor != 4 || seen.Grant.ID != g.ID || seen.Grants[g.ID] == nil || seen.Now == 0 {
		t.Errorf("the first redemption saw %+v", seen)
	}
	f.Must("redeem again", f.Redeem(f.Ctx, g.ID, "r1", "192.0.2.1", accept))
	if !seen.AlreadyCounted || seen.Grant.Redemptions != 1 {
		t.Errorf("the same redemption saw %+v", seen)
	}
	f.Must("redeem anew", f.Redeem(f.Ctx, g.ID, "r2", "192.0.2.1", accept))
	if got := used(g.ID); got != 2 {
		t.Errorf("used %d times, want 2", got)
	}
	no := fault.Exhausted.With("no")
	if err := f.Redeem(f.Ctx, g.ID, "r3", "192.0.2.1", func(*session.Redemption) error { return no }); err != error(no) {
		t.Errorf("a refused redemption: %v", err)
	}
	if got := used(g.ID); got != 2 {
		t.Errorf("a refused redemption was counted: %d", got)
	}

	f.Must("redeem a space's ref", f.Redeem(f.Ctx, root.ID, "r1", "192.0.2.1", accept))
	if seen.Row != nil || seen.Grant.ID != root.ID {
		t.Errorf("a space's redemption saw %+v", seen)
	}
	unknown := errors.New("unknown")
	err := f.Redeem(f.Ctx, harness.NewRef(id), "r1", "192.0.2.1", func(r *session.Redemption) error {
		if r.Grant != nil {
			t.Errorf("a grant nobody made: %+v", r.Grant)
		}
		return unknown
	})
	if err != unknown {
		t.Errorf("an unknown ref: %v", err)
	}
	f.Must("nobody's ref, admitted", f.Redeem(f.Ctx, harness.NewRef(id), "r1", "192.0.2.1", accept))

	rows := f.AuditOf(id)
	if len(rows) != 2 || rows[0].Act != capability.AuditRedeem || rows[0].Ref != g.ID || rows[0].Actor != g.Actor || rows[0].Cursor != 4 || rows[0].Peer != "192.0.2.1" {
		t.Errorf("audit of two redemptions: %v", rows)
	}
}

// testRedeemLimit: of many at once exactly as many as the ref allows.
func testRedeemLimit(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	g := harness.Grant(harness.NewRef(id), "")
	g.MaxRedemptions = 5
	f.Save(&session.Changes{Grants: []*capability.Grant{g}}, id)
	admit := func(r *session.Redemption) error {
		if !r.AlreadyCounted && r.Grant.Redemptions >= r.Grant.MaxRedemptions {
			return fault.Exhausted.With("used up")
		}
		return nil
	}
	const many = 16
	errs := make([]error, many)
	var all sync.WaitGroup
	for i := range many {
		// Every id twice: the second is free if the first was counted.
		all.Go(func() { errs[i] = f.Redeem(f.Ctx, g.ID, fmt.Sprintf("r%d", i/2), "192.0.2.1", admit) })
	}
	all.Wait()
	admitted := map[int]int{}
	for i, err := range errs {
		if err == nil {
			admitted[i/2]++
		} else {
			f.WantCode("refused", err, fault.Exhausted)
		}
	}
	if len(admitted) != 5 {
		t.Errorf("%d redemption ids were admitted, want 5: %v", len(admitted), admitted)
	}
	sight, err := f.ReadAccess(f.Ctx, id, []string{g.ID})
	f.Must("look", err)
	if sight.Grants[g.ID].Redemptions != 5 {
		t.Errorf("used %d times, want 5", sight.Grants[g.ID].Redemptions)
	}
}

// testRedeemWithoutLimit: of a ref without a limit so many redemptions are kept and no more; of
// one below a limit, all that there may be.
func testRedeemWithoutLimit(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	free, top := harness.Grant(harness.NewRef(id), ""), harness.Grant(harness.NewRef(id), "")
	free.Redemptions = capability.MaxCountedRedemptions - 2
	top.MaxRedemptions, top.Redemptions = 2*capability.MaxCountedRedemptions, capability.MaxCountedRedemptions
	below := harness.Grant(harness.NewRef(id), top.ID)
	below.Redemptions = capability.MaxCountedRedemptions
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), 4)}, Grants: []*capability.Grant{free, top, below}}, id)
	redeem := func(ref, redemption string) (seen *session.Redemption) {
		t.Helper()
		f.Must("redeem", f.Redeem(f.Ctx, ref, redemption, "192.0.2.1", func(r *session.Redemption) error { seen = r; return nil }))
		return seen
	}
	for _, c := range []struct {
		ref, redemption         string
		before                  uint32
		known, uncounted, audit bool
	}{
		{free.ID, "a", 998, false, false, true},
		{free.ID, "b", 999, false, false, true},
		{free.ID, "c", 1000, false, true, false},
		{free.ID, "c", 1000, false, true, false}, // no row is there of it
		{free.ID, "a", 1000, true, false, false},
		{below.ID, "a", 1000, false, false, true},
		{below.ID, "a", 1001, true, false, false},
	} {
		rows := len(f.AuditOf(id))
		seen := redeem(c.ref, c.redemption)
		if seen.Grant.Redemptions != c.before || seen.AlreadyCounted != c.known || seen.Uncounted != c.uncounted || (len(f.AuditOf(id)) > rows) != c.audit {
			t.Errorf("%+v: redeemed %d times before, known %t, uncounted %t, %d audit rows after %d", c, seen.Grant.Redemptions, seen.AlreadyCounted, seen.Uncounted, len(f.AuditOf(id)), rows)
		}
	}
	no := fault.Exhausted.With("no")
	if err := f.Redeem(f.Ctx, free.ID, "d", "192.0.2.1", func(*session.Redemption) error { return no }); err != error(no) {
		t.Errorf("one that is refused: %v", err)
	}
}

// testRedeemLimitAbove: what is minted from a ref uses that one's redemptions up.
func testRedeemLimitAbove(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	top := harness.Grant(harness.NewRef(id), "")
	middle, other := harness.Grant(harness.NewRef(id), top.ID), harness.Grant(harness.NewRef(id), top.ID)
	below := harness.Grant(harness.NewRef(id), middle.ID)
	top.MaxRedemptions, below.MaxRedemptions = 5, 4
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), 1)}, Grants: []*capability.Grant{top, middle, other, below}}, id)
	admit := func(r *session.Redemption) error {
		if refused := capability.CheckRedemption(r.Grant, r.LimitedAncestors, r.AlreadyCounted); refused != nil {
			return refused
		}
		return nil
	}
	var all sync.WaitGroup
	errs := map[string]*[8]error{top.ID: {}, other.ID: {}, below.ID: {}}
	for ref, list := range errs {
		for i := range list {
			all.Go(func() { list[i] = f.Redeem(f.Ctx, ref, fmt.Sprintf("r%d of %s", i, ref), "", admit) })
		}
	}
	all.Wait()
	admitted := 0
	for _, list := range errs {
		for _, err := range list {
			if err == nil {
				admitted++
			} else {
				f.WantCode("refused", err, fault.Exhausted)
			}
		}
	}
	sight, err := f.ReadAccess(f.Ctx, id, []string{top.ID, middle.ID, below.ID})
	f.Must("look", err)
	if used := sight.Grants[top.ID].Redemptions; admitted != 5 || used != 5 || sight.Grants[middle.ID].Redemptions != 0 || sight.Grants[below.ID].Redemptions > 4 {
		t.Errorf("%d redemptions were admitted, %d counted at the top, %d in the middle, %d below", admitted, used, sight.Grants[middle.ID].Redemptions, sight.Grants[below.ID].Redemptions)
	}
	for _, ref := range []string{top.ID, below.ID, other.ID} {
		f.WantCode("one more", f.Redeem(f.Ctx, ref, "one more", "", admit), fault.Exhausted)
	}
}

// testRedeemCost: who is refused, and who comes back, has nobody's line of refs
// read: it may be long, and whoever knows an id can ask.
func testRedeemCost(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	top := harness.Grant(harness.NewRef(id), "")
	below := harness.Grant(harness.NewRef(id), top.ID)
	top.MaxRedemptions, below.MaxRedemptions = 5, 4
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), 1)}, Grants: []*capability.Grant{top, below}}, id)
	var above []int
	redeem := func(answer error) error {
		above = nil
		return f.Redeem(f.Ctx, below.ID, "r", "", func(r *session.Redemption) error {
			above = append(above, len(r.LimitedAncestors))
			return answer
		})
	}
	f.WantCode("a wrong secret", redeem(fault.UnknownRef.With("wrong")), fault.UnknownRef)
	harness.Same(f, "refs above, as seen by who is refused", above, []int{0})
	f.Must("redeem", redeem(nil))
	harness.Same(f, "as seen by who is counted", above, []int{0, 1})
	f.Must("redeem again", redeem(nil))
	harness.Same(f, "as seen by who comes back", above, []int{0})
}

// tree makes root → a → (a1 → a11, a2), root → b, and returns the ids by name.
func tree(f *harness.Fixture, id string) map[string]string {
	parents := [][2]string{{"root", ""}, {"a", "root"}, {"a1", "a"}, {"a11", "a1"}, {"a2", "a"}, {"b", "root"}}
	ids := map[string]string{}
	var grants []*capability.Grant
	for _, p := range parents {
		ids[p[0]] = harness.NewRef(id)
		grants = append(grants, harness.Grant(ids[p[0]], ids[p[1]]))
	}
	f.Save(&session.Changes{Grants: grants}, id)
	return ids
}

func testRevoke(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, other := harness.NewSession(), harness.NewSession()
	ids, others := tree(f, id), tree(f, other)
	cuts := func(ids map[string]string) map[string]uint64 {
		t.Helper()
		var all []string
		for _, ref := range ids {
			all = append(all, ref)
		}
		sight, err := f.ReadAccess(f.Ctx, id, all)
		f.Must("look", err)
		got := map[string]uint64{}
		for name, ref := range ids {
			g := sight.Grants[ref]
			if (g.Revoked != 0) != (g.RevokedBy != "") {
				t.Errorf("%s: revoked %d by %q", name, g.Revoked, g.RevokedBy)
			}
			if g.Revoked != 0 {
				got[name] = g.Cut
			}
		}
		return got
	}
	revoke := func(name string, cut uint64) session.RevokedGrant {
		return session.RevokedGrant{ID: ids[name], By: ids["root"], At: 100 + int64(cut), Cut: cut}
	}
	f.Save(&session.Changes{Revoke: []session.RevokedGrant{revoke("a1", 5)}}, id)
	harness.Same(f, "after a1", cuts(ids), map[string]uint64{"a1": 5, "a11": 5})
	// What is dead already keeps its cut; a ref minted in the same group dies too.
	late := harness.NewRef(id)
	f.Save(&session.Changes{Grants: []*capability.Grant{harness.Grant(late, ids["a2"])},
		Revoke: []session.RevokedGrant{revoke("a", 9), revoke("b", 10), revoke("a", 11)}}, id)
	ids["late"] = late
	harness.Same(f, "after a and b", cuts(ids), map[string]uint64{"a1": 5, "a11": 5, "a": 9, "a2": 9, "late": 9, "b": 10})
	harness.Same(f, "another session's", cuts(others), map[string]uint64{})
	f.Save(&session.Changes{Revoke: []session.RevokedGrant{{ID: harness.NewRef(id), By: "x", At: 1, Cut: 1}}}, id) // nobody's: nothing
	sight, err := f.ReadAccess(f.Ctx, id, []string{ids["late"]})
	f.Must("look", err)
	if g := sight.Grants[ids["late"]]; g.Revoked != 109 || g.RevokedBy != ids["root"] {
		t.Errorf("revoked: %+v", g)
	}
}

func testLineages(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	ids := tree(f, id)
	// The session's owner ref comes from the space's, in another target.
	space := harness.Grant(harness.NewRef(harness.NewSpace()), "")
	owner := harness.Grant(harness.NewRef(id), space.ID)
	child := harness.Grant(harness.NewRef(id), owner.ID)
	f.Save(&session.Changes{Grants: []*capability.Grant{space, owner, child}}, id)
	for want, w := range map[*session.ReadSet][]string{
		{Lineages: []string{ids["a11"]}}:                              {ids["a11"], ids["a1"], ids["a"], ids["root"]},
		{Lineages: []string{ids["root"]}}:                             {ids["root"]},
		{Lineages: []string{ids["a2"], ids["b"]}}:                     {ids["a2"], ids["a"], ids["b"], ids["root"]},
		{Lineages: []string{child.ID}}:                                {child.ID, owner.ID, space.ID},
		{Lineages: []string{harness.NewRef(id)}}:                      {},
		{Lineages: []string{ids["a"]}, Grants: []string{ids["root"]}}: {ids["a"], ids["root"]},
	} {
		rows := f.Load(want)
		got, expected := map[string]bool{}, map[string]bool{}
		for ref := range rows.Grants {
			got[ref] = true
		}
		for _, ref := range w {
			expected[ref] = true
		}
		harness.Same(f, fmt.Sprintf("lineage of %v", want.Lineages), got, expected)
	}
}
