//go:build unix

// The rescue by another user than the server's, who is root as a rule.

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// another is a user and a group who are not this process's, as far as it may give
// files to such: root to anybody, others to another group that they are in.
func another(t *testing.T) (uid, gid int) {
	uid, gid = os.Geteuid(), os.Getegid()
	if uid == 0 {
		return 65_533, 65_532
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(groups, func(g int) bool { return g != gid }); i >= 0 {
		gid = groups[i]
	}
	return uid, gid
}

// A server reads its files after a rescue, whoever that was done by.
func TestARescueLeavesTheServerItsFiles(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	r.stop()
	uid, gid := another(t)
	each := func(do func(name string, info fs.FileInfo)) {
		t.Helper()
		err := filepath.WalkDir(r.data(), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				do(name, info)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	each(func(name string, _ fs.FileInfo) {
		if err := os.Chown(name, uid, gid); err != nil {
			t.Fatal(err)
		}
	})
	file := r.owner()[1:]
	for _, lost := range []bool{false, true} {
		if lost {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		if code, _, message := command(t, "admin", "rotate-owner", "--data", r.data()); code != cli.ExitOK {
			t.Fatalf("lost %v: exit %d, %s", lost, code, message)
		}
		there := false
		each(func(name string, info fs.FileInfo) {
			there = there || name == file && info.Mode() == 0o600
			if is := info.Sys().(*syscall.Stat_t); int(is.Uid) != uid || int(is.Gid) != gid {
				t.Errorf("lost %v: %s is of user %d and group %d, not %d and %d", lost, name, is.Uid, is.Gid, uid, gid)
			}
		})
		if !there {
			t.Errorf("lost %v: no owner.ref of mode 0600", lost)
		}
	}
}
