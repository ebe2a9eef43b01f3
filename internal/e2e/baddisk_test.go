package e2e

// Databases that are away and disks that are full.

import (
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t)
	srv := startServer(t, serverConfig{URL: pg.URL()})
	owner := makeSession(t, srv)
	ref := "@" + writeRef(t, owner)
	h := newHome(t)
	line := func(n int) string {
		return fmt.Sprintf(`{"method":"put","key":"message/m%d","payload":{"n":%d}}`+"\n", n, n)
	}
	h.feed(line(1), "session", "append", ref, "-", "--wait")

	pg.Stop()
	if got := h.try(line(2), "session", "append", ref, "-"); got.code != 0 || !strings.Contains(got.err, "durable") {
		t.Errorf("append while the database is away: exit code %d, %q", got.code, got.err)
	}
	h.refused("", "unavailable", []string{"database"}, "session", "export", ref)
	if code, text := srv.get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "database") {
		t.Errorf("/readyz while the database is away: %d %s", code, text)
	}
	if code, _ := srv.get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz while the database is away: %d", code)
	}
	// A server that is started now says what is wrong, and no password.
	got := newHome(t).refused("", "unavailable", []string{"database"}, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--database-url", pg.URL())
	if _, password, ok := strings.Cut(strings.SplitN(pg.URL(), "@", 2)[0], "//"); ok {
		if _, password, ok = strings.Cut(password, ":"); ok && strings.Contains(got.err, password) {
			t.Error("the server tells the database's password")
		}
	}

	pg.Start()
	h.do("outbox", "drain")
	pg.Kill()
	h.feed(line(3), "session", "append", ref, "-")
	pg.Start()
	h.do("outbox", "drain")
	log := readLog(t, view(t, openClient(t), owner))
	if len(log) != 4 || log[3].Key != "message/m3" {
		t.Errorf("%d events", len(log))
	}
	srv.healthy()
}

// limit is how much a process under a limited file size may write to one file.
const limit = 2 << 20

// limited runs a command with a soft limit on the size of the files it writes,
// which a write runs into as it does into a disk that is full. It works for
// every user, and can be lifted while the command runs.
var limited = []string{"sh", "-c", fmt.Sprintf(`ulimit -S -f %d && exec "$0" "$@"`, limit/512)}

// lift takes the limit of a running process away.
func lift(t *testing.T, pid int) {
	t.Helper()
	wide := syscall.Rlimit{Cur: 1 << 40, Max: ^uint64(0)}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_FSIZE, uintptr(unsafe.Pointer(&wide)), 0, 0, 0)
	runtime.KeepAlive(&wide)
	if errno != 0 {
		t.Fatalf("prlimit: %v", errno)
	}
}

func TestServersDiskFull(t *testing.T) {
	t.Parallel()
	srv := newServer(t, serverConfig{Wrap: limited})
	srv.start("")
	diskFull(t, srv, func() { lift(t, srv.current().cmd.Process.Pid) })
}

// The same on a file system that is really full, where this user may mount one.
func TestServersFileSystemFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := mountSmall(dir, limit); err != nil {
		// A user who may not mount gets the other kind of full disk again.
		t.Logf("no file system of its own (%v): a limit on file sizes instead", err)
		srv := newServer(t, serverConfig{Wrap: limited})
		srv.start("")
		diskFull(t, srv, func() { lift(t, srv.current().cmd.Process.Pid) })
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	srv := newServer(t, serverConfig{Data: filepath.Join(dir, "data")})
	srv.start("")
	diskFull(t, srv, func() {
		if err := remount(dir, 1<<30); err != nil {
			t.Fatal(err)
		}
	})
	srv.kill() // so that the folder can be unmounted
}

func mountSmall(dir string, size int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
}

func remount(dir string, size int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", size))
}

// diskFull appends until the server's disk is full. The server must say so, stay
// up and go on reading; what was appended waits in the outbox and arrives when
// there is space.
func diskFull(t *testing.T, srv *server, free func()) {
	t.Helper()
	owner := makeSession(t, srv)
	ref := "@" + writeRef(t, owner)
	h := newHome(t)
	const n = 10
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"method":"put","key":"message/m%d","batch":"%d","payload":{"n":%d,"text":"%s"}}`+"\n", i, i, i, strings.Repeat("x", 400<<10))
	}
	h.feed(lines.String(), "session", "append", ref, "-")
	eventually(t, "the outbox says that the disk is full", func() bool {
		// Any command sends; this one also shows what the server last said.
		h.try("", "outbox", "drain", "--timeout", "1s")
		return strings.Contains(h.do("outbox", "status"), "disk_full")
	})
	if code, text := srv.get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz with a full disk: %d %s", code, text)
	}
	s := view(t, openClient(t), owner)
	before := mustSnapshot(t, s, 0)
	if len(before.Entries) == 0 || len(before.Entries) == n {
		t.Errorf("%d entries were committed before the disk was full", len(before.Entries))
	}
	free()
	h.do("outbox", "drain")
	if got := mustSnapshot(t, s, 0); len(got.Entries) != n {
		t.Errorf("%d entries in the end", len(got.Entries))
	}
	if log := readLog(t, s); len(log) != 1+n {
		t.Errorf("%d events", len(log))
	}
	srv.healthy()
}

// A full disk on the client's side: append does not say that anything is durable.
func TestClientsDiskFull(t *testing.T) {
	t.Parallel()
	srv := startServer(t, serverConfig{})
	owner := makeSession(t, srv)
	ref := "@" + writeRef(t, owner)
	h := newHome(t)
	h.feed(`{"method":"put","key":"session","payload":{"n":1}}`, "session", "append", ref, "-", "--wait")
	big := fmt.Sprintf(`{"method":"put","key":"message/m","payload":{"text":"%s"}}`, strings.Repeat("x", 3<<20))
	full := *h
	full.wrap = []string{"sh", "-c", fmt.Sprintf(`ulimit -S -f %d && exec "$0" "$@"`, (1<<20)/512)}
	full.refused(big, "disk_full", []string{"space"}, "session", "append", ref, "-")
	h.do("outbox", "drain")
	if log := readLog(t, view(t, openClient(t), owner)); len(log) != 2 {
		t.Errorf("%d events", len(log))
	}
	h.feed(big, "session", "append", ref, "-", "--wait")
	if log := readLog(t, view(t, openClient(t), owner)); len(log) != 3 {
		t.Errorf("%d events", len(log))
	}
}
