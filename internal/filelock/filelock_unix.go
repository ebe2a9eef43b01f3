//go:build unix

package filelock

import (
	"os"

	"golang.org/x/sys/unix"
)

// errHeld is try's error when another process has the lock.
const errHeld = unix.EWOULDBLOCK

func try(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR {
			return err
		}
	}
}

func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
