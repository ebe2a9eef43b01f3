//go:build crash && unix

package postgres

// Behind the real PgBouncer: a pool by the session will do, others are refused.

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/storetest"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/outbox/pgoutbox"
)

// pooled starts a PgBouncer before a database and gives the URL that leads through it.
func pooled(t testing.TB, database, mode string, size int) string {
	direct, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgbouncer-") // not the test's, into which another user may not look
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server := fmt.Sprintf("host=%s port=%s user=%s", direct.Hostname(), direct.Port(), direct.User.Username())
	if password, ok := direct.User.Password(); ok {
		server += " password='" + password + "'"
	}
	settings := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(settings, fmt.Appendf(nil, "[databases]\n* = %s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"+
		"auth_type = any\npool_mode = %s\nmax_client_conn = 500\ndefault_pool_size = %d\n", server, port, mode, size), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
	}
	cmd := exec.Command(program, settings)
	var said strings.Builder
	cmd.Stderr = &said
	if os.Geteuid() == 0 { // it refuses to be run by root
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		for _, path := range []string{dir, settings} {
			if err := os.Chown(path, uid, gid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	through := *direct
	through.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", through.Host)
		if err == nil {
			_ = conn.Close()
			return through.String()
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("pgbouncer does not listen: %v\n%s", err, said.String())
		}
	}
}

func TestPoolersThatLoseLocksAreRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "statement"} {
		through := pooled(t, pgtest.URL(t), mode, 50)
		if _, err := Open(t.Context(), Config{URL: through, AllowUnsafe: true}); fault.CodeOf(err) != fault.UnsafeStore || !strings.Contains(err.Error(), "pool_mode = session") {
			t.Errorf("%s: %v", mode, err)
		}
		if _, err := pgoutbox.Open(t.Context(), through, "", outbox.Config{}); fault.CodeOf(err) != fault.UnsafeStore {
			t.Errorf("%s: an outbox: %v", mode, err)
		}
	}
}

// TestAPoolerWithFewConnections: one that has fewer than the pool may use is used as far as it
// goes, and who finds none at the start says so and waits.
func TestAPoolerWithFewConnections(t *testing.T) {
	t.Parallel()
	through := pooled(t, pgtest.URL(t), "session", 3)
	var log lockbuf.Buffer
	st, err := Open(t.Context(), Config{URL: through, MaxConns: 8, Wait: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	together(t, st, 32)
	if _, _, short := st.PoolStats(); !short || strings.Count(log.String(), "fewer connections") != 1 {
		t.Errorf("short: %t, said %s", short, log.String())
	}
	var second lockbuf.Buffer
	opened := make(chan error, 1)
	go func() {
		other, err := Open(t.Context(), Config{URL: through, MaxConns: 8, Wait: true, Log: slog.New(slog.NewTextHandler(&second, nil))})
		if err == nil {
			err = other.Close()
		}
		opened <- err
	}()
	until.True(t, "the second says that it waits", func() bool { return strings.Contains(second.String(), "waiting for a connection") })
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestConformanceThroughAPooler(t *testing.T) {
	storetest.RunTogether(t, func(tb testing.TB) harness.Database {
		through := pooled(tb, pgtest.URL(tb), "session", 50)
		return harness.Database{Shared: true, Open: func(ctx context.Context) (*store.Store, error) {
			return Open(ctx, Config{URL: through, MaxConns: 4, Log: slog.New(slog.DiscardHandler)})
		}}
	})
}
