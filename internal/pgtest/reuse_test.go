//go:build unix

// Tests of databases that are used again.

package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// use has a test of its own run statements in a database, leave a connection open and say which database it was.
func use(t *testing.T, p *Template, statements ...string) (url string, oid uint32) {
	t.Run("user", func(t *testing.T) {
		url = p.URL(t)
		oid = query[uint32](t, url, "SELECT oid FROM pg_database WHERE datname = current_database()")
		for _, sql := range statements {
			if err := execute(url, sql); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := pgx.Connect(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	})
	return url, oid
}

func TestADatabaseIsEmptyWhenItIsUsedAgain(t *testing.T) {
	t.Parallel()
	p := new(Template)
	url, oid := use(t, p, "CREATE TABLE a (i serial PRIMARY KEY); INSERT INTO a DEFAULT VALUES; CREATE TABLE b (i int REFERENCES a)",
		"CREATE SCHEMA other; CREATE TABLE other.a (i int); CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'")
	if err := execute(process.url, "ALTER DATABASE "+nameOf(p.free(t))+" SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	again, same := use(t, p)
	if again == url || same != oid {
		t.Errorf("%s (%d) is followed by %s (%d)", url, oid, again, same)
	}
	if err := execute(url, "SELECT 1"); err == nil {
		t.Error("the database is still there by the first one's name")
	}
	last := p.URL(t)
	for sql, want := range map[string]int{
		"SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace":                            0,
		"SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace":                             0,
		"SELECT count(*) FROM pg_namespace WHERE nspname = 'other'":                                            0,
		"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()": 0,
		"SELECT count(*) FROM pg_settings WHERE name = 'synchronous_commit' AND source = 'database'":           0,
	} {
		if n := query[int](t, last, sql); n != want {
			t.Errorf("%s: %d, want %d", sql, n, want)
		}
	}
}

// free is the one database that waits for its next user.
func (p *Template) free(t *testing.T) string {
	t.Helper()
	reused.Lock()
	defer reused.Unlock()
	if len(reused.free[p]) != 1 {
		t.Fatalf("%d databases are free, want 1", len(reused.free[p]))
	}
	return reused.free[p][0]
}

func TestAPreparedDatabaseIsAsItWasMade(t *testing.T) {
	t.Parallel()
	made := 0
	p := &Template{Make: func(url string) error {
		made++
		return execute(url, "CREATE TABLE kinds (i int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text); INSERT INTO kinds (name) VALUES ('x'), ('y');"+
			"CREATE TABLE things (kind int REFERENCES kinds); CREATE TABLE untouched (i int)")
	}}
	use(t, p, "DELETE FROM kinds WHERE name = 'x'; UPDATE kinds SET name = 'z'; INSERT INTO kinds (name) VALUES ('w'); INSERT INTO things VALUES (2)")
	url := p.URL(t)
	if made != 1 {
		t.Errorf("made %d times", made)
	}
	if got := query[string](t, url, "SELECT string_agg(i || name, ' ' ORDER BY i) FROM kinds"); got != "1x 2y" {
		t.Errorf("the rows that were made: %s", got)
	}
	if n := query[int](t, url, "SELECT pg_relation_size('things')"); n != 0 {
		t.Errorf("what was empty has %d bytes", n)
	}
}

func TestDatabasesOfFailedTestsAreDropped(t *testing.T) {
	t.Parallel()
	server, err := ServerURL(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := new(Template)
	at := withDatabase(server, newName())
	if err := p.create(server, at); err != nil {
		t.Fatal(err)
	}
	if err := p.giveBack(server, at, true); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.take(); ok {
		t.Error("it is handed out again")
	}
	if n := query[int](t, server, "SELECT count(*) FROM pg_database WHERE datname = $1", nameOf(at)); n != 0 {
		t.Error("it is still there")
	}
}
