// Package outboxsql holds the outbox's schema for Postgres (that for SQLite is in package sqlite below
// it), which lives in a database of its
// own or beside the tables of the program that uses the outbox: every table's
// name begins with mooring_outbox. See package migrations for how it is applied.
package outboxsql

import (
	"embed"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/mooring-rpc/mooring/migrations"
)

//go:embed postgres/*.sql
var postgresFiles embed.FS

// Postgres is the outbox's schema.
var Postgres = migrations.Schema{Name: "outbox", Dialect: goose.DialectPostgres, Table: "mooring_outbox_version",
	Files: subFS("postgres"), Lock: 0x6d6f6f72696e6702}

func subFS(name string) fs.FS {
	sub, err := fs.Sub(postgresFiles, name)
	if err != nil {
		panic("migrations/outbox: " + err.Error()) // the name is not a valid path: a defect
	}
	return sub
}
