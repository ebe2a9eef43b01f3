//go:build unix

package node

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// timedUpdates knows how long the last transaction might have taken.
type timedUpdates struct {
	Store
	limit atomic.Int64
}

func (s *timedUpdates) Update(ctx context.Context, fn func(session.Tx) error) error {
	if end, bounded := ctx.Deadline(); bounded {
		s.limit.Store(int64(time.Until(end)))
	}
	return s.Store.Update(ctx, fn)
}

// A space's ref over a hundred thousand sessions takes half a minute to revoke.
func TestRevokingOfASpacesRefMayTakeLong(t *testing.T) {
	t.Parallel()
	st := &timedUpdates{Store: sqliteStore(t)}
	r := start(t, st, nil)
	root, team := r.dial().restore(r.owner), r.owner.New(r.owner.Target())
	r.untilInUse(session.AllFeatures)
	refusedWith(t, "share", sharing(t, root, team, capability.SpaceRights, ""), fault.None)
	if _, refused := cutting(t, root, team.ID); refused != nil {
		t.Fatal(refused)
	}
	if limit := time.Duration(st.limit.Load()); limit < 5*time.Minute {
		t.Errorf("it is given up after %v", limit)
	}
}
