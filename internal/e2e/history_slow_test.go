//go:build crash

package e2e

import (
	"math/rand/v2"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
)

// TestManyHistories is TestHistories for a few seeds; SEED=N begins at another, and SHARE=N tries one in N.
func TestManyHistories(t *testing.T) {
	first := seed.Of(t)
	onBoth(t, func(t *testing.T, db database) {
		for i := range uint64(seed.Share(t, 4)) {
			t.Logf("%s=%d", seed.EnvVar, first+i)
			runHistory(t, rand.New(rand.NewPCG(first+i, 5)), db, func(srv *server, _ *httpParty) party { return newGoParty(t, srv) })
		}
	})
}
