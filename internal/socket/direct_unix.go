//go:build unix && (!linux || race || 386 || s390x)

// Reading and writing by the system calls of package syscall.

package socket

import "syscall"

// read tells the scheduler, as other systems' libraries want it, and the race detector, which has to know what the kernel
// reads and writes, and in which order.
func read(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

// write is like read.
func write(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }
