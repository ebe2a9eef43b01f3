package filelock

import (
	"os"

	"golang.org/x/sys/windows"
)

// errHeld is try's error when another process has the lock.
const errHeld = windows.ERROR_LOCK_VIOLATION

func try(f *os.File) error {
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{})
}

func unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &windows.Overlapped{})
}
