//go:build unix

// Package pgtest gives tests a real Postgres, on any machine and without
// preparation.
//
// URL hands out an empty database, which may have been another test's before
// (reuse.go). Its server is the one that
// MOORING_TEST_DATABASE_URL names; else a throw-away cluster of the machine's
// own PostgreSQL (find.go), which is installed first where it is missing and
// the package manager may be used (install.go). There is no third way: a test
// that cannot have its database fails and says what to install.
//
// The throw-away cluster is shared by every test process of the same user that
// runs at the same time, because initdb costs seconds (pool.go). Each process
// holds a lease, a shared file lock that the kernel drops when the process dies
// in whatever manner; a watchdog process (watchdog.go) stops the cluster and
// removes its folder once nobody has held the lease for a while. Clusters run
// with fsync on, on a free port of 127.0.0.1, behind a random password, and as
// an unprivileged user where the tests run as root (cluster.go).
//
// Start gives a test a cluster of its own, to be stopped, killed and started
// again (server.go). The command in cmd/pgtest runs another command, such as
// "go test ./...", with MOORING_TEST_DATABASE_URL set to the shared cluster.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// EnvURL names the variable with the URL of a server to use instead of a
// throw-away cluster. Its user must be allowed to create databases.
const EnvURL = "MOORING_TEST_DATABASE_URL"

// databaseTimeout bounds creating or dropping one database.
const databaseTimeout = 60 * time.Second

// process is what this process knows of the server it uses.
var process struct {
	sync.Mutex
	url   string
	lease *os.File // held until the process ends
	err   error    // why there is none; not tried twice
}

// URL creates an empty database for tb and returns its connection URL. The
// database is gone, with whatever is still connected to it, when tb ends: it is
// dropped, or emptied for others under another name (Reuse). Safe from parallel tests and from several test processes at once. If there is
// no Postgres to be had, tb fails at once with what to install.
func URL(tb testing.TB) string {
	tb.Helper()
	return empty.URL(tb)
}

// ServerURL returns the URL of the server that this process's tests use, with a
// database that exists for making others from. The first call in a process
// finds or starts the server, which may take some seconds, and minutes if
// PostgreSQL has to be installed. The server stays for as long as the process.
func ServerURL(ctx context.Context) (string, error) {
	process.Lock()
	defer process.Unlock()
	if process.url != "" || process.err != nil {
		return process.url, process.err
	}
	if given := os.Getenv(EnvURL); given != "" {
		if u, err := url.Parse(given); err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
			// Neither the URL nor the error is printed: a password may be in them.
			process.err = fmt.Errorf("%s must be a URL like postgres://user@host:5432/postgres", EnvURL)
			return "", process.err
		}
		process.url = given
		return given, nil
	}
	p, err := defaultPool()
	if err == nil {
		process.url, process.lease, err = p.shared(ctx)
	}
	process.err = err
	return process.url, process.err
}

// Copy creates a database as another of this package's is now and returns its URL, as
// URL does. Nobody may be connected to the other one.
func Copy(tb testing.TB, databaseURL string) string {
	tb.Helper()
	server, err := ServerURL(context.Background())
	if err != nil {
		tb.Fatalf("pgtest: no Postgres for this test: %v", err)
	}
	name := newName()
	if err := createFrom(server, nameOf(databaseURL), name); err != nil {
		tb.Fatalf("pgtest: create database: %v", err)
	}
	tb.Cleanup(func() {
		if err := drop(server, name); err != nil {
			tb.Errorf("pgtest: drop database: %v", err)
		}
	})
	return withDatabase(server, name)
}

// Dump is Copy of a database to which others are connected, and go on writing: one state of it, as
// pg_dump and psql carry it over, which have to be on this machine.
func Dump(tb testing.TB, databaseURL string) string {
	tb.Helper()
	to := URL(tb)
	bin, err := thisMachine().find(tb.Context())
	if err != nil {
		tb.Fatalf("pgtest: pg_dump: %v", err)
	}
	dump := exec.CommandContext(tb.Context(), filepath.Join(bin, "pg_dump"), "--dbname", databaseURL)
	load := exec.CommandContext(tb.Context(), filepath.Join(bin, "psql"), "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--output", os.DevNull, "--dbname", to)
	var said lockbuf.Buffer
	dump.Stderr, load.Stderr = &said, &said
	if load.Stdin, err = dump.StdoutPipe(); err != nil {
		tb.Fatal(err)
	}
	if err = load.Start(); err == nil {
		err = errors.Join(dump.Run(), load.Wait())
	}
	if err != nil {
		tb.Fatalf("pgtest: copy a database: %v\n%s", err, said.String())
	}
	return to
}

// createFrom creates a database. The template template0 takes no connections, so that creating
// from it is never refused because somebody is connected to it.
func createFrom(server, template, name string) error {
	return execute(server, "CREATE DATABASE "+name+" TEMPLATE "+template)
}

// drop drops a database if it is there, with whatever is still connected to it.
func drop(server, name string) error {
	return execute(server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

func newName() string { return fmt.Sprintf("mooring_test_%d_%s", os.Getpid(), randomHex(6)) }

// withDatabase returns the URL with another database in it.
func withDatabase(serverURL, name string) string {
	u, err := url.Parse(serverURL)
	if err != nil {
		panic("pgtest: a server's URL was not checked") // ServerURL does
	}
	u.Path = "/" + name
	return u.String()
}

// execute runs one statement on a connection of its own. It is tried again for
// a short time when the server is at its connection limit or has the template
// in use.
func execute(serverURL, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	for {
		err := executeOnce(ctx, serverURL, sql)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || (pgErr.Code != "53300" && pgErr.Code != "55006") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func executeOnce(ctx context.Context, serverURL, sql string) error {
	conn, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}

// randomHex returns n random bytes as hexadecimal text.
func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
