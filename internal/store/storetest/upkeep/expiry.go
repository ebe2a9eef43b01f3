package upkeep

// Refs that expire, and how often they are used.

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// testExpire: what has run out is noted once, and nothing else: no ref that was
// dead before, none that lives.
func testExpire(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	now := f.Load(&session.ReadSet{}).Now
	id, deleted, space := harness.NewSession(), harness.NewSession(), harness.NewSpace()
	row, gone := harness.LiveRow(id, space, 7), harness.LiveRow(deleted, space, 3)
	gone.Life = session.Deleted
	var grants []*capability.Grant
	mint := func(target string, expires int64, change func(*capability.Grant)) string {
		g := harness.Grant(harness.NewRef(target), "")
		g.Expires = expires
		if change != nil {
			change(g)
		}
		grants = append(grants, g)
		return g.ID
	}
	var want []string
	for i := range 5 {
		want = append(want, mint(id, now-int64(100-i), nil))
	}
	ofSpace := mint(space, now-50, func(g *capability.Grant) { g.Epoch = 0 })
	mint(id, now+1_000_000, nil)
	mint(id, 0, nil)
	mint(id, now-60, func(g *capability.Grant) { g.Revoked, g.Cut = now-70, 5 })
	mint(id, now-60, func(g *capability.Grant) { g.Epoch = 9 })
	mint(deleted, now-60, nil)
	f.Save(&session.Changes{Sessions: []*session.Row{row, gone}, Grants: grants}, id, deleted)

	for rounds := 0; ; rounds++ {
		more, err := f.AuditExpired(f.Ctx, 2)
		f.Must("expire", err)
		if !more {
			break
		}
		if rounds > len(grants) {
			t.Fatal("there is no end to it")
		}
	}
	rows := f.AuditOf(id)
	if len(rows) != len(want) {
		t.Fatalf("%d refs are noted, %d have expired", len(rows), len(want))
	}
	for i, r := range rows {
		if r.Act != capability.AuditExpiry || r.Ref != want[i] || r.At != now-int64(100-i) || r.Cursor != 7 || r.Actor != "owner/b" {
			t.Errorf("noted as %+v", r)
		}
	}
	if rows := f.AuditOf(space); len(rows) != 1 || rows[0].Ref != ofSpace || rows[0].Act != capability.AuditExpiry {
		t.Errorf("the ref of the space: %v", rows)
	}
	if rows := f.AuditOf(deleted); len(rows) != 0 {
		t.Errorf("the ref of a deleted session: %v", rows)
	}
	if more, err := f.AuditExpired(f.Ctx, 100); err != nil || more || len(f.AuditOf(id)) != len(want) {
		t.Errorf("again: %v, %v", more, err)
	}
}

// testExpireRace: servers that all look at once, beside commits and redemptions,
// note each ref once between them.
func testExpireRace(t *testing.T, fresh harness.Fresh) {
	db := fresh(t)
	stores := []*harness.Fixture{harness.Open(t, db)}
	for db.Shared && len(stores) < 3 {
		stores = append(stores, harness.Open(t, db))
	}
	f := stores[0]
	space, now := harness.NewSpace(), f.Load(&session.ReadSet{}).Now
	targets := []string{space}
	var grants []*capability.Grant
	var rows []*session.Row
	for range 5 {
		id := harness.NewSession()
		targets, rows = append(targets, id), append(rows, harness.LiveRow(id, space, 1))
	}
	for i := range 120 {
		g := harness.Grant(harness.NewRef(targets[i%len(targets)]), "")
		g.Expires = now - int64(i)
		if g.Target == space {
			g.Epoch = 0
		}
		grants = append(grants, g)
	}
	f.Save(&session.Changes{Sessions: rows, Grants: grants}, targets[1:]...)
	var all sync.WaitGroup
	for i := range 6 {
		f := stores[i%len(stores)]
		all.Go(func() {
			for more := true; more; {
				var err error
				if more, err = f.AuditExpired(f.Ctx, 10); err != nil {
					t.Errorf("expire: %v", err)
					return
				}
			}
		})
		all.Go(func() {
			for _, g := range grants[i*20 : i*20+20] {
				err := f.Redeem(f.Ctx, g.ID, "r", "", func(*session.Redemption) error { return nil })
				if err != nil {
					t.Errorf("redeem: %v", err)
				}
			}
		})
	}
	all.Wait()
	noted := map[string]int{}
	for _, target := range targets {
		for _, r := range f.AuditOf(target) {
			if r.Act == capability.AuditExpiry {
				noted[r.Ref]++
			}
		}
	}
	for _, g := range grants {
		if noted[g.ID] != 1 {
			t.Errorf("the expiry of %s is noted %d times", g.ID, noted[g.ID])
		}
	}
}

