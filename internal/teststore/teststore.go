// Package teststore opens empty stores, on each kind of database, for the tests of what stands on them. What a store itself
// promises is tested in store/storetest.
package teststore

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/stmtfault"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
)

// OnBoth runs f on each kind of database.
func OnBoth(t *testing.T, f func(t *testing.T, st *store.Store)) {
	onBoth(t, func(t *testing.T) { f(t, SQLite(t)) }, func(t *testing.T) { f(t, Postgres(t, PostgresURL(t))) })
}

func onBoth(t *testing.T, onSQLite, onPostgres func(t *testing.T)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		onSQLite(t)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		onPostgres(t)
	})
}

// OnFailing is OnBoth for stores whose statements can be told to fail, but for those that no caller waits for.
func OnFailing(t *testing.T, f func(t *testing.T, st *store.Store, s *stmtfault.Statements)) {
	aside := func(sql string) bool {
		return strings.Contains(sql, "pg_notify") || strings.Contains(sql, "LISTEN") || sql == "rollback"
	}
	onBoth(t, func(t *testing.T) {
		d := stmtfault.SQLite(t, aside)
		st, err := sqlite.Open(t.Context(), sqlite.Config{Dir: t.TempDir(), Driver: d.Name()})
		f(t, open(t, st, err), &d.Statements)
	}, func(t *testing.T) {
		p := stmtfault.Postgres(t, PostgresURL(t), aside)
		f(t, Postgres(t, p.URL()), &p.Statements)
	})
}

var migrated = &pgtest.Template{Make: func(url string) error {
	st, err := postgres.Open(context.Background(), postgresAt(url))
	if err != nil {
		return err
	}
	return st.Close()
}}

// PostgresURL is pgtest.URL of a database that a store has been on, and nothing is in.
func PostgresURL(t testing.TB) string {
	t.Helper()
	return migrated.URL(t)
}

// SQLite opens a store in a folder of its own, until the test ends.
func SQLite(t testing.TB) *store.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Dir: t.TempDir()})
	return open(t, st, err)
}

// Postgres opens the store at url until the test ends.
func Postgres(t testing.TB, url string) *store.Store {
	t.Helper()
	st, err := postgres.Open(t.Context(), postgresAt(url))
	return open(t, st, err)
}

func postgresAt(url string) postgres.Config {
	return postgres.Config{URL: url, AllowUnsafe: true, Log: slog.New(slog.DiscardHandler)}
}

func open(t testing.TB, st *store.Store, err error) *store.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return st
}
