// Package pgclient opens clients whose outbox is kept in Postgres. It stands apart from package
// client, so that a program which keeps its outbox in SQLite carries no pgx, and carries no SQLite itself.
//
//	c, err := client.Open(ctx, client.Config{OpenOutbox: pgclient.Outbox(url, "")})
//
// On such a client, Batch.CommitTx takes a pgx.Tx.
package pgclient

import (
	"context"

	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/outbox/pgoutbox"
)

// Outbox is for client.Config.OpenOutbox: the outbox called name, "" for "default", in the database
// at url.
func Outbox(url, name string) func(context.Context, outbox.Config) (*outbox.Box, error) {
	return func(ctx context.Context, cfg outbox.Config) (*outbox.Box, error) {
		return pgoutbox.Open(ctx, url, name, cfg)
	}
}
