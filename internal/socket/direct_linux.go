//go:build linux && !race && !386 && !s390x && !plainsockets

// Reads and writes by system calls that bypass the scheduler. Without them, echoes run at 0.45 to 0.68 of the speed
// (docs/benchmarks.md, "Tricks on trial"), as with the build tag plainsockets.

package socket

import (
	"syscall"
	"unsafe"
)

// read is the system call, without notice to the scheduler. It does not block even where the descriptor was set to blocking
// (as os.File.Fd of a copy does), as then nothing in the process could go on.
//
// The monitor that is not woken also preempts goroutines that compute for long. Where every processor has one of those, and
// none of them makes a system call, allocates much or waits, other goroutines run only at the next timer of the process: a
// connection's next ping, seconds later, instead of 10 ms.
func read(fd uintptr, p []byte) (int, error) {
	return direct(syscall.SYS_RECVFROM, fd, p, syscall.MSG_DONTWAIT)
}

// write is like read.
func write(fd uintptr, p []byte) (int, error) {
	return direct(syscall.SYS_SENDTO, fd, p, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
}

func direct(call, fd uintptr, p []byte, flags uintptr) (int, error) {
	n, _, errno := syscall.RawSyscall6(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
