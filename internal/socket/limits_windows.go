// TCP socket options on Windows.

package socket

import (
	"time"

	"golang.org/x/sys/windows"
)

func limitUnsent(uintptr, int) error { return nil } // it has no such option

func limitSilence(fd uintptr, longest time.Duration) error {
	return windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_TCP, windows.TCP_MAXRT, max(int(longest.Seconds()), 1))
}
