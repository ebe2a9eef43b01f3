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
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/schemafile"
	schema "github.com/mooring-rpc/mooring/migrations/outboxsql/sqlite"
)

const (
	sqlVersionTable = `CREATE TABLE IF NOT EXISTS ` + schema.Table + ` (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL, tstamp TIMESTAMP DEFAULT (datetime('now')))`
	sqlVersion    = `SELECT COALESCE(MAX(version_id), -1) FROM ` + schema.Table
	sqlSetVersion = `INSERT INTO ` + schema.Table + ` (version_id, is_applied) VALUES ($1, 1)`
)

// migrate applies what is missing of files, all of it or nothing. It fails with fault.Incompatible,
// having changed nothing, on a file that is more than one version ahead of this binary.
func migrate(ctx context.Context, pool *sql.DB, files fs.FS) (err error) {
	all, err := schemafile.Read(files)
	if err != nil {
		return err
	}
	newest := schemafile.Newest(all)
	conn, err := connect(ctx, pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var at int64
	if conn.QueryRowContext(ctx, sqlVersion).Scan(&at) == nil && (at == newest || at == newest+1) {
		return nil // without the lock
	}
	steady := context.WithoutCancel(ctx)                                   // a canceled BEGIN fails, and may have begun
	if _, err := conn.ExecContext(steady, "BEGIN IMMEDIATE"); err != nil { // other processes wait
		return err
	}
	if err = upgrade(ctx, conn, all); err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		_, _ = conn.ExecContext(steady, "ROLLBACK")
	}
	return err
}

// migrateFailure gives an error of migrate its code. A script that SQLite refuses says nothing about
// the file: it is a defect of the script, or of what else has changed the tables.
func migrateFailure(err error) error {
	if e, ok := errors.AsType[Error](err); ok && dbfault.SQLite(e.Code()) == dbfault.None && e.Code()&0xff != sqlite3.SQLITE_CANTOPEN {
		return fault.Internal.Because(err, "the outbox's file is as it was: it could not be made one of this version: %v", err)
	}
	return Failure(err)
}

// connect opens a connection, which sets the modes of a new file. SQLite does not wait for another
// process that sets them at the same moment (SQLITE_BUSY), so connect tries again, for BusyTimeout.
func connect(ctx context.Context, pool *sql.DB) (conn *sql.Conn, err error) {
	for end := time.Now().Add(BusyTimeout); ; {
		conn, err = pool.Conn(ctx)
		if dbfault.Of(Failure(err)) != dbfault.Locked || time.Now().After(end) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// upgrade applies the migrations above the present version.
func upgrade(ctx context.Context, conn *sql.Conn, all []schemafile.Migration) error {
	if _, err := conn.ExecContext(ctx, sqlVersionTable); err != nil {
		return err
	}
	var at int64
	if err := conn.QueryRowContext(ctx, sqlVersion).Scan(&at); err != nil {
		return err
	}
	if err := schemafile.CheckVersion("outbox", "programs", at, schemafile.Newest(all)); err != nil {
		return err
	}
	if at < 0 {
		if _, err := conn.ExecContext(ctx, sqlSetVersion, 0); err != nil { // as goose begins
			return err
		}
	}
	for _, m := range all {
		if m.Version <= at {
			continue
		}
		if _, err := conn.ExecContext(ctx, m.Script); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		if _, err := conn.ExecContext(ctx, sqlSetVersion, m.Version); err != nil {
			return err
		}
	}
	return nil
}
