package outbox

// Outboxes in Postgres, as package pgoutbox opens them: that imports this package.

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

func openPostgres(ctx context.Context, url, name string, cfg Config) (*Box, error) {
	db, err := postgres.Open(ctx, url, postgresOptions(cfg))
	if err != nil {
		return nil, fmt.Errorf("open outbox: %w", sqlstore.WithCode(err))
	}
	return New(ctx, db, name, cfg)
}

func newPostgres(ctx context.Context, pool *pgxpool.Pool, name string, cfg Config) (*Box, error) {
	db, err := postgres.New(ctx, pool, postgresOptions(cfg))
	if err != nil {
		return nil, fmt.Errorf("open outbox: %w", sqlstore.WithCode(err))
	}
	return New(ctx, db, name, cfg)
}

func postgresOptions(cfg Config) postgres.Options {
	cfg = cfg.withDefaults()
	return postgres.Options{Connections: cfg.Connections, Poll: cmp.Or(cfg.Poll, time.Second), Lease: cfg.Lease, AllowUnsafe: cfg.AllowUnsafe, Logger: cfg.Logger}
}
