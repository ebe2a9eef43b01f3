//go:build unix

package sqlite

// The liveness lock of a sender: a file lock, which the kernel releases however the process
// dies. With it a successor need not wait until a dead sender's lease lapses. The lease, not
// the lock, decides: a suspended process keeps the lock and loses the lease.

import (
	"os"
	"syscall"
)

// LockFile tries to lock the file at path. release unlocks it; known is false if the file
// cannot be opened.
func LockFile(path string) (release func(), locked, known bool) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, false
	}
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
	case nil:
		return func() {
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // a process that is being started may have the file too
			_ = f.Close()
		}, true, true
	case syscall.EWOULDBLOCK:
		_ = f.Close()
		return nil, false, true
	default:
		_ = f.Close()
		return nil, false, false
	}
}
