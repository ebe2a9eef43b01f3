// A slow link, and messages that are large for it.

package capnweb_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
)

// slowConn gives few bytes at a time.
type slowConn struct {
	net.Conn
	tick *time.Ticker
}

func (c slowConn) Read(b []byte) (int, error) {
	<-c.tick.C
	return c.Conn.Read(b[:min(len(b), 32<<10)])
}

// A message that takes longer to arrive than a ping may take to be answered is no silence.
func TestLargeMessageOverSlowLink(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 7<<20)
	lim := capnweb.Limits{PingInterval: 100 * time.Millisecond, PingTimeout: 2 * time.Second, CallBytes: 100 << 20}
	srv := httptest.NewServer(capnweb.Handler(func(*http.Request) any {
		return capnweb.NewMethods(map[string]any{"text": func() string { return text }})
	}, capnweb.Config{Limits: lim}, capnweb.AcceptOptions{}))
	defer srv.Close()
	tick := time.NewTicker(20 * time.Millisecond) // more than twice the time of a ping
	defer tick.Stop()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
			return slowConn{c, tick}, nil
		}}}
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	tr, err := capnweb.Dial(ctx, srv.URL, capnweb.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	c := capnweb.NewConn(tr, capnweb.Config{Limits: lim})
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	m := c.Main()
	r := m.Call(ctx, "text")
	v, err := r.Await(ctx)
	if err != nil || len(v.(string)) != len(text) {
		t.Error(err, c.Err())
	}
	r.Release()
	m.Release()
	c.Close("over")
	<-done
}
