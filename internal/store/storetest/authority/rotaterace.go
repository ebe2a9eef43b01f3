// A space's rotation beside what its sessions do to their own refs.

package authority

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// testRotateRootRace: while owners rotate their sessions' refs, several sessions
// in a group and in any order, the space's root is rotated again and again.
// Nobody is refused for another's sake, and in the end every owner's ref is below
// the root that lives: so whoever has that can still end it.
func testRotateRootRace(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	space := harness.NewSpace()
	root := harness.NewRef(space)
	const sessions = 8
	var ids [sessions]string
	var owners [sessions]string
	changes := &session.Changes{Grants: []*capability.Grant{harness.Grant(root, "")}}
	for i := range ids {
		ids[i] = harness.NewSession()
		owners[i] = harness.NewRef(ids[i])
		owner := harness.Grant(owners[i], root)
		owner.Owner, owner.Rights = true, capability.SessionRights
		changes.Sessions = append(changes.Sessions, harness.LiveRow(ids[i], space, 1))
		changes.Grants = append(changes.Grants, owner)
	}
	f.Save(changes, ids[:]...)

	end := time.Now().Add(time.Second)
	var all sync.WaitGroup
	for w := range 2 { // each has half of the sessions
		all.Go(func() {
			mine := []int{w, w + 2, w + 4, w + 6}
			for n := 0; time.Now().Before(end); n++ {
				slices.Reverse(mine)
				var group []decide.Submission
				for _, i := range mine {
					to := harness.NewRef(ids[i])
					group = append(group, decide.Submission{Batch: ledger.Batch{Session: ids[i]}, Ref: owners[i],
						Direct: &decide.Direct{Rotate: &decide.Rotation{ID: to, Hash: harness.Hash()}}})
					owners[i] = to
				}
				err := f.Update(f.Ctx, func(tx session.Tx) error {
					answers, _, err := decide.Commit(f.Ctx, tx, group, decide.DefaultConfig())
					for _, a := range answers {
						if a.Err != nil {
							return fmt.Errorf("refused: %w", a.Err)
						}
					}
					return err
				})
				if err != nil {
					t.Errorf("the sessions' rotation %d: %v", n, err)
					return
				}
			}
		})
	}
	last := root
	all.Go(func() {
		for n := 0; time.Now().Before(end); n++ {
			next := &capability.Grant{ID: harness.NewRef(space), Target: space, Hash: harness.Hash()}
			if _, err := f.RotateRoot(f.Ctx, next); err != nil {
				t.Errorf("the root's rotation %d: %v", n, err)
				return
			}
			last = next.ID
		}
	})
	all.Wait()
	for i, owner := range owners {
		page, err := f.ReadTree(f.Ctx, "", session.TreeQuery{Under: owner, Limit: 1}, nil)
		f.Must("read the way up", err)
		if !slices.Contains(page.Lineage, last) {
			t.Errorf("the owner's ref of session %d is not below the root that lives", i)
		}
	}
}
