package sqlite

// Reading that is canceled anywhere: no transaction stays open on an idle connection.

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// TestCanceledReads: a read that finds a stopped stream reads again in a transaction of its own. A
// cancel may come when BEGIN has been run and its statement fails all the same.
func TestCanceledReads(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), Options{Now: time.Now, Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	stopped := func(ctx context.Context) error {
		return db.Read(ctx, func(q sqlstore.Querier) error {
			if err := q.Query(ctx, "SELECT 1", nil, func(scan sqlstore.Scanner) error { return scan(new(int)) }); err != nil {
				return err
			}
			return sqlstore.SnapshotError{Err: fault.Revoked}
		})
	}
	for i := range 3000 {
		ctx, cancel := context.WithCancel(t.Context())
		after := time.Duration(r.IntN(200)) * time.Microsecond
		go func() {
			for begin := time.Now(); time.Since(begin) < after; {
			}
			cancel()
		}()
		_ = stopped(ctx)
		<-ctx.Done()
		if _, want := errors.AsType[sqlstore.SnapshotError](stopped(t.Context())); !want {
			t.Fatalf("read %d, canceled after %s: the next one fails: %v", i, after, stopped(t.Context()))
		}
	}
}
