package sqlite

// The migrations of the file's schema, forward only, by hand: a program that imports package client
// is to carry no migration library. The table of versions is goose's, which former binaries used and
// package migrations uses for all other schemas, so that either goes on where the other has stopped.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	schema "github.com/mooring-rpc/mooring/migrations/outboxsql/sqlite"
)

const (
	sqlVersionTable = `CREATE TABLE IF NOT EXISTS ` + schema.Table + ` (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL, tstamp TIMESTAMP DEFAULT (datetime('now')))`
	sqlVersion    = `SELECT COALESCE(MAX(version_id), -1) FROM ` + schema.Table
	sqlSetVersion = `INSERT INTO ` + schema.Table + ` (version_id, is_applied) VALUES ($1, 1)`
)

// migrate applies what is missing, all of it or nothing. It fails with fault.Incompatible, having
// changed nothing, on a file that is more than one version ahead of this binary.
func migrate(ctx context.Context, pool *sql.DB) (err error) {
	names, err := fs.Glob(schema.Files, "*.sql")
	if err != nil {
		return err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate outbox: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var at int64
	if conn.QueryRowContext(ctx, sqlVersion).Scan(&at) == nil && at == int64(len(names)) {
		return nil
	}
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil { // other processes wait
		return fmt.Errorf("migrate outbox: %w", err)
	}
	if err = upgrade(ctx, conn, names); err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return fmt.Errorf("migrate outbox: %w", err)
	}
	return nil
}

// upgrade applies the files above the present version, whose numbers run from 1.
func upgrade(ctx context.Context, conn *sql.Conn, names []string) error {
	if _, err := conn.ExecContext(ctx, sqlVersionTable); err != nil {
		return err
	}
	var at int64
	if err := conn.QueryRowContext(ctx, sqlVersion).Scan(&at); err != nil {
		return err
	}
	if newest := int64(len(names)); at > newest+1 {
		return fault.Incompatible.With("the outbox database is at version %d and this binary knows %d at most: "+
			"run a newer mooring (versions may be one apart, not more)", at, newest)
	}
	if at < 0 {
		if _, err := conn.ExecContext(ctx, sqlSetVersion, 0); err != nil { // as goose begins
			return err
		}
		at = 0
	}
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil || version <= at {
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		text, err := fs.ReadFile(schema.Files, name)
		if err != nil {
			return err
		}
		_, script, ok := strings.Cut(string(text), "-- +goose Up\n")
		if !ok {
			return fmt.Errorf("%s has no line -- +goose Up", name)
		}
		if _, err := conn.ExecContext(ctx, script); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := conn.ExecContext(ctx, sqlSetVersion, version); err != nil {
			return err
		}
	}
	return nil
}
