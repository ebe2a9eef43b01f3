// Package toast chooses how Postgres compresses large values.
package toast

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// What is written once and read a few times is compressed at a fraction of the cost of the server's default. Where it does
// not know lz4, or somebody has chosen something, all stays as it is.
const choose = `SELECT set_config(name, 'lz4', false) FROM pg_settings
	WHERE name = 'default_toast_compression' AND source = 'default' AND 'lz4' = ANY (enumvals)`

// Fast has what a connection writes from now on compressed with lz4, where the server knows it and nobody has set
// default_toast_compression.
func Fast(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, choose, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("choose a compression: %w", err)
	}
	return nil
}
