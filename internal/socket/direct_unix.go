//go:build unix && (!linux || race || 386 || s390x || plainsockets)

// Reads and writes by the system calls of package syscall: on other systems than Linux, under the race detector, and wherever a
// program is built with -tags plainsockets.

package socket

import "syscall"

// read notifies the scheduler, as other systems' libraries require, and the race detector, which needs to know what the
// kernel reads and writes, and in which order.
func read(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

// write is like read.
func write(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }
