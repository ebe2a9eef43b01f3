package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/internal/until"
)

const testTimeout = time.Minute

func openOn(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: url, MaxConns: 3, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// admin is a connection beside the store's.
func admin(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// TestUnsafe: a database that is set to lose commits is refused, also when the
// setting changes while we run.
func TestUnsafe(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	conn := admin(t, url)
	var name string
	if err := conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	set := func(value string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), "ALTER DATABASE "+name+" SET synchronous_commit = "+value); err != nil {
			t.Fatal(err)
		}
	}
	running := openOn(t, url)
	set("off")
	_, err := Open(t.Context(), Config{URL: url})
	if fault.CodeOf(err) != fault.UnsafeStore || !strings.Contains(err.Error(), "synchronous_commit") {
		t.Errorf("synchronous_commit off: %v", err)
	}
	terminate(t, conn) // so that the store that is open needs new connections
	until.True(t, "the open store refuses", func() bool {
		_, err := running.ReadAccess(t.Context(), "", nil)
		return fault.CodeOf(err) == fault.UnsafeStore
	})
	s, err := Open(t.Context(), Config{URL: url, AllowUnsafe: true})
	if err != nil {
		t.Errorf("allowed: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
	set("local")
	openOn(t, url)
	until.True(t, "the open store goes on", func() bool {
		_, err := running.ReadAccess(t.Context(), "", nil)
		return err == nil
	})
}

// TestSafetyLasts: what a running server's connections have committed stays committed also when
// the whole database is told to lose commits, and what concerns all of it is found by Ping.
func TestSafetyLasts(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	for _, unsafe := range []bool{false, true} {
		b := bare(t, url, nil)
		b.allowUnsafe = unsafe
		if err := b.Ping(t.Context()); err != nil {
			t.Errorf("a database that is safe: %v", err)
		}
		err := b.pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
			var source string
			if err := c.QueryRow(t.Context(), "SELECT source FROM pg_settings WHERE name = 'synchronous_commit'").Scan(&source); err != nil {
				return err
			}
			if source != "session" { // which goes before ALTER SYSTEM and a reload
				t.Errorf("synchronous_commit is what the %s says", source)
			}
			_, err := c.Exec(t.Context(), "SET synchronous_commit = off")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Ping(t.Context()); (fault.CodeOf(err) == fault.UnsafeStore) == unsafe {
			t.Errorf("a database that is not, and is allowed %v: %v", unsafe, err)
		}
	}
}

// TestMaxConns: what the caller says goes before what the URL says.
func TestMaxConns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url        string
		most, want int
	}{
		{"postgres://u@h/d", 0, max(8, 4*runtime.GOMAXPROCS(0))}, {"postgres://u@h/d", 5, 5}, {"postgres://u@h/d?pool_max_conns=3", 0, 3},
		{"host=h dbname=d pool_max_conns=3", 0, 3}, {"postgres://u@h/d?pool_max_conns=3", 5, 5}, {"postgres://u@h/d", 1 << 20, 1 << 15},
	} {
		pc, err := poolConfig(Config{URL: c.url, MaxConns: c.most})
		if err != nil || int(pc.MaxConns) != c.want {
			t.Errorf("%s and %d: %d connections, want %d, %v", c.url, c.most, pc.MaxConns, c.want, err)
		}
	}
}

// TestModes: lists are sent whatever way of running statements the URL asks for.
func TestModes(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		s := openOn(t, url+sep+"default_query_exec_mode="+mode)
		a, b := harness.NewAgent(t, s), harness.NewAgent(t, s)
		rows, err := s.ReadRows(t.Context(), []string{a.Session, b.Session, "ses_none"})
		if err != nil || len(rows) != 2 {
			t.Errorf("%s: %d rows of two sessions: %v", mode, len(rows), err)
		}
	}
}

// Connections of the store are tuned, and those of an outbox's pool likewise (TestPlansGoByKeys there).
func TestConnectionsAreTuned(t *testing.T) {
	t.Parallel()
	pc, err := poolConfig(Config{URL: pgtest.URL(t)})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	err = pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
		if got := fmt.Sprintf("%T", c.Conn().PgConn().Conn()); got != "*socket.directConn" {
			t.Errorf("their sockets are read as a %s", got)
		}
		var seqscan, plans, lz4 string
		err := c.QueryRow(t.Context(), `SELECT current_setting('enable_seqscan'), current_setting('plan_cache_mode'), (SELECT
			CASE WHEN bool_or('lz4' = ANY (enumvals)) THEN current_setting('default_toast_compression', true) ELSE 'lz4' END
			FROM pg_settings WHERE name = 'default_toast_compression')`).Scan(&seqscan, &plans, &lz4)
		if seqscan != "off" || plans != "force_generic_plan" || lz4 != "lz4" {
			t.Errorf("they read tables through: %s; plan: %s; compress: %s", seqscan, plans, lz4)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTurnedOff(t *testing.T) {
	t.Parallel()
	off := turnedOff(map[string]string{"fsync": "off", "synchronous_commit": "remote_apply", "full_page_writes": "off"})
	if strings.Join(off, " ") != "fsync full_page_writes" {
		t.Errorf("off: %v", off)
	}
	if off := turnedOff(map[string]string{"fsync": "on", "synchronous_commit": "local"}); off != nil {
		t.Errorf("off: %v", off)
	}
}

// terminate ends all other connections to the database.
func terminate(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	_, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	if err != nil {
		t.Fatal(err)
	}
}

// TestAway: a database that cannot be reached is unavailable, and nothing that
// is said of it tells its password.
func TestAway(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]fault.Code{
		"postgres://u:s3cret@" + l.Addr().String() + "/db": fault.Unavailable,
		"postgres://u:s3cret@bad host/db":                  fault.Usage,
		"postgres://u:s3cret@h:port/db":                    fault.Usage,
	} {
		_, err := Open(t.Context(), Config{URL: url})
		if fault.CodeOf(err) != want || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, Config{URL: pgtest.URL(t)}); fault.CodeOf(err) != fault.Canceled {
		t.Errorf("a start that was given up: %v", err)
	}
}

// TestLostLink: transactions whose connection dies are unavailable, without a
// trace, and the next ones work.
func TestLostLink(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, conn := openOn(t, url), admin(t, url)
	const id = "ses_1"
	row := &session.Row{ID: id, Space: "spc_1", Life: session.Live, Epoch: 1}
	for range 5 {
		err := s.Update(t.Context(), func(tx session.Tx) error {
			if _, err := tx.Load(t.Context(), &session.ReadSet{Sessions: []string{id}}); err != nil {
				return err
			}
			terminate(t, conn)
			return tx.Save(t.Context(), &session.Changes{Sessions: []*session.Row{row}})
		})
		if fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("a lost link: %v", err)
		}
		until.True(t, "the store works again", func() bool {
			sight, err := s.ReadAccess(t.Context(), id, nil)
			if err == nil && sight.Row != nil {
				t.Errorf("the lost transaction left a row: %+v", sight.Row)
			}
			return err == nil
		})
	}
}

