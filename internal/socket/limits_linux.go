// TCP socket options on Linux.

package socket

import (
	"time"

	"golang.org/x/sys/unix"
)

func limitUnsent(fd uintptr, bytes int) error {
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
}

func limitSilence(fd uintptr, longest time.Duration) error {
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(longest.Milliseconds()))
}
