//go:build unix

package sqlite

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestALockIsGivenBack though a process that is being started has its file too.
func TestALockIsGivenBack(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), lockName)
	f, err := lockFile(name)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(inherited) }()
	if err := unlockFile(f); err != nil {
		t.Fatal(err)
	}
	again, err := lockFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := unlockFile(again); err != nil {
		t.Error(err)
	}
}