// testUses: what many add at once, in any order, adds up, and the last use is the latest.
func testUses(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	refs := []string{harness.NewRef(id), harness.NewRef(harness.NewSpace()), harness.NewRef(id), harness.NewRef(harness.NewSession())}
	c := &session.Changes{}
	for _, ref := range refs {
		c.Grants = append(c.Grants, harness.Grant(ref, ""))
	}
	f.Save(c, id)
	var all sync.WaitGroup
	for i := range 24 {
		var uses []capability.RefUses
		for j, ref := range refs[:3] {
			uses = append(uses, capability.RefUses{Ref: ref, Count: uint64(j + 1), LastUsed: int64(1000 + (i*7)%24)})
		}
		if i%2 == 1 {
			slices.Reverse(uses)
		}
		all.Go(func() {
			if err := f.AddUses(f.Ctx, harness.NewIdempotencyKey(), uses); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	f.Must("nothing", f.AddUses(f.Ctx, harness.NewIdempotencyKey(), nil))
	for j, ref := range refs {
		page, err := f.ReadTree(f.Ctx, "", session.TreeQuery{Under: ref, Limit: 1}, nil)
		f.Must("read tree", err)
		want := capability.RefUses{Ref: ref}
		if j < 3 {
			want.Count, want.LastUsed = uint64(24*(j+1)), 1023
		}
		harness.Same(f, "uses", capability.RefUses{Ref: page.Rows[0].Grant.ID, Count: page.Rows[0].Uses, LastUsed: page.Rows[0].LastUsed}, want)
	}
}

// testPageOnce: a page is there once, however often and by how many at once it is written;
// a writer's next one is another, and so is another writer's.
func testPageOnce(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	ref := harness.NewRef(id)
	f.Save(&session.Changes{Grants: []*capability.Grant{harness.Grant(ref, "")}}, id)
	one, other := harness.NewIdempotencyKey(), harness.NewIdempotencyKey()
	next := one
	next.Seq++
	for _, p := range []capability.IdempotencyKey{one, one, next, next, one, other} {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				// Audits and uses are written under names of their own.
				for _, err := range []error{
					f.AddUses(f.Ctx, p, []capability.RefUses{{Ref: ref, Count: 1, LastUsed: 5}}),
					f.Audit(f.Ctx, capability.IdempotencyKey{Writer: p.Writer + "a", Seq: p.Seq}, []*capability.AuditRow{{Target: id, Act: capability.AuditUse}}),
				} {
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	tree, err := f.ReadTree(f.Ctx, "", session.TreeQuery{Under: ref, Limit: 1}, nil)
	f.Must("read tree", err)
	if uses, rows := tree.Rows[0].Uses, f.AuditOf(id); uses != 3 || len(rows) != 3 {
		t.Errorf("three pages have %d uses and %d rows", uses, len(rows))
	}

	// One that failed was not written, and may be yet.
	gone, cancel := context.WithCancel(f.Ctx)
	cancel()
	failed := harness.NewIdempotencyKey()
	if err := f.AddUses(gone, failed, []capability.RefUses{{Ref: ref, Count: 1}}); err == nil {
		t.Error("who has given up has written")
	}
	f.Must("again", f.AddUses(f.Ctx, failed, []capability.RefUses{{Ref: ref, Count: 1}}))
	tree, err = f.ReadTree(f.Ctx, "", session.TreeQuery{Under: ref, Limit: 1}, nil)
	f.Must("read tree", err)
	if uses := tree.Rows[0].Uses; uses != 4 {
		t.Errorf("%d uses, with the one that failed first", uses)
	}
}
