//go:build unix

package spin

import "golang.org/x/sys/unix"

const canAsk = true

// readable says whether a read would return at once.
func readable(fd uintptr) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], 0)
	return err == nil && n > 0
}