// TestFrozenServer: a server that stands still in a transaction keeps nobody from its sessions for
// long, and finds out that it was given up.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	s, frozen := openOn(t, url), openOn(t, url+sep+"idle_in_transaction_session_timeout=100")
	lock := func(s *store.Store, then func()) error {
		return s.Update(t.Context(), func(tx session.Tx) error {
			_, err := tx.Load(t.Context(), &session.ReadSet{Sessions: []string{"ses_1"}})
			then()
			return errors.Join(err, tx.Save(t.Context(), &session.Changes{Sessions: []*session.Row{{ID: "ses_1"}}}))
		})
	}
	err := lock(frozen, func() {
		if err := lock(s, func() {}); err != nil {
			t.Errorf("another server: %v", err)
		}
	})
	if fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("a server that stood still: %v", err)
	}
}

// TestASessionInUseTakesOneConnection: however many streams are opened in a session whose lock is
// held for long, there are connections left for the other sessions.
func TestASessionInUseTakesOneConnection(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, conn, watching := openOn(t, url), admin(t, url), admin(t, url)
	var opening sync.WaitGroup
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "INSERT INTO sessions (id) VALUES ('ses_1')"); err != nil {
			return err
		}
		for i := range 9 { // more than there are connections
			opening.Go(func() {
				key := session.StreamKey{Session: "ses_1", Outbox: fmt.Sprint("obx_", i)}
				if _, err := s.OpenStream(t.Context(), session.StreamRequest{Key: key, SecretHash: [32]byte{1}, Incarnation: 1}); err != nil {
					t.Errorf("open stream %d: %v", i, err)
				}
			})
		}
		for waits := 0; waits == 0; {
			err := watching.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waits)
			if err != nil {
				return err
			}
		}
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout/3)
			_, err := s.ReadAccess(ctx, "ses_2", nil)
			if cancel(); err != nil {
				t.Errorf("another session cannot be read: %v", err)
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	opening.Wait()
}

// TestListenAgain: Listen comes back after its link was lost, and says that
// something may have been missed.
func TestListenAgain(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, conn := openOn(t, url), admin(t, url)
	heard := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func(id string, _ uint64) { heard <- id }) }()
	next := func(want string) {
		t.Helper()
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("heard %q, want %q", got, want)
			}
		case <-time.After(testTimeout):
			t.Fatalf("did not hear %q", want)
		}
	}
	notify := func(payload string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), "SELECT pg_notify($1, $2)", channel, payload); err != nil {
			t.Fatal(err)
		}
	}
	next("")
	notify("ses_1 5")
	next("ses_1")
	for range 2 {
		terminate(t, conn)
		next("")
		for _, garbage := range []string{"", "ses_1", "ses_1 x", " 5", "ses_1 -1", "a b c"} {
			notify(garbage)
		}
		if _, err := conn.Exec(t.Context(), "SELECT pg_notify('another_channel', 'ses_3 1')"); err != nil {
			t.Fatal(err)
		}
		notify("ses_2 6")
		next("ses_2")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("listen: %v", err)
	}
}

// TestDatabaseErrors: what codes of the database mean.
func TestDatabaseErrors(t *testing.T) {
	t.Parallel()
	conn := admin(t, pgtest.URL(t))
	for code, want := range map[string]fault.Code{
		"53100": fault.DiskFull, "53300": fault.Unavailable, "57P01": fault.Unavailable, "57014": fault.Unavailable,
		"08006": fault.Unavailable, "25006": fault.Unavailable, "40P01": fault.Unavailable, "40001": fault.Unavailable,
		"55P03": fault.Unavailable, "25P03": fault.Unavailable, "25P04": fault.Unavailable, "25001": fault.Internal, "28P01": fault.Unavailable, "3D000": fault.Unavailable, "23505": fault.Internal, "42601": fault.Internal,
	} {
		_, err := conn.Exec(t.Context(), "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '"+code+"'; END $$")
		if got := translate(t.Context(), err); fault.CodeOf(got) != want || !errors.Is(got, err) {
			t.Errorf("%s: %v, want %v", code, got, want)
		}
	}
}
