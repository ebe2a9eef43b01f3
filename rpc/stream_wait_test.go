package rpc

import (
	"net"
	"testing"
)

// A byte stream over a socket reads that itself; one over anything else is read as it is.
func TestAStreamReadsItsSocket(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	for _, c := range []struct {
		over net.Conn
		want bool
	}{{conn, true}, {a, false}} {
		if got := NewStreamTransport(c.over).(*streamTransport).sock.Lends(); got != c.want {
			t.Errorf("%T: read as a socket: %t", c.over, got)
		}
	}
}
