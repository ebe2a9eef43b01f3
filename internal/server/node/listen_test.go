//go:build unix

// Who is let in, who is turned away and told so, and what draining does to byte
// streams.

package node

import (
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestConnectionsAnAddress(t *testing.T) {
	t.Parallel()
	ln := unixSocket(t)
	r := startOn(t, sqliteStore(t), func(c *Config) { c.ConnectionsPerAddress = 2 }, ln)
	first, second := dialRaw(t, ln), dialRaw(t, ln)
	for _, p := range []*rawPeer{first, second} {
		p.bootstrap(0)
		p.flush()
		p.answer(0)
	}
	dialRaw(t, ln).wantAbort("no more connections from this address")
	if n := r.hits("connections_per_address"); n != "1" {
		t.Errorf("%s hits", n)
	}
	web := httpOf(t, r) // another address has its own count
	if _, err := rpc.Dial(within(t), web+"/capnp", rpc.DialOptions{}); err != nil {
		t.Errorf("from another address: %v", err)
	}
	_ = first.c.Close()
	until.True(t, "the first has left", func() bool { return r.connections() == 2 })
	third := dialRaw(t, ln)
	third.bootstrap(0)
	third.flush()
	third.answer(0)
	if n := r.metric("mooring_connections"); n != "3" {
		t.Errorf("%s connections, want 3", n)
	}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	ln := unixSocket(t)
	r := startOn(t, sqliteStore(t), func(c *Config) { c.Connections = 1 }, ln)
	p := dialRaw(t, ln)
	p.bootstrap(0)
	p.flush()
	p.answer(0)
	dialRaw(t, ln).wantAbort("no more connections now")
	status, body := get(t, httpOf(t, r)+"/capnp")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "no more connections now") {
		t.Errorf("a WebSocket: %d %q", status, body)
	}
	if n, m := r.hits("connections"), r.metric(`mooring_refusals_total{code="overloaded"}`); n != "2" || m != "1" {
		t.Errorf("%s hits, %s refusals over HTTP", n, m)
	}
}

// Who connects over HTTP and says nothing, or half of something, costs nobody else a place: where places are scarce the
// address with most loses its oldest.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.Handshakes, c.RPC.HandshakeTimeout = 6, 3*time.Second })
	web := httpOf(t, r)
	var silent []net.Conn
	// On Linux all of 127.0.0.0/8 is this machine's; elsewhere all of them are one address's.
	for _, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.2", "127.0.0.3", "127.0.0.2", "127.0.0.3"} {
		dial := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		if runtime.GOOS != "linux" {
			dial.LocalAddr = nil
		}
		c, err := dial.Dial("tcp", strings.TrimPrefix(web, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, "GET /capnp HTTP/1.1\r\nHost: localhost\r\n"); err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
		until.True(t, "it is counted", func() bool { return r.metric("mooring_handshakes") == strconv.Itoa(len(silent)) })
	}
	transport, err := rpc.Dial(within(t), web+"/capnp", rpc.DialOptions{})
	if err != nil {
		t.Fatalf("beside them: %v", err)
	}
	p := newPeer(t, transport)
	m := r.create(p)
	if ack := p.must(m.stream, m.batch(put(1))); ack.applied != 1 {
		t.Errorf("%+v", ack)
	}
	if n := r.metric("mooring_handshakes"); n != "5" {
		t.Errorf("%s handshakes are left", n)
	}
	if n := r.hits("handshakes"); n != "1" {
		t.Errorf("the metrics know of %s hits", n)
	}
	for _, c := range silent {
		_, _ = io.Copy(io.Discard, c) // what is left of them is closed in time
	}
	until.True(t, "their places are free", func() bool { return r.metric("mooring_handshakes") == "0" })
}

// A whole session over a byte stream, by our own vat, and draining in the middle of it.
func TestByteStream(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for name, ln := range map[string]net.Listener{"tcp": tcp, "unix": unixSocket(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startOn(t, sqliteStore(t), nil, ln)
			c, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			p := newPeer(t, rpc.NewStreamTransport(c))
			m := r.create(p)
			k := newRecorder()
			p.subscribe(p.restore(m.owner), k, 0)
			for i := range 20 {
				if ack := p.must(m.stream, m.batch(put(i+1))); ack.applied != 1 {
					t.Fatalf("%+v", ack)
				}
			}
			k.untilCursor(t, 21)
			p.leave()
			until.True(t, "the connection has ended", func() bool { return r.connections() == 0 })
			for _, direction := range []string{"in", "out"} { // what ended connections carried is counted still
				for _, unit := range []string{"messages", "bytes"} {
					if n := r.metric("mooring_vat_" + unit + `_total{direction="` + direction + `"}`); n == "0" {
						t.Errorf("no %s went %s", unit, direction)
					}
				}
			}
			if ops, commits := r.metric("mooring_committed_ops_total"), r.metric("mooring_commits_total"); ops != "21" || commits == "0" {
				t.Errorf("%s ops in %s commits", ops, commits)
			}
			c, err = net.Dial(ln.Addr().Network(), ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			p = newPeer(t, rpc.NewStreamTransport(c))
			if err := p.restoreErr(m.owner, ""); err != nil {
				t.Errorf("once more: %v", err)
			}
			r.stop()
			select {
			case <-p.conn.Done():
			case <-time.After(patience):
				t.Error("draining leaves the connection open")
			}
			if c, err := net.Dial(ln.Addr().Network(), ln.Addr().String()); err == nil {
				_ = c.Close()
				t.Error("a drained server still listens")
			}
		})
	}
}

// A request whose body never comes, and one whose answer nobody reads, hold no place for long.
func TestRequestsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.RPC.HandshakeTimeout = time.Second })
	web := strings.TrimPrefix(httpOf(t, r), "http://")
	for _, request := range []string{
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
		"GET /capnp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
	} {
		c, err := net.Dial("tcp", web)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("%q: not closed: %v", request, err)
		}
	}
	until.True(t, "their places are free", func() bool { return r.metric("mooring_handshakes") == "0" })
}
