package outbox

// Outboxes in Postgres, as package pgoutbox opens them: that imports this package.

import (
	"cmp"
	"context"

	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

func openPostgres(ctx context.Context, url, name string, cfg Config) (*Box, error) {
	return New(ctx, name, cfg, func(cfg Config) (sqlstore.Database, error) { return postgres.Open(ctx, url, postgresOptions(cfg)) })
}

func newPostgres(ctx context.Context, pool *pgxpool.Pool, name string, cfg Config) (*Box, error) {
	return New(ctx, name, cfg, func(cfg Config) (sqlstore.Database, error) { return postgres.New(ctx, pool, postgresOptions(cfg)) })
}

func postgresOptions(cfg Config) postgres.Options {
	return postgres.Options{Connections: cfg.Connections, Poll: cmp.Or(cfg.Poll, time.Second), Lease: cfg.Lease, AllowUnsafe: cfg.AllowUnsafe, Logger: cfg.Logger}
}

func openSQLite(ctx context.Context, path string, cfg Config) (*Box, error) {
	return openSQLiteBy(ctx, "", path, cfg)
}

// openSQLiteBy opens a file by another driver.
func openSQLiteBy(ctx context.Context, driver, path string, cfg Config) (*Box, error) {
	return New(ctx, "", cfg, func(cfg Config) (sqlstore.Database, error) {
		return sqlite.Open(ctx, path, sqlite.Options{Now: cfg.Now, Poll: cmp.Or(cfg.Poll, 100*time.Millisecond), Driver: driver})
	})
}
