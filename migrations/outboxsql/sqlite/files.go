// Package sqlite has the outbox's schema for SQLite. It stands apart from package outboxsql, so that
// package outbox/internal/sqlite, which applies it, carries no migration library.
package sqlite

import "embed"

// Files are the migrations, in the order of their names.
//
//go:embed *.sql
var Files embed.FS

// Table is where the applied versions are kept.
const Table = "mooring_outbox_version"
