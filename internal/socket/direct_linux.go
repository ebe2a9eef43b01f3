//go:build linux && !race

package socket

import (
	"syscall"
	"unsafe"
)

// read is the system call, which the scheduler is not told of. The descriptor must not block.
//
// The monitor that is not woken also preempts goroutines that compute for long. Where every processor has one of those, and
// none of them makes a system call, allocates much or waits, the others get their turn at the next timer of the process: a
// connection's next ping, seconds later, instead of 10 ms.
func read(fd uintptr, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// write is like read.
func write(fd uintptr, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
