package outbox

// Databases in trouble: full, read-only, damaged, locked, unsafe, away.

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

func TestFullDisk(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite")
	b := p.open(t, quick())
	srv := newFakeServer()
	session := withSession(t, b)
	run(t, b, srv)
	wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
	ctx := limited(t)
	eventually(t, "the outcome is stored", func() bool { // who waits is told before
		st, err := b.Status(ctx)
		return err == nil && st.Unfinished() == 0
	})
	limit := func(pages string) {
		t.Helper()
		db := b.db.(*sqlite.DB)
		done := make(chan struct{})
		b.w.Submit(&writer.Job{Run: func(context.Context, sqlstore.Querier) error {
			_, err := db.Writer.Conn.ExecContext(ctx, "PRAGMA max_page_count = "+pages)
			return err
		}, Done: func(err error, _ bool) {
			if err != nil {
				t.Error(err)
			}
			close(done)
		}})
		<-done
	}
	limit("1") // becomes what there is: SQLite answers as it does when the disk is full
	large := put(`"` + strings.Repeat("x", 100_000) + `"`)
	if _, err := b.Commit(ctx, Batch{Session: session, Ops: []Op{large, large}}); !errors.Is(err, fault.DiskFull) {
		t.Fatalf("full: %v", err)
	}
	st, err := b.Status(ctx)
	if err != nil || st.Unfinished() != 0 || len(srv.log(session)) != 1 {
		t.Fatalf("something was kept: %+v, %v", st, err)
	}
	limit("1000000")
	if o := wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{large}}))[0]; o.Cursor != 2 {
		t.Errorf("%+v", o)
	}
}

// codeError is an error of SQLite's.
type codeError int

func (codeError) Error() string { return "on request" }
func (e codeError) Code() int   { return int(e) }

// TestCommitThatCouldNotBeSynced may have been one; with a full disk it was none.
func TestCommitThatCouldNotBeSynced(t *testing.T) {
	t.Parallel()
	for code, unsure := range map[int]bool{
		sqlite3.SQLITE_IOERR_FSYNC: true, sqlite3.SQLITE_IOERR_DIR_FSYNC: true, sqlite3.SQLITE_IOERR: true,
		sqlite3.SQLITE_FULL: false, sqlite3.SQLITE_IOERR_WRITE: false, sqlite3.SQLITE_BUSY: false, sqlite3.SQLITE_CORRUPT: false,
	} {
		if err := sqlite.Failure(codeError(code)); sqlite.AmbiguousCommit(err) != unsure {
			t.Errorf("%d: %v", code, err)
		}
	}
	if sqlite.AmbiguousCommit(nil) || sqlite.AmbiguousCommit(context.Canceled) {
		t.Error("without an error of SQLite's")
	}
}

func TestFileModeAndTrouble(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite")
	b := p.open(t, quick())
	withSession(t, b)
	for _, name := range []string{p.at, p.at + "-wal"} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
	if err := os.Chmod(p.at, 0o644); err != nil {
		t.Fatal(err)
	}
	p.open(t, quick())
	if info, _ := os.Stat(p.at); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	for name, path := range map[string]string{"no folder": t.TempDir() + "/no/such/box.db", "a folder": t.TempDir()} {
		_, err := openSQLite(limited(t), path, quick())
		if err == nil || strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	garbage := t.TempDir() + "/garbage.db"
	if err := os.WriteFile(garbage, []byte(strings.Repeat("this is no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openSQLite(limited(t), garbage, quick()); !errors.Is(err, fault.OutboxDamaged) {
		t.Errorf("garbage: %v", err)
	}
}

func TestSecretsAreNowhereElse(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		session := newSession()
		ref := testRef(t, b, session, RefMeta{Role: SessionOwner})
		run(t, b, srv)
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
		secret := ref.Secret.RevealText()
		err := b.db.Read(limited(t), func(q sqlstore.Querier) error {
			for _, table := range []string{"mooring_outbox_batch", "mooring_outbox_op", "mooring_outbox_retry", "mooring_outbox_stream"} {
				row := "CAST(x AS TEXT)"
				if p.kind != "postgres" { // all its columns, however many it has
					err := q.Query(limited(t), `SELECT group_concat('COALESCE(CAST(' || name || ' AS TEXT), '''')', ' || ') FROM pragma_table_info($1)`, []any{table},
						func(scan sqlstore.Scanner) error { return scan(&row) })
					if err != nil {
						return err
					}
				}
				err := q.Query(limited(t), "SELECT "+row+" FROM "+table+" x", nil, func(scan sqlstore.Scanner) error {
					var text string
					if err := scan(&text); err != nil {
						return err
					}
					if strings.Contains(text, secret) {
						t.Errorf("a secret in %s", table)
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Commit(limited(t), Batch{Session: session, Via: ref.Text(), Ops: []Op{put("1")}}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("a ref's text where an id belongs: %v", err)
		}
	})
}

func TestClosed(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		waited := make(chan error, 2)
		go func() { _, err := b.Wait(context.Background(), x.Batch); waited <- err }()
		go func() { waited <- b.Drain(context.Background(), nil) }()
		run(t, b, newFakeServerDown())
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-waited; !errors.Is(err, fault.Canceled) {
				t.Errorf("waiting: %v", err)
			}
		}
		if _, err := b.Commit(limited(t), Batch{Session: session, Ops: []Op{put("1")}}); !errors.Is(err, fault.Canceled) {
			t.Errorf("commit: %v", err)
		}
		if _, err := b.Status(limited(t)); !errors.Is(err, fault.Canceled) {
			t.Errorf("status: %v", err)
		}
		if err := b.Run(limited(t), newFakeServer()); !errors.Is(err, fault.Canceled) {
			t.Errorf("run: %v", err)
		}
		if err := b.PutRef(limited(t), testAddress.New(session), RefMeta{}); !errors.Is(err, fault.Canceled) {
			t.Errorf("put ref: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
}

func newFakeServerDown() *fakeServer {
	s := newFakeServer()
	s.setDown(errors.New("nobody listens"))
	return s
}

func TestPostgresTrouble(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "postgres")
	cfg, err := pgxpool.ParseConfig(p.at)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := newPostgres(limited(t), pool, "x", quick()); !errors.Is(err, fault.UnsafeStore) {
		t.Errorf("unsafe: %v", err)
	}
	allowed := quick()
	allowed.AllowUnsafe = true
	b, err := newPostgres(limited(t), pool, "x", allowed)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	_, err = openPostgres(limited(t), "postgres://u:geheim@127.0.0.1:1/none?connect_timeout=1", "x", quick())
	if !errors.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "geheim") {
		t.Errorf("away: %v", err)
	}
	_, err = openPostgres(limited(t), "postgres://u:geheim@[::x/none", "x", quick())
	if !errors.Is(err, fault.Usage) || strings.Contains(err.Error(), "geheim") {
		t.Errorf("no URL: %v", err)
	}
	for code, want := range map[string]error{"53100": fault.DiskFull, "23505": sqlstore.ErrUnique, "57P01": fault.Unavailable, "08006": fault.Unavailable,
		"57014": fault.Unavailable, "25006": fault.Unavailable, "25P03": fault.Unavailable, "25P04": fault.Unavailable, "55P03": fault.Unavailable,
		"53300": fault.Unavailable, "40P01": sqlstore.ErrTxConflict, "40001": sqlstore.ErrTxConflict} {
		if err := postgres.Failure(&pgconn.PgError{Code: code}); !errors.Is(err, want) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// overConns opens an outbox in Postgres over connections that can be made to vanish.
func overConns(t *testing.T) (*Box, *pgxpool.Pool, *connsOf) {
	t.Helper()
	p, conns := newPlace(t, "postgres"), new(connsOf)
	cfg, err := pgxpool.ParseConfig(p.at)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DialFunc = conns.dial
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // else only what was idle for a second is found
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	t.Cleanup(conns.end) // the pool need not wait for them
	b, err := newPostgres(limited(t), pool, p.name, quick())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, pool, conns
}

// TestCloseWhileTheDatabaseHangs does not take as long as a transaction may.
func TestCloseWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	b, _, conns := overConns(t)
	b.w.Grace = 200 * time.Millisecond
	session := withSession(t, b)
	srv := newFakeServer()
	srv.before = func(*ledger.Batch) (error, bool) { conns.die(); return nil, false }
	x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
	_, notified, _ := b.hub.Subscribe(x.Batch)
	run(t, b, srv)
	select {
	case <-notified: // and the outcome cannot be stored
	case <-limited(t).Done():
		t.Fatal("nothing is told")
	}
	began := time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > postgres.WriteTimeout/2 {
		t.Errorf("it took %v", took)
	}
}

// TestConnectionsThatVanish has all connections of an outbox be dead, and nobody says so: what reads is told from another
// one, and what writes is told in the end.
func TestConnectionsThatVanish(t *testing.T) {
	t.Parallel()
	b, pool, conns := overConns(t)
	db := b.db.(*postgres.DB)
	db.OwnsPool, db.Timeout = true, 500*time.Millisecond
	session := withSession(t, b)
	x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
	idle := func() {
		t.Helper()
		var all []*pgxpool.Conn
		for range 3 {
			conn, err := pool.Acquire(limited(t))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, conn)
		}
		for _, conn := range all {
			conn.Release()
		}
	}
	idle()
	conns.vanish()
	eventually(t, "it reads", func() bool { // at once, if connecting does not take long
		_, finished, err := b.outcomes(limited(t), x.Batch)
		return err == nil && !finished
	})
	idle()
	conns.vanish()
	if err := b.Drop(limited(t), x.Ops[0]); !errors.Is(err, fault.Unavailable) {
		t.Errorf("written: %v", err)
	}
	eventually(t, "it writes", func() bool { return b.Drop(limited(t), x.Ops[0]) == nil })
}

// TestPostgresComesBack cuts every connection of a running outbox.
func TestPostgresComesBack(t *testing.T) {
	t.Parallel()
	b, _, p := pgBox(t, quick())
	admin, err := pgxpool.New(context.Background(), p.at)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	srv := newFakeServer()
	session := withSession(t, b)
	run(t, b, srv)
	var tickets []Ticket
	seen := make(map[string]bool)
	for i := range 30 {
		if i%10 == 5 {
			if _, err := admin.Exec(limited(t), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"); err != nil {
				t.Fatal(err)
			}
		}
		batch := Batch{ID: opid.NewBatch(), Session: session, Ops: []Op{put("1")}}
		eventually(t, "it commits again", func() bool {
			ticket, err := b.Commit(limited(t), batch)
			if err == nil && !seen[ticket.Batch] {
				seen[ticket.Batch] = true
				tickets = append(tickets, ticket)
			}
			return err == nil
		})
	}
	for _, ticket := range tickets {
		wait(t, b, ticket)
	}
	checkLog(t, srv.log(session), tickets)
}
