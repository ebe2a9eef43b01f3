package outbox

// Opening an outbox in one of the two databases.

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// OpenSQLite opens the outbox in the file at path, creating it (mode 0600) if it is not there.
// Several processes may have it open. Its errors name no path.
func OpenSQLite(ctx context.Context, path string, cfg Config) (*Box, error) {
	cfg = cfg.withDefaults()
	db, err := sqlite.Open(ctx, path, sqlite.Options{Now: cfg.Now, Poll: cmp.Or(cfg.Poll, 100*time.Millisecond), Driver: cfg.driver})
	if err != nil {
		return nil, fmt.Errorf("open outbox: %w", sqlstore.WithCode(err))
	}
	return newBox(ctx, db, defaultName, cfg)
}

// OpenPostgres opens the outbox called name in the database at url, creating its tables and
// itself if they are not there. Outboxes of different names in one database are independent.
// Boxes that this process opens with the same url share their connections, as many as the
// Config of the first says.
func OpenPostgres(ctx context.Context, url, name string, cfg Config) (*Box, error) {
	cfg = cfg.withDefaults()
	db, err := postgres.Open(ctx, url, cfg.postgres())
	if err != nil {
		return nil, fmt.Errorf("open outbox: %w", sqlstore.WithCode(err))
	}
	return newBox(ctx, db, name, cfg)
}

// NewPostgres is OpenPostgres on a pool that the caller keeps and closes. Beyond their
// transactions, all Boxes of a pool that run together use one connection to listen on. The
// outbox's transactions are read committed; with a pool whose default is another isolation
// level, each takes two round trips more.
func NewPostgres(ctx context.Context, pool *pgxpool.Pool, name string, cfg Config) (*Box, error) {
	cfg = cfg.withDefaults()
	db, err := postgres.New(ctx, pool, cfg.postgres())
	if err != nil {
		return nil, fmt.Errorf("open outbox: %w", sqlstore.WithCode(err))
	}
	return newBox(ctx, db, name, cfg)
}

func (c *Config) postgres() postgres.Options {
	return postgres.Options{Connections: c.Connections, Poll: cmp.Or(c.Poll, time.Second), Lease: c.Lease, AllowUnsafe: c.AllowUnsafe, Logger: c.Logger}
}
