// Package sqliteoutbox opens outboxes that are kept in SQLite files. It stands apart from package
// outbox, so that a program which keeps its outbox in Postgres carries no SQLite.
package sqliteoutbox

import (
	"cmp"
	"context"
	"time"

	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// Open opens the outbox in the file at path, creating it (mode 0600) if it is not there. Several
// processes may have it open. Its errors name no path.
func Open(ctx context.Context, path string, cfg outbox.Config) (*outbox.Box, error) {
	return outbox.New(ctx, "", cfg, func(cfg outbox.Config) (sqlstore.Database, error) {
		return sqlite.Open(ctx, path, sqlite.Options{Now: cfg.Now, Poll: cmp.Or(cfg.Poll, 100*time.Millisecond)})
	})
}
