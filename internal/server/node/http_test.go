//go:build unix

// The HTTP side, and what comes over it that is no Cap'n Proto.

package node

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/rpc"
)

// httpOf mounts a running server's HTTP side and gives its base URL.
func httpOf(t *testing.T, r *rig) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := r.server.newHTTPServer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = web.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = web.Close()
		<-done
	})
	return "http://" + ln.Addr().String()
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.Prefix, c.Connections = "some/where", 2 })
	web := httpOf(t, r)
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/some/where/readyz": 200, "/nowhere": 404, "/": 404, "/capnp": 426,
	} {
		if status, body := get(t, web+path); status != want {
			t.Errorf("%s: %d %q, want %d", path, status, body, want)
		}
	}
	var peers []*peer
	for _, path := range []string{"/capnp", "/some/where/capnp"} {
		transport, err := rpc.Dial(within(t), web+path, rpc.DialOptions{})
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		p := newPeer(t, transport)
		m := r.create(p)
		if ack := p.must(m.stream, m.batch(put(1))); ack.applied != 1 {
			t.Errorf("%s: %+v", path, ack)
		}
		peers = append(peers, p)
	}
	if _, err := rpc.Dial(within(t), web+"/capnp", rpc.DialOptions{}); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a third connection of two: %v", err)
	}
	peers[0].leave()
	deadline := time.Now().Add(patience)
	for {
		transport, err := rpc.Dial(within(t), web+"/capnp", rpc.DialOptions{})
		if err == nil {
			_ = transport.Close(1000, "")
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after one has left: %v", err)
		}
	}
	header := http.Header{"Origin": {"https://elsewhere.example"}}
	for {
		_, err := rpc.Dial(within(t), web+"/capnp", rpc.DialOptions{Header: header})
		if err != nil && strings.Contains(err.Error(), "503") && time.Now().Before(deadline) {
			continue // the connection just closed still counts
		}
		if err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("a browser of another origin: %v", err)
		}
		break
	}
}

func TestGarbageOverWebSocketEndsThatConnectionOnly(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	web := httpOf(t, r)
	good := r.dial()
	m := r.create(good)
	for label, send := range map[string]struct {
		kind websocket.MessageType
		data []byte
	}{
		"garbage":    {websocket.MessageBinary, []byte("this is no capnp message at all, not even near")},
		"truncated":  {websocket.MessageBinary, []byte{0, 0, 0, 0, 9, 0, 0, 0, 1, 2, 3}},
		"text":       {websocket.MessageText, []byte("hello")},
		"many parts": {websocket.MessageBinary, []byte{255, 255, 255, 255, 1, 0, 0, 0}},
	} {
		c, _, err := websocket.Dial(within(t), web+"/capnp", &websocket.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
		if err != nil {
			t.Fatalf("%s: %v", label, err)
		}
		if err := c.Write(within(t), send.kind, send.data); err != nil {
			t.Fatalf("%s: %v", label, err)
		}
		for { // an abort message perhaps, then the end
			if _, _, err := c.Read(within(t)); err != nil {
				break
			}
		}
		_ = c.CloseNow()
	}
	if ack := good.must(m.stream, m.batch(put(1))); ack.applied != 1 {
		t.Errorf("another connection: %+v", ack)
	}
}

// Who wants the connection closed after the answer gets one, whatever it still sends:
// proxies ask in this way.
func TestAnswerBeforeTheBody(t *testing.T) {
	t.Parallel()
	web := strings.TrimPrefix(httpOf(t, start(t, sqliteStore(t), nil)), "http://")
	for _, size := range []int{64 << 10, 2 * maxDrainBytes} {
		c, err := net.Dial("tcp", web)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		half := strings.Repeat(" ", size/2)
		fmt.Fprintf(c, "POST /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", size, half)
		time.Sleep(50 * time.Millisecond) // in which a server might close
		if _, err := io.WriteString(c, half); err != nil {
			t.Errorf("%d bytes: sending: %v", size, err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		if resp.StatusCode != http.StatusNotFound || !resp.Close {
			t.Errorf("%d bytes: %d, close %v", size, resp.StatusCode, resp.Close)
		}
	}
}

// pooledStore is a store that has so many connections to its database.
type pooledStore struct {
	Store
	have, most int
	short      bool
}

func (s pooledStore) PoolStats() (have, limit int, short bool) { return s.have, s.most, s.short }

// TestFewConnectionsAreSeen: a server that has fewer than it may use is ready, and says so.
func TestFewConnectionsAreSeen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		short         bool
		ready, metric string
	}{{false, "ready\nhistory ", "0"}, {true, "ready, with 2 of 8 connections to the database: there are no more to be had\nhistory ", "1"}} {
		r := start(t, pooledStore{sqliteStore(t), 2, 8, c.short}, nil)
		if status, text := get(t, httpOf(t, r)+"/readyz"); status != http.StatusOK || !strings.HasPrefix(text, c.ready) {
			t.Errorf("readyz: %d, %q", status, text)
		}
		if short, open, most := r.metric("mooring_database_connections_short"), r.metric(`mooring_database_connections{which="open"}`),
			r.metric(`mooring_database_connections{which="most"}`); short != c.metric || open != "2" || most != "8" {
			t.Errorf("metrics: %s, %s of %s", short, open, most)
		}
	}
}
