// Package migrations holds the schemas of Mooring's databases, embedded in the
// binary and applied in order, forward only.
//
// A Schema is one schema's history; Up brings a database to its newest version.
// Every release adds at most one migration to a set, and each leaves a database
// that the release before can still work on, so that servers one version apart
// may share it: Up accepts a database that is one version ahead of the binary
// and refuses one that is further.
//
// Any number of processes may call Up on the same database at once. On Postgres
// an advisory lock lets one in at a time; on SQLite a migration's transaction
// does, and who loses the race looks again.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/schemafile"
)

//go:embed postgres/*.sql
var postgresFiles embed.FS

//go:embed sqlite/*.sql
var sqliteFiles embed.FS

// Schema is the history of one schema in one dialect.
type Schema struct {
	Name    string        // for messages: "server", "outbox"
	Dialect goose.Dialect // goose.DialectPostgres or goose.DialectSQLite3
	Table   string        // where the applied versions are kept
	Files   fs.FS         // the folder's .sql files, at its root
	Lock    int64         // Postgres: the advisory lock's key
}

// Postgres and SQLite are the server's schema.
var (
	Postgres = Schema{Name: "server", Dialect: goose.DialectPostgres, Table: "mooring_version",
		Files: subFS(postgresFiles, "postgres"), Lock: 0x6d6f6f72696e6701}
	SQLite = Schema{Name: "server", Dialect: goose.DialectSQLite3, Table: "mooring_version",
		Files: subFS(sqliteFiles, "sqlite")}
)

// Up applies what is missing. It fails with fault.Incompatible, having changed
// nothing, on a database that is more than one version ahead of this binary.
// On Postgres db must allow two connections. A canceled ctx leaves whole
// migrations only.
func Up(ctx context.Context, db *sql.DB, set Schema) error {
	if set.Dialect == goose.DialectPostgres {
		return upLocked(ctx, db, set)
	}
	// Two processes on an empty file may both begin the same migration. The
	// file's own lock lets one through; the other's fails and finds, when it
	// looks again, that all is done.
	var err error
	for try := range 10 {
		if err = up(ctx, db, set); err == nil || errors.Is(err, fault.Incompatible) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(try+1) * 20 * time.Millisecond):
		}
	}
	return err
}

// upLocked holds a Postgres advisory lock for the time of the migration. It belongs to a
// transaction: through a pooler that gives each of these another connection, who locked
// could not unlock. That does nothing else, and may take as long as it takes.
func upLocked(ctx context.Context, db *sql.DB, set Schema) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate %s: %w", set.Name, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil) // a canceled migration keeps its lock until it has ended
	if err != nil {
		return fmt.Errorf("migrate %s: %w", set.Name, err)
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }() // which is the unlock
	for _, do := range []string{"SET LOCAL idle_in_transaction_session_timeout = 0", fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", set.Lock)} {
		if _, err := tx.ExecContext(ctx, do); err != nil {
			return fmt.Errorf("migrate %s: lock: %w", set.Name, err)
		}
	}
	// The servers that are at work take locks in an order of their own, so Postgres may give up a
	// migration in favour of a transaction of theirs. It has changed nothing then.
	for range maxDeadlocks {
		if err = up(ctx, db, set); !isDeadlock(err) {
			return err
		}
	}
	return err
}

// maxDeadlocks is how often a migration may be given up. Each takes Postgres a second to find.
const maxDeadlocks = 20

// isDeadlock reports whether Postgres gave up a transaction (40P01, deadlock_detected).
func isDeadlock(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && state.SQLState() == "40P01"
}

func up(ctx context.Context, db *sql.DB, set Schema) error {
	list, err := set.migrations()
	if err != nil {
		return fmt.Errorf("migrate %s: %w", set.Name, err)
	}
	provider, err := goose.NewProvider(set.Dialect, db, nil,
		goose.WithGoMigrations(list...),
		goose.WithTableName(set.Table),
		goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("migrate %s: %w", set.Name, err)
	}
	current, newest, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("migrate %s: read version: %w", set.Name, err)
	}
	if err := set.CheckVersion(current); err != nil || current >= newest {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate %s: %w", set.Name, err)
	}
	return nil
}

// migrations are the files as migrations. (goose's own reader takes each statement apart, at 4 MB of
// memory a line: most of the time that a new database took.)
func (set Schema) migrations() (list []*goose.Migration, err error) {
	all, err := schemafile.Read(set.Files)
	for _, m := range all {
		list = append(list, goose.NewGoMigration(m.Version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, m.Script); err != nil {
				return fmt.Errorf("%s: %w", m.Name, err)
			}
			return nil
		}}, nil))
	}
	return list, err
}

// subFS is a folder of an embedded tree as a tree of its own.
func subFS(files embed.FS, name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic("migrations: " + err.Error()) // the name is not a valid path: a defect
	}
	return sub
}

// Newest is the version that Up brings a database to.
func (set Schema) Newest() (version int64, err error) {
	all, err := schemafile.Read(set.Files)
	return schemafile.Newest(all), err
}

// CheckVersion fails with fault.Incompatible where a database's version is beyond what Up takes.
func (set Schema) CheckVersion(version int64) error {
	newest, err := set.Newest()
	if err != nil {
		return err
	}
	return schemafile.CheckVersion(set.Name, "servers", version, newest)
}
