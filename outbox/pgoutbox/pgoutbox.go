// Package pgoutbox opens outboxes that are kept in Postgres. It stands apart from package outbox, so
// that a program which keeps its outbox in SQLite carries no pgx.
package pgoutbox

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// Open opens the outbox called name, "" for "default", in the database at url, creating its tables
// and itself if they are not there. Outboxes of different names in one database are independent.
// Outboxes that this process opens with the same url share their connections, as many as the
// Config of the first says.
func Open(ctx context.Context, url, name string, cfg outbox.Config) (*outbox.Box, error) {
	return outbox.New(ctx, name, cfg, func(cfg outbox.Config) (sqlstore.Database, error) {
		return postgres.Open(ctx, url, options(cfg))
	})
}

// New is Open on a pool that the caller keeps and closes. Beyond their transactions, all outboxes
// of a pool that run together use one connection to listen on. The outbox's transactions are read
// committed; with a pool whose default is another isolation level, each takes two round trips more.
func New(ctx context.Context, pool *pgxpool.Pool, name string, cfg outbox.Config) (*outbox.Box, error) {
	return outbox.New(ctx, name, cfg, func(cfg outbox.Config) (sqlstore.Database, error) {
		return postgres.New(ctx, pool, options(cfg))
	})
}

func options(cfg outbox.Config) postgres.Options {
	return postgres.Options{Connections: cfg.Connections, Poll: cmp.Or(cfg.Poll, time.Second), Lease: cfg.Lease, AllowUnsafe: cfg.AllowUnsafe, Logger: cfg.Logger}
}
