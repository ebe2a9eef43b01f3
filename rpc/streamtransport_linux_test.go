package rpc

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Over TCP the system is told to find a dead peer as soon as pings would, idle or not.
func TestStreamsFindDeadPeers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := NewConn(NewStreamTransport(near), Config{Limits: Limits{PingInterval: 20 * time.Second, PingTimeout: 8 * time.Second}})
	defer c.Close("over")
	raw, err := near.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for name, option := range map[string]struct{ number, want int }{
			"keep-alives begin after":     {unix.TCP_KEEPIDLE, 20},
			"the next comes after":        {unix.TCP_KEEPINTVL, 2},
			"so many may be lost":         {unix.TCP_KEEPCNT, 4},
			"milliseconds unacknowledged": {unix.TCP_USER_TIMEOUT, 28_000},
		} {
			if got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option.number); got != option.want || err != nil {
				t.Errorf("%s: %d, want %d, %v", name, got, option.want, err)
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
}
