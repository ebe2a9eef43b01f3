package sqlite

import (
	"database/sql"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/migrations"
	schema "github.com/mooring-rpc/mooring/migrations/outboxsql/sqlite"
)

// goosed is the schema as goose applies it.
var goosed = migrations.Schema{Name: "outbox", Dialect: goose.DialectSQLite3, Table: schema.Table, Files: schema.Files}

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
	if err := migrate(t.Context(), fresh, schema.Files); err != nil {
		t.Fatal(err)
	}
	want := schemaOf(t, fresh)
	if err := migrations.Up(t.Context(), fresh, goosed); err != nil || !slices.Equal(schemaOf(t, fresh), want) {
		t.Errorf("goose does not find its own versions: %v", err)
	}
	for n := 1; n <= len(names); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			set, some := goosed, fstest.MapFS{}
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
			if err := migrate(t.Context(), db, schema.Files); err != nil {
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
		if err := migrate(t.Context(), db, schema.Files); fault.CodeOf(err) != want {
			t.Errorf("%d ahead: %v", ahead, err)
		}
		if ahead > 0 && !slices.Equal(schemaOf(t, db), before) {
			t.Errorf("%d ahead: the file was changed", ahead)
		}
	}
}

// TestManyOpenANewFileAtOnce: one makes it, the others find it done. Setting a new file's mode waits
// for nobody.
func TestManyOpenANewFileAtOnce(t *testing.T) {
	t.Parallel()
	for range 40 {
		path := filepath.Join(t.TempDir(), "a.db")
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				db, err := Open(t.Context(), path, Options{Now: time.Now, Poll: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

// TestOpenWhileAnotherWrites: a file at the newest version, or one ahead, is opened while another process
// writes.
func TestOpenWhileAnotherWrites(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	db := testFile(t, path)
	if err := migrate(t.Context(), db, schema.Files); err != nil {
		t.Fatal(err)
	}
	names, _ := schema.Files.ReadDir(".")
	if _, err := db.ExecContext(t.Context(), sqlSetVersion, len(names)+1); err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	other, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(0)")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := migrate(t.Context(), other, schema.Files); err != nil {
		t.Error(err)
	}
}

// TestAllOrNothing: where the last script fails, those before it are undone with it, on a new file and
// on one of the version before; it is not the file that is damaged.
func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	names, err := schema.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	whole := fstest.MapFS{}
	for _, f := range names {
		text, err := schema.Files.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		whole[f.Name()] = &fstest.MapFile{Data: text}
	}
	more := maps.Clone(whole)
	more["99998_good.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE mooring_outbox_new (n INTEGER);\n")}
	more["99999_bad.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE INDEX mooring_outbox_newer ON mooring_outbox_new (n);\nCREATE TABLE mooring_outbox (n INTEGER);\n")}
	for name, before := range map[string]fstest.MapFS{"a new file": nil, "the version before": whole} {
		db := testFile(t, filepath.Join(t.TempDir(), "a.db"))
		objects := func() (n int) {
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_master").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		var schemaThen []string
		if before != nil {
			if err := migrate(t.Context(), db, before); err != nil {
				t.Fatal(err)
			}
			schemaThen = schemaOf(t, db)
		}
		n := objects()
		err := migrate(t.Context(), db, more)
		if err == nil || fault.CodeOf(migrateFailure(err)) != fault.Internal || !strings.Contains(err.Error(), "99999_bad.sql") {
			t.Errorf("%s: %v", name, err)
		}
		if objects() != n || before != nil && !slices.Equal(schemaOf(t, db), schemaThen) {
			t.Errorf("%s: %d tables and indexes, %d before", name, objects(), n)
		}
		if err := migrate(t.Context(), db, whole); err != nil {
			t.Errorf("%s: then: %v", name, err)
		}
	}
}
