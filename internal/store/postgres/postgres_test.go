package postgres

import (
	"context"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/storetest"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse())) }

func fresh(tb testing.TB) harness.Database {
	url := pgtest.URL(tb)
	return harness.Database{Shared: true, Open: func(ctx context.Context) (*store.Store, error) {
		return Open(ctx, Config{URL: url, MaxConns: 4, Log: slog.New(slog.DiscardHandler)})
	}}
}

func TestConformance(t *testing.T) { storetest.Run(t, fresh) }

func TestGrowthCost(t *testing.T) { storetest.GrowthCost(t, fresh) }

func BenchmarkUpdate(b *testing.B) { storetest.Bench(b, fresh) }

func BenchmarkCommit(b *testing.B) { storetest.BenchCommit(b, fresh) }
