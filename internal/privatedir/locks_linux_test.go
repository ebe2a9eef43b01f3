package privatedir

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A database that this process has open keeps the locks that SQLite has on it.
func TestDatabaseThatIsOpen(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "some.db")
	if _, err := EnsureDatabase(file); err != nil {
		t.Fatal(err)
	}
	open := func() *os.File {
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	if err := unix.FcntlFlock(open().Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Len: 1}); err != nil {
		t.Fatal(err)
	}
	look := open() // a lock of a descriptor's, as which it conflicts with the process's
	if _, err := EnsureDatabase(file); err != nil {
		t.Fatal(err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	if err := unix.FcntlFlock(look.Fd(), unix.F_OFD_GETLK, &lock); err != nil || lock.Type != unix.F_RDLCK {
		t.Errorf("the lock is %+v, %v; want a read lock", lock, err)
	}
}
