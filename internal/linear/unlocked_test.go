//go:build linear

package linear

// Would all this find a server that is wrong? Here is one: with the build tag
// unlocked a session's row is read without its lock (store/txn/unlocked.go).
//
// It is not wrong in the plain way. On Postgres the events' primary key catches
// two commits that would take the same cursor: the later of them fails, is
// answered internal, and comes again. What is left are answers that make no
// event, put together from a row of one moment and refs or values of a later one:
//
//   - a put finds the value there that another replica has just put, and is
//     answered as unchanged at the cursor before that;
//   - a share finds its ref minted at a cursor at which it was not;
//   - a revocation finds its ref revoked, and is answered with a cut that is
//     above the cursor it was answered at.
//
// The moment is short. On its own the unlocked server is refused after anything
// from fifty histories to none in three hundred. So the tag lockgap makes it
// longer, with the lock and without it alike (store/txn/lockgap.go): with the lock
// nothing changes, without it one of the first 6 to 21 histories is refused, and
// of stern ones, where only refs and their ends meet, one of the first 8 to 78.

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/seed"
)

const (
	enoughLocked   = 60  // histories that must pass with the lock
	enoughUnlocked = 400 // histories of which one must be refused without it
)

func TestWithoutTheLock(t *testing.T) {
	t.Run("locked", func(t *testing.T) {
		s := serve(t, build(t, "lockgap"), replicas, pgtest.URL(t))
		for _, stern := range []bool{false, true} {
			totals, bad := s.histories(t.Context(), seed.Of(t), stern, func(a *totals) bool { return a.histories >= enoughLocked/2 })
			if bad != nil {
				bad.report(t)
			}
			totals.checkDefects(t)
			t.Logf("seed %d: all %d histories pass", totals.seed, totals.histories)
		}
	})
	t.Run("unlocked", func(t *testing.T) {
		s := serve(t, build(t, "lockgap", "unlocked"), replicas, pgtest.URL(t))
		t.Run("all plans", func(t *testing.T) { refused(t, s, false) })
		t.Run("stern plans", func(t *testing.T) { refused(t, s, true) })
	})
}

// refused fails the test unless a history is refused.
func refused(t *testing.T, s servers, stern bool) {
	t.Helper()
	began := time.Now()
	totals, bad := s.histories(t.Context(), seed.Of(t), stern, func(a *totals) bool { return a.histories >= enoughUnlocked })
	switch {
	case bad == nil:
		t.Fatalf("seed %d: %d histories without the session row's lock, and none is refused: what is checked is not enough", totals.seed, totals.histories)
	case bad.err != nil || bad.result != porcupine.Illegal:
		bad.report(t)
	default:
		t.Logf("refused after %d histories and %v (seed %d): %s",
			totals.histories, time.Since(began).Round(time.Millisecond), bad.seed, bad.oddities())
	}
}
