//go:build unix

// Polling a socket, and reading and writing it without waiting.

package socket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const canPoll = true

// readable reports whether a read would return at once.
func readable(fd uintptr) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], 0)
	return err == nil && n > 0
}

// receive reads the available bytes, EAGAIN if there are none.
func receive(fd uintptr, p []byte) (int, error) {
	for {
		n, err := read(fd, p)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// transmit writes as much as the system accepts, EAGAIN if that is nothing.
func transmit(fd uintptr, p []byte) (int, error) {
	for {
		n, err := write(fd, p)
		if err != syscall.EINTR {
			return n, err
		}
	}
}
