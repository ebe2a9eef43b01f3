package servercmd

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

// What listens to this machine alone and is known elsewhere has a proxy before it, to which everybody is of this machine.
func TestBehindProxy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address, listens string
		want             bool
	}{
		{"mooring://127.0.0.1:7600", "127.0.0.1:7600", false},
		{"mooring://localhost:7600,[::1]:7600", "127.0.0.1:7600", false},
		{"moorings://mooring.example", "127.0.0.1:7600", true},
		{"mooring://127.0.0.1,10.0.0.7", "[::1]:7600", true},
		{"moorings://mooring.example", "0.0.0.0:7600", false},
		{"moorings://mooring.example", "10.0.0.7:443", false},
	} {
		at, err := capability.ParseAddress(c.address)
		if err != nil {
			t.Fatal(err)
		}
		if got := behindProxy(at, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.listens))); got != c.want {
			t.Errorf("%s, listening at %s: %v", c.address, c.listens, got)
		}
	}
}

// A name to listen at gets the port that is listened at.
func TestListenNames(t *testing.T) {
	t.Parallel()
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7611}
	for listen, want := range map[string]string{"127.0.0.1:0": "127.0.0.1:7611", ":7600": "", "agents:0": "agents:7611", "[::1]:0": "[::1]:7611"} {
		if got := strings.Join(listenNames(listen, at), " "); got != want {
			t.Errorf("--listen %s: %s", listen, got)
		}
	}
}
