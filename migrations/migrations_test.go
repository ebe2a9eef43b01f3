package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// database opens connections to one empty database.
type database struct {
	name string
	set  Schema
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

// pooled is a connection through a pooler that gives each transaction another one of its own.
type pooled struct {
	conns [2]driver.Conn
	next  int
	begun bool
}

func (p *pooled) conn() driver.Conn {
	if !p.begun {
		p.next = 1 - p.next
	}
	return p.conns[p.next]
}

func (p *pooled) Prepare(query string) (driver.Stmt, error) { return p.conn().Prepare(query) }

func (p *pooled) Close() error { return errors.Join(p.conns[0].Close(), p.conns[1].Close()) }

func (p *pooled) Begin() (driver.Tx, error) {
	return p.BeginTx(context.Background(), driver.TxOptions{})
}

func (p *pooled) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := p.conn().(driver.ConnBeginTx).BeginTx(ctx, options)
	p.begun = err == nil
	return &pooledTx{tx, p}, err
}

func (p *pooled) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return p.conn().(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (p *pooled) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return p.conn().(driver.QueryerContext).QueryContext(ctx, query, args)
}

type pooledTx struct {
	driver.Tx
	of *pooled
}

func (t *pooledTx) Commit() error   { t.of.begun = false; return t.Tx.Commit() }
func (t *pooledTx) Rollback() error { t.of.begun = false; return t.Tx.Rollback() }

// pooler connects to a database in that way.
type pooler struct{ url string }

func (p pooler) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

func (p pooler) Connect(context.Context) (driver.Conn, error) {
	var conns [2]driver.Conn
	for i := range conns {
		var err error
		if conns[i], err = p.Driver().Open(p.url); err != nil {
			return nil, err
		}
	}
	return &pooled{conns: conns}, nil
}

// TestNoLockIsLeft: also where each transaction has another connection the lock ends with the
// migration, and keeps another process out for so long.
func TestNoLockIsLeft(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db, other := sql.OpenDB(pooler{url}), opener(t, "pgx", url, 1)()
	defer db.Close()
	db.SetMaxOpenConns(2)
	for range 2 {
		if err := Up(t.Context(), db, Postgres); err != nil {
			t.Fatal(err)
		}
		var locks int
		err := other.QueryRow("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&locks)
		if err != nil || locks != 0 {
			t.Fatalf("%d locks are left, %v", locks, err)
		}
	}
}

// TestUpAmongTransactions: a migration is done although Postgres gives it up in favour of a transaction
// that needs what it has locked, and has what it needs.
func TestUpAmongTransactions(t *testing.T) {
	t.Parallel()
	open := opener(t, "pgx", pgtest.URL(t), 4)
	db := open()
	newest, err := Postgres.Newest()
	if err != nil {
		t.Fatal(err)
	}
	if err := Up(t.Context(), db, upTo(t, Postgres, int(newest)-1)); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	do := func(statement string) {
		t.Helper()
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	do("SET LOCAL deadlock_timeout = '1min'") // so it is the migration that finds the deadlock, and is given up
	do("LOCK TABLE grants IN ROW EXCLUSIVE MODE")
	migrated := make(chan error, 1)
	go func() { migrated <- Up(context.WithoutCancel(t.Context()), db, Postgres) }()
	for waits := false; !waits; {
		if err := db.QueryRow("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'grants'::regclass AND NOT granted)").Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	do("LOCK TABLE sessions IN ROW EXCLUSIVE MODE") // which the migration has
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Errorf("up: %v", err)
	}
	var at int64
	if err := db.QueryRow("SELECT max(version_id) FROM " + Postgres.Table).Scan(&at); err != nil || at != newest {
		t.Errorf("at version %d, not %d, %v", at, newest, err)
	}
}

// TestNoTableIsSeenEmpty: to a transaction that began before, Postgres shows a table that a migration has
// written anew without its rows. One that waits for such a table is ended, and done again it sees them.
func TestNoTableIsSeenEmpty(t *testing.T) {
	t.Parallel()
	db := opener(t, "pgx", pgtest.URL(t), 12)()
	if err := Up(t.Context(), db, upTo(t, Postgres, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO sessions (id, space, external) VALUES ('ses_1', 'spc_1', 'x')"); err != nil {
		t.Fatal(err)
	}
	begin := func(opts *sql.TxOptions, statement string) *sql.Tx {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() }) // after its end it does nothing
		if _, err := tx.Exec(statement); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	waiting := func(n int) { // waits until n transactions wait for the table
		t.Helper()
		for got := -1; got != n; {
			if err := db.QueryRow("SELECT count(*) FROM pg_locks WHERE relation = 'sessions'::regclass AND NOT granted").Scan(&got); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := func(tx *sql.Tx) (n int, err error) {
		err = tx.QueryRow("SELECT count(*) FROM sessions").Scan(&n)
		return n, err
	}
	holder := begin(nil, "LOCK TABLE sessions IN ACCESS SHARE MODE")
	migrated := make(chan error, 1)
	go func() { migrated <- Up(context.WithoutCancel(t.Context()), db, upTo(t, Postgres, 4)) }()
	waiting(1)
	snapshot := &sql.TxOptions{Isolation: sql.LevelRepeatableRead}
	reader := begin(snapshot, "SELECT 1")
	idle := begin(snapshot, "SELECT 1")
	read := make(chan error, 1)
	go func() {
		n, err := seen(reader)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d sessions", n)
		} else if err != nil && strings.Contains(err.Error(), "57P01") {
			err = nil
		}
		read <- err
	}()
	waiting(2)
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Errorf("up: %v", err)
	}
	if err := <-read; err != nil {
		t.Errorf("a transaction that waited has seen: %v", err)
	}
	if n, err := seen(idle); err == nil && n != 1 {
		t.Errorf("a transaction that had begun has seen %d sessions", n)
	}
	if n, err := seen(begin(snapshot, "SELECT 1")); err != nil || n != 1 {
		t.Errorf("a later one has seen %d sessions, %v", n, err)
	}
}
