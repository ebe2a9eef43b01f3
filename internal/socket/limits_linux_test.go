package socket

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What the system is told is told to the socket, also to one below TLS, and to nothing else.
func TestLimits(t *testing.T) {
	ours, theirs := sockets(t, "tcp")
	local, _ := sockets(t, "unix")
	for name, c := range map[string]*Conn{
		"plain":   New(ours, ours),
		"TLS":     New(tls.Server(theirs, &tls.Config{}), tls.Server(theirs, &tls.Config{})),
		"Unix":    New(local, local),
		"unknown": New(ours, nil),
	} {
		c.LimitUnsent()
		c.SetUserTimeout(9 * time.Second)
		if tcp := c.TCP(); (tcp != nil) != (name == "plain" || name == "TLS") {
			t.Errorf("%s: %v", name, tcp)
		} else if tcp != nil {
			setOption(tcp, func(fd uintptr) error {
				for option, want := range map[int]int{unix.TCP_NOTSENT_LOWAT: maxUnsent, unix.TCP_USER_TIMEOUT: 9000} {
					if got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option); got != want || err != nil {
						t.Errorf("%s: option %#x is %d, %v", name, option, got, err)
					}
				}
				return nil
			})
		}
	}
}

// A peer that reads nothing is written to no further than what it has room for and the limit, as there is no telling when it
// would come to what is written next.
func TestLittleIsUnsent(t *testing.T) {
	ours, theirs := sockets(t, "tcp")
	c := New(ours, ours)
	c.LimitUnsent()
	_ = theirs.(*net.TCPConn).SetReadBuffer(16 << 10)
	total := 0
	for {
		n, err := c.TryWrite(make([]byte, maxDirect))
		if err != nil {
			t.Fatal(err)
		}
		if total += n; n < maxDirect {
			break
		}
	}
	if total > maxUnsent+256<<10 {
		t.Errorf("%d bytes were taken", total)
	}
}
