//go:build unix

package outbox

// The mark of a living sender: a file lock, which the kernel drops when the
// process dies in whatever manner. With it a successor need not wait until a
// dead sender's lease lapses. The lease, not the mark, is what decides: a process
// that was stopped keeps the mark and loses the lease.

import (
	"os"
	"syscall"
)

// lockFile tries to get the lock of the file at path. release gives it back;
// known is false if the file cannot be had at all.
func lockFile(path string) (release func(), held, known bool) {
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
