//go:build unix

// The data folder's lock on Unix.

package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// errLocked is tryLock's error when another process has the lock.
const errLocked = unix.EWOULDBLOCK

func tryLock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR {
			return err
		}
	}
}

func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
