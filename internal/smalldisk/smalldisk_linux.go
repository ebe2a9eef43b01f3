// Package smalldisk gives tests a file system that is really full.
package smalldisk

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Disk is a file system of its own.
type Disk struct {
	Dir string
	t   *testing.T
}

// envInside says that the test runs as root of a user namespace of its own.
const envInside = "MOORING_TEST_SMALL_DISK"

// Run mounts a file system of 64 KiB at dir, a folder that it makes, and calls test. A user who may not mount one runs the calling test once more, in a
// process that is root of its own user namespace; where there are none either, it fails.
func Run(t *testing.T, dir string, test func(*Disk)) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700")
	switch {
	case err == nil:
		t.Cleanup(func() { // after those that test adds
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
		test(&Disk{dir, t})
		return
	case os.Getenv(envInside) != "":
		t.Fatalf("mount a tmpfs in a user namespace: %v", err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), envInside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	if out, again := cmd.CombinedOutput(); again != nil {
		t.Fatalf("a full disk takes a file system of its own: %v; and in a user namespace: %v. Run this as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "+
			"kernel.apparmor_restrict_unprivileged_userns=0).\n%s", err, again, out)
	}
}

func (d *Disk) filler() string { return filepath.Join(d.Dir, "filler") }

// Fill leaves no room: what is written next does not fit.
func (d *Disk) Fill() {
	d.t.Helper()
	if err := os.WriteFile(d.filler(), make([]byte, 1<<20), 0o600); err == nil {
		d.t.Fatal("the disk took a megabyte")
	}
}

// Empty gives the room back.
func (d *Disk) Empty() {
	d.t.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.t.Fatal(err)
	}
}
