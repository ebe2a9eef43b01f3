package peerconn_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/rpc"
)

// Both codecs have the system end a connection that acknowledges nothing for as long as a silent peer may take.
func TestTimeoutsOfTheSystem(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(url string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) error{
		"rpc": func(url string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) error {
			c, err := rpc.Dial(t.Context(), url, rpc.DialOptions{DialContext: dial})
			if err == nil {
				rpc.NewConn(c, rpc.Config{Limits: rpc.Limits{PingInterval: 3 * time.Second, PingTimeout: 2 * time.Second}})
				t.Cleanup(func() { c.Close(1000, "") })
			}
			return err
		},
		"capnweb": func(url string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) error {
			c, err := capnweb.Dial(t.Context(), url, capnweb.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}}})
			if err == nil {
				capnweb.NewConn(c, capnweb.Config{Limits: capnweb.Limits{PingInterval: 3 * time.Second, PingTimeout: 2 * time.Second}})
				t.Cleanup(func() { c.Close(1000, "") })
			}
			return err
		},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if name == "rpc" {
				_, _ = rpc.Accept(w, r, rpc.AcceptOptions{})
			} else {
				_, _ = capnweb.Accept(w, r, capnweb.AcceptOptions{})
			}
		}))
		t.Cleanup(srv.Close)
		var dialed *net.TCPConn
		err := connect("ws"+strings.TrimPrefix(srv.URL, "http"), func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			dialed, _ = c.(*net.TCPConn)
			return c, err
		})
		if err != nil {
			t.Fatal(name, err)
		}
		raw, err := dialed.SyscallConn()
		if err != nil {
			t.Fatal(name, err)
		}
		var got int
		if cerr := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); cerr != nil {
			t.Fatal(name, cerr)
		}
		if err != nil || got != 5000 {
			t.Errorf("%s: the system's timeout is %d ms, %v", name, got, err)
		}
	}
}
