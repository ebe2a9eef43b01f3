package sqlite

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/storetest"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fresh(tb testing.TB) harness.Database {
	dir := tb.TempDir()
	return harness.Database{Open: func(ctx context.Context) (*store.Store, error) { return Open(ctx, Config{Dir: dir}) }}
}

func TestConformance(t *testing.T) { storetest.Run(t, fresh) }

func TestPagesCost(t *testing.T) { storetest.PagesCost(t, fresh) }

func TestGrowthCost(t *testing.T) { storetest.GrowthCost(t, fresh) }

func BenchmarkUpdate(b *testing.B) { storetest.Bench(b, fresh) }

func BenchmarkCommit(b *testing.B) { storetest.BenchCommit(b, fresh) }
