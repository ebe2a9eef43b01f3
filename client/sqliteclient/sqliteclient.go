// Package sqliteclient opens clients whose outbox is kept in SQLite, in a folder of the program's own. It stands apart from
// package client, so that a program which keeps its outbox in Postgres (package pgclient) carries no SQLite.
//
//	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox("agent-home")})
package sqliteclient

import (
	"context"
	"path/filepath"

	"github.com/mooring-rpc/mooring/internal/privatedir"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/outbox/sqliteoutbox"
)

// Outbox is for client.Config.OpenOutbox: the outbox in the file outbox.db of the folder home, which is created if missing, for
// this user alone. It fails with Usage if home is another user's, or others may write to it.
func Outbox(home string) func(context.Context, outbox.Config) (*outbox.Box, error) {
	return func(ctx context.Context, cfg outbox.Config) (*outbox.Box, error) {
		if err := privatedir.Make(home, "the home folder"); err != nil {
			return nil, err
		}
		return sqliteoutbox.Open(ctx, filepath.Join(home, "outbox.db"), cfg)
	}
}
