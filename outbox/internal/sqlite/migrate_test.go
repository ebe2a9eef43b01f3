package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/migrations"
	"github.com/mooring-rpc/mooring/migrations/outboxsql"
	schema "github.com/mooring-rpc/mooring/migrations/outboxsql/sqlite"
)

func testFile(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// schemaOf lists the tables and indexes of a file, and the versions that were applied.
func schemaOf(t *testing.T, db *sql.DB) (list []string) {
	t.Helper()
	for _, query := range []string{"SELECT COALESCE(sql, name) FROM sqlite_master WHERE tbl_name <> '" + schema.Table + "' ORDER BY name",
		"SELECT version_id || ' ' || is_applied FROM " + schema.Table + " ORDER BY id"} {
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				t.Fatal(err)
			}
			list = append(list, s)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// TestEitherGoesOnWhereTheOtherStopped: a file that goose has migrated, up to any version, and goose
// on a file that was migrated here.
func TestEitherGoesOnWhereTheOtherStopped(t *testing.T) {
	t.Parallel()
	names, err := schema.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	fresh := testFile(t, filepath.Join(t.TempDir(), "a.db"))
	if err := migrate(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	want := schemaOf(t, fresh)
	if err := migrations.Up(t.Context(), fresh, outboxsql.SQLite); err != nil || !slices.Equal(schemaOf(t, fresh), want) {
		t.Errorf("goose does not find its own versions: %v", err)
	}
	for n := 1; n <= len(names); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			set, some := outboxsql.SQLite, fstest.MapFS{}
			for _, f := range names[:n] {
				text, err := schema.Files.ReadFile(f.Name())
				if err != nil {
					t.Fatal(err)
				}
				some[f.Name()] = &fstest.MapFile{Data: text}
			}
			set.Files = some
			db := testFile(t, filepath.Join(t.TempDir(), "b.db"))
			if err := migrations.Up(t.Context(), db, set); err != nil {
				t.Fatal(err)
			}
			if err := migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			if got := schemaOf(t, db); !slices.Equal(got, want) {
				t.Errorf("from version %d:\n%q\nwant\n%q", n, got, want)
			}
		})
	}
}

// TestNewerFiles: one version ahead is accepted, more is not.
func TestNewerFiles(t *testing.T) {
	t.Parallel()
	names, _ := schema.Files.ReadDir(".")
	db := testFile(t, filepath.Join(t.TempDir(), "a.db"))
	for ahead, want := range []fault.Code{fault.None, fault.None, fault.Incompatible} {
		if ahead > 0 {
			if _, err := db.ExecContext(t.Context(), sqlSetVersion, len(names)+ahead); err != nil {
				t.Fatal(err)
			}
		}
		before := []string(nil)
		if ahead > 0 {
			before = schemaOf(t, db)
		}
		if err := migrate(t.Context(), db); fault.CodeOf(err) != want {
			t.Errorf("%d ahead: %v", ahead, err)
		}
		if ahead > 0 && !slices.Equal(schemaOf(t, db), before) {
			t.Errorf("%d ahead: the file was changed", ahead)
		}
	}
}

// TestManyMigrateAtOnce: one does it, the others find it done.
func TestManyMigrateAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	testFile(t, path) // the first connection sets the file's mode
	var all sync.WaitGroup
	for range 6 {
		db := testFile(t, path)
		all.Go(func() {
			if err := migrate(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	db := testFile(t, path)
	if n := len(schemaOf(t, db)); n == 0 {
		t.Error("nothing was made")
	}
}
