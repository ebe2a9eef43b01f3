package outbox

// Opening an outbox.

import (
	"cmp"
	"context"
	"fmt"
	"time"

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

// New opens the outbox called name in a database, which the Box closes: pgoutbox.Open and
// pgoutbox.New make one in Postgres.
func New(ctx context.Context, db sqlstore.Database, name string, cfg Config) (*Box, error) {
	return newBox(ctx, db, name, cfg.withDefaults())
}
