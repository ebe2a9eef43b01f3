//go:build crash && linux

package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/stmtfault"
)

// TestPostgresDiskFull fills the file system of a Postgres's tables. Its write-ahead log is elsewhere: a Postgres that cannot
// write that ends, as one that is away.
func TestPostgresDiskFull(t *testing.T) {
	t.Parallel()
	pg, dir := pgtest.Start(t), ""
	url, err := pg.DatabaseOn(func(at string) error {
		dir = at
		return mountSmall(dir, 1<<30)
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
	diskFull(t, srv, func() {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err != nil {
			t.Fatal(err)
		}
		if err := remount(dir, int(fs.Blocks-fs.Bfree)*int(fs.Bsize)+limit); err != nil {
			t.Fatal(err)
		}
	}, func() {
		if err := remount(dir, 1<<30); err != nil {
			t.Fatal(err)
		}
	})
}
