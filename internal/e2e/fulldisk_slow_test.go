//go:build crash && linux

package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/stmtfault"
)

const roomy = 1 << 30

func mountOwn(dir string) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", roomy))
}

// leaveRoom changes the size of a file system that mountOwn has mounted.
func leaveRoom(t *testing.T, dir string, bytes int) {
	t.Helper()
	eventually(t, "the file system has its new size", func() bool { // more may be used by then, which fails
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err != nil {
			t.Fatal(err)
		}
		used := int(fs.Blocks-fs.Bfree) * int(fs.Bsize)
		return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", max(used+bytes, int(fs.Bsize)))) == nil
	})
}

// The same as TestServersDiskFull on a file system that is really full, where this user may mount one.
func TestServersFileSystemFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := mountOwn(dir); err != nil {
		// A user who may not mount gets the other kind of full disk again.
		t.Logf("no file system of its own (%v): a limit on file sizes instead", err)
		srv := newServer(t, serverConfig{Wrap: limited, Args: measured})
		srv.start("")
		diskFull(t, srv, nil, func() { lift(t, srv.current().cmd.Process.Pid) })
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	srv := newServer(t, serverConfig{Data: filepath.Join(dir, "data"), Args: measured})
	srv.start("")
	// While nobody commits anything it is seen all the same.
	leaveRoom(t, dir, 0)
	eventually(t, "/readyz says that the disk is full", func() bool {
		code, text := srv.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "(disk_full)")
	})
	leaveRoom(t, dir, roomy)
	srv.healthy()
	diskFull(t, srv, func() { leaveRoom(t, dir, limit) }, func() { leaveRoom(t, dir, roomy) })
	srv.kill() // so that the folder can be unmounted
}

// TestPostgresDiskFull fills the file system of a Postgres's tables. Its write-ahead log is elsewhere: a Postgres that cannot
// write that ends, as one that is away.
func TestPostgresDiskFull(t *testing.T) {
	t.Parallel()
	pg, dir := pgtest.Start(t), ""
	url, err := pg.DatabaseOn(func(at string) error {
		dir = at
		return mountOwn(dir)
	})
	if err != nil {
		// A user who may not mount gets a Postgres whose answers to all that takes room are those of a full disk.
		t.Logf("no file system of its own (%v): made-up answers instead", err)
		proxy := stmtfault.Postgres(t, pg.URL(), func(sql string) bool { return !strings.Contains(sql, "INSERT") })
		srv := newServer(t, serverConfig{URL: proxy.URL(), Args: measured})
		srv.start("")
		diskFull(t, srv, func() { proxy.Fail(1, true, stmtfault.Failure{State: "53100"}) }, func() { proxy.Fail(0, false, stmtfault.Failure{}) })
		return
	}
	t.Cleanup(func() {
		pg.Kill() // so that the folder can be unmounted
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	srv := newServer(t, serverConfig{URL: url, Args: measured})
	srv.start("")
	diskFull(t, srv, func() { leaveRoom(t, dir, limit) }, func() { leaveRoom(t, dir, roomy) })
}
