// A space's rotation beside what its sessions do to their own refs.

package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// testRotateRootRace: while owners rotate their sessions' refs, several sessions
// in a group and in any order, the space's root is rotated again and again.
// Nobody is refused for another's sake, and in the end every owner's ref is below
// the root that lives: so whoever has that can still end it.
func testRotateRootRace(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	space := newSpace()
	root := newRef(space)
	const sessions = 8
	var ids [sessions]string
	var owners [sessions]string
	changes := &session.Changes{Grants: []*capability.Grant{grant(root, "")}}
	for i := range ids {
		ids[i] = newSession()
		owners[i] = newRef(ids[i])
		owner := grant(owners[i], root)
		owner.Owner, owner.Rights = true, capability.SessionRights
		changes.Sessions = append(changes.Sessions, liveRow(ids[i], space, 1))
		changes.Grants = append(changes.Grants, owner)
	}
	f.save(changes, ids[:]...)

	end := time.Now().Add(time.Second)
	var all sync.WaitGroup
	for w := range 2 { // each has half of the sessions
		all.Go(func() {
			mine := []int{w, w + 2, w + 4, w + 6}
			for n := 0; time.Now().Before(end); n++ {
				slices.Reverse(mine)
				var group []session.Submission
				for _, i := range mine {
					to := newRef(ids[i])
					group = append(group, session.Submission{Batch: ledger.Batch{Session: ids[i]}, Ref: owners[i],
						Direct: &session.Direct{Rotate: &session.Rotation{ID: to, Hash: hash()}}})
					owners[i] = to
				}
				err := f.Update(f.ctx, func(tx session.Tx) error {
					answers, _, err := session.Commit(f.ctx, tx, group, session.DefaultConfig())
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
			next := &capability.Grant{ID: newRef(space), Target: space, Hash: hash()}
			if _, err := f.RotateRoot(f.ctx, next); err != nil {
				t.Errorf("the root's rotation %d: %v", n, err)
				return
			}
			last = next.ID
		}
	})
	all.Wait()
	for i, owner := range owners {
		page, err := f.ReadTree(f.ctx, "", session.TreeQuery{Under: owner, Limit: 1}, nil)
		f.must("read the way up", err)
		if !slices.Contains(page.Lineage, last) {
			t.Errorf("the owner's ref of session %d is not below the root that lives", i)
		}
	}
}
