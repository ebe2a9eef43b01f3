//go:build unix

// Tests of what tests see: URL and Server.

package pgtest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if base := os.Getenv(envHolder); base != "" {
		holdShared(base)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(Reuse()))
}

// query returns the one value that sql selects.
func query[T any](t *testing.T, serverURL, sql string, args ...any) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var value T
	if err := conn.QueryRow(ctx, sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func TestURLGivesEachTestItsOwnEmptyDatabase(t *testing.T) {
	t.Parallel()
	first, second := URL(t), URL(t)
	if first == second {
		t.Fatalf("both databases are %s", first)
	}
	if err := execute(first, "CREATE TABLE only_in_first (a int)"); err != nil {
		t.Fatal(err)
	}
	const tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
	if n := query[int](t, first, tables); n != 1 {
		t.Errorf("tables in the first database: %d, want 1", n)
	}
	if n := query[int](t, second, tables); n != 0 {
		t.Errorf("tables in the second database: %d, want 0", n)
	}
}

func TestURLTakesAwayTheDatabaseThatIsStillInUse(t *testing.T) {
	t.Parallel()
	var server, name string
	t.Run("user", func(t *testing.T) {
		url := URL(t)
		server, name = process.url, query[string](t, url, "SELECT current_database()")
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		// Left open on purpose, until after the database is taken away.
		t.Cleanup(func() {
			if err := conn.Ping(context.Background()); err != nil {
				t.Errorf("the connection was cut before the test ended: %v", err)
			}
		})
	})
	const exists = "SELECT count(*) FROM pg_database WHERE datname = $1"
	if n := query[int](t, server, exists, name); n != 0 {
		t.Errorf("database %s is still there after its test", name)
	}
}

func TestURLFromManyTestsAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			if one := query[int](t, URL(t), "SELECT 1"); one != 1 {
				t.Errorf("SELECT 1 gives %d", one)
			}
		})
	}
}

// A given server's settings are its owner's business, so this asks a cluster
// that is surely ours.
func TestClusterIsDurableAndTakesManyConnections(t *testing.T) {
	t.Parallel()
	s := Start(t)
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := query[string](t, s.URL(), "SELECT current_setting($1)", setting); got != "on" {
			t.Errorf("%s is %s, want on", setting, got)
		}
	}
	if n := query[int](t, s.URL(), "SELECT current_setting('max_connections')::int"); n < 200 {
		t.Errorf("max_connections is %d, want at least 200", n)
	}
	if got := query[string](t, s.URL(), "SELECT current_setting('server_encoding')"); got != "UTF8" {
		t.Errorf("encoding is %s, want UTF8", got)
	}
}

func TestServerComesBackWithWhatWasCommitted(t *testing.T) {
	t.Parallel()
	s := Start(t)
	url := s.Database()
	if err := execute(url, "CREATE TABLE kept (a int)"); err != nil {
		t.Fatal(err)
	}
	for round, down := range []func(){s.Stop, s.Kill, s.Kill} {
		if err := execute(url, fmt.Sprintf("INSERT INTO kept VALUES (%d)", round)); err != nil {
			t.Fatal(err)
		}
		down()
		if err := ping(t.Context(), url); err == nil {
			t.Fatalf("round %d: the server answers though it is down", round)
		}
		s.Start()
		if n := query[int](t, url, "SELECT count(*) FROM kept"); n != round+1 {
			t.Fatalf("round %d: %d rows after the restart, want %d", round, n, round+1)
		}
	}
	s.Start() // of a running server: nothing
}

func TestServerLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	var dir string
	t.Run("user", func(t *testing.T) {
		s := Start(t)
		dir = s.cluster.dir
		if _, err := os.Stat(dir); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the cluster's folder is still there: %v", err)
	}
}
