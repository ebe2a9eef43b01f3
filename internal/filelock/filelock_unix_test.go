//go:build unix

package filelock

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestALockIsGivenBack though a process that is being started has its file too.
func TestALockIsGivenBack(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "lock")
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(inherited) }()
	if _, err := Open(name); !errors.Is(err, ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	if err := Close(f); err != nil {
		t.Fatal(err)
	}
	again, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := Close(again); err != nil {
		t.Error(err)
	}
}
