package postgres

import (
	"context"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/pgtune"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// trips counts statements, by the round trip that they went out in.
type trips struct{ statements []int }

func (t *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	t.statements = append(t.statements, 0)
	return ctx
}

func (t *trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	t.statements[len(t.statements)-1]++
}

func (t *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (t *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (t *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestAnAppendIsTwoRoundTrips: one locks and reads, one writes and commits.
func TestAnAppendIsTwoRoundTrips(t *testing.T) {
	t.Parallel()
	seen := &trips{}
	commit := harness.Appender(t, store.New(bare(t, pgtest.URL(t), seen)))
	commit()
	seen.statements = nil
	const appends = 3
	for range appends {
		commit()
	}
	if len(seen.statements) != 2*appends {
		t.Errorf("%d appends took round trips of so many statements: %v", appends, seen.statements)
	}
}

// bare is the backend of a store that announces to nobody, with one connection.
func bare(t *testing.T, url string, tracer pgx.QueryTracer) *backend {
	t.Helper()
	first, err := Open(t.Context(), Config{URL: url, Log: slog.New(slog.DiscardHandler)}) // makes the tables
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	cfg, err := poolConfig(Config{URL: url, MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &backend{pool: pool, sizedPool: pgtune.NewAdaptivePool(pool, nil), log: slog.New(slog.DiscardHandler), endTimeout: endTimeout, announcer: newAnnouncer()}
}
