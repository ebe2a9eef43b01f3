//go:build linux && !race && !386 && !s390x && !plainsockets

package socket

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// A descriptor that somebody made block blocks nothing: the scheduler would not know, and the next collection of garbage
// would wait for the peer.
func TestDescriptorMadeBlocking(t *testing.T) {
	ours, _ := sockets(t, "tcp")
	f, err := ours.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd()) // makes what both stand for block
	const long = 20 * time.Second
	most := syscall.NsecToTimeval(long.Nanoseconds())
	for _, option := range []int{syscall.SO_RCVTIMEO, syscall.SO_SNDTIMEO} { // so that the test ends in any case
		if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, option, &most); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	if n, err := receive(uintptr(fd), make([]byte, 10)); err != syscall.EAGAIN {
		t.Errorf("read %d, %v", n, err)
	}
	for err = nil; err == nil; { // until the buffers are full
		_, err = transmit(uintptr(fd), make([]byte, maxDirect))
	}
	if err != syscall.EAGAIN {
		t.Error(err)
	}
	if took := time.Since(begun); took > long/2 {
		t.Errorf("it took %v", took)
	}
}
