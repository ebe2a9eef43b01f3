package migrations

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// database opens connections to one empty database.
type database struct {
	name string
	set  Set
	open func(testing.TB) func() *sql.DB
}

var databases = []database{
	{"postgres", Postgres, func(tb testing.TB) func() *sql.DB {
		url := pgtest.URL(tb)
		return opener(tb, "pgx", url, 2)
	}},
	{"sqlite", SQLite, func(tb testing.TB) func() *sql.DB {
		return opener(tb, "sqlite", "file:"+filepath.Join(tb.TempDir(), "x.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate", 1)
	}},
}

func opener(tb testing.TB, driver, source string, conns int) func() *sql.DB {
	return func() *sql.DB {
		db, err := sql.Open(driver, source)
		if err != nil {
			tb.Fatal(err)
		}
		db.SetMaxOpenConns(conns)
		tb.Cleanup(func() {
			if err := db.Close(); err != nil {
				tb.Error(err)
			}
		})
		return db
	}
}

// TestUpAtOnce: any number of processes on one empty database.
func TestUpAtOnce(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			open := d.open(t)
			var all sync.WaitGroup
			for range 4 {
				db := open()
				all.Go(func() {
					if err := Up(t.Context(), db, d.set); err != nil {
						t.Errorf("up: %v", err)
					}
				})
			}
			all.Wait()
			db := open()
			if err := Up(t.Context(), db, d.set); err != nil {
				t.Errorf("up again: %v", err)
			}
			var rows int
			if err := db.QueryRow("SELECT count(*) FROM sessions").Scan(&rows); err != nil {
				t.Errorf("the tables are not there: %v", err)
			}
			var applied, versions int
			if err := db.QueryRow("SELECT count(*), count(DISTINCT version_id) FROM "+d.set.Table).Scan(&applied, &versions); err != nil || applied != versions {
				t.Errorf("%d rows of %d versions, %v", applied, versions, err)
			}
		})
	}
}

// TestFuture: a database one version ahead is accepted, one further ahead is not.
func TestFuture(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)()
			if err := Up(t.Context(), db, d.set); err != nil {
				t.Fatal(err)
			}
			var newest int
			if err := db.QueryRow("SELECT max(version_id) FROM " + d.set.Table).Scan(&newest); err != nil {
				t.Fatal(err)
			}
			for ahead, want := range map[int]fault.Code{1: fault.None, 2: fault.Incompatible} {
				if _, err := db.Exec("INSERT INTO "+d.set.Table+" (version_id, is_applied) VALUES ($1, true)", newest+ahead); err != nil {
					t.Fatal(err)
				}
				if err := Up(t.Context(), db, d.set); fault.CodeOf(err) != want {
					t.Errorf("%d ahead: %v, want %v", ahead, err, want)
				}
				if _, err := db.Exec("DELETE FROM "+d.set.Table+" WHERE version_id > $1", newest); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestCanceled: a migration that is given up leaves a database that the next
// one brings up.
func TestCanceled(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := Up(ctx, db, d.set); err == nil {
				t.Error("a canceled migration succeeded")
			}
			if err := Up(t.Context(), db, d.set); err != nil {
				t.Errorf("the next: %v", err)
			}
		})
	}
}
