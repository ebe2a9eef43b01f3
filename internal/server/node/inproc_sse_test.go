//go:build unix

package node

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc"
)

// lasting serves a handler whose answers last until their clients leave, and gives
// where it is.
func lasting(t *testing.T, change func(*Config)) (*rig, string) {
	cfg := DefaultConfig()
	cfg.Store = sqliteStore(t)
	change(&cfg)
	s := New(cfg)
	s.Mount("/lasting", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done, err := s.AdmitStream(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer done()
		fmt.Fprintln(w, "here")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	r := &rig{t: t, server: s}
	return r, httpOf(t, r) + "/lasting"
}

// follow begins an answer that lasts.
func follow(t *testing.T, url string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	if err != nil || line != "here\n" || !res.Close {
		t.Fatalf("%q, %v, to be closed: %v", line, err, res.Close)
	}
	return cancel
}

// Answers that last take no places of those who have yet to become something, and
// outlive their time.
func TestLastingAnswersAreConnections(t *testing.T) {
	t.Parallel()
	r, url := lasting(t, func(c *Config) { c.Handshakes, c.RPC.HandshakeTimeout = 1, time.Second })
	var leave []func()
	for range 4 {
		leave = append(leave, follow(t, url))
	}
	if n, m := r.metric("mooring_connections"), r.metric("mooring_handshakes"); n != "4" || m != "0" {
		t.Errorf("%s connections and %s handshakes", n, m)
	}
	begun := time.Now()
	until.True(t, "the time of a handshake has passed", func() bool { return time.Since(begun) > 1500*time.Millisecond })
	if n := r.metric("mooring_connections"); n != "4" {
		t.Errorf("%s of 4 outlive the handshakes' time", n)
	}
	for _, l := range leave {
		l()
	}
	until.True(t, "they have left", func() bool { return r.metric("mooring_connections") == "0" })
}

func TestLastingAnswersAreBounded(t *testing.T) {
	t.Parallel()
	r, url := lasting(t, func(c *Config) { c.ConnectionsPerAddress = 2 })
	leave := follow(t, url)
	follow(t, url)
	status, body := get(t, url)
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "from this address") {
		t.Errorf("%d %s", status, body)
	}
	leave()
	until.True(t, "one has left", func() bool { return r.metric("mooring_connections") == "1" })
	follow(t, url)
}

// A body that does not come must not hold the connection once its time is lifted.
func TestLastingAnswersTakeNoBody(t *testing.T) {
	t.Parallel()
	r, url := lasting(t, func(c *Config) { c.RPC.HandshakeTimeout = 2 * patience })
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	for _, header := range []string{"", "Connection: close\r\n"} {
		c, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: %s\r\nContent-Length: 5\r\n%s\r\n", path, host, header)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%q: %v", header, err)
			continue
		}
		answer, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(answer), "has no body") {
			t.Errorf("%q: %q, %v", header, answer, err)
		}
	}
	if n := r.metric("mooring_connections"); n != "0" {
		t.Errorf("%s connections are left", n)
	}
}

// Over HTTP/2 any number of answers that last share a connection with what is answered at once, under the same bounds: the
// connection counts as one that has yet to become something whenever nothing lasts.
func TestLastingAnswersShareAConnection(t *testing.T) {
	t.Parallel()
	r, _ := lasting(t, func(c *Config) { c.Handshakes, c.ConnectionsPerAddress, c.RPC.HandshakeTimeout = 1, 30, 2*time.Second })
	lent := httptest.NewUnstartedServer(nil)
	lent.EnableHTTP2 = true
	lent.StartTLS()
	lent.Close()
	client := lent.Client()
	defer client.CloseIdleConnections()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: lent.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	web := r.server.newHTTPServer()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = web.Serve(ln)
	}()
	defer func() {
		_ = web.Close()
		<-served
	}()
	defer func() {
		if t.Failed() {
			t.Logf("in the end there are %s connections and %s handshakes", r.metric("mooring_connections"), r.metric("mooring_handshakes"))
		}
	}()
	url := "https://" + ln.Addr().String()
	ask := func(path string) (*http.Response, func()) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		if res.ProtoMajor != 2 {
			t.Fatalf("%s is answered by %s", path, res.Proto)
		}
		return res, cancel
	}
	counts := func(connections, handshakes string) {
		t.Helper()
		until.True(t, connections+" connections and "+handshakes+" handshakes", func() bool {
			return r.metric("mooring_connections") == connections && r.metric("mooring_handshakes") == handshakes
		})
	}
	for round := range 2 { // it goes on after answers that have ended
		var leave []func()
		for range 30 {
			res, cancel := ask("/lasting")
			if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "here\n" {
				t.Fatalf("%q, %v", line, err)
			}
			leave = append(leave, cancel)
		}
		counts("30", "0")
		if res, _ := ask("/lasting"); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("one more than there may be: %d", res.StatusCode)
		}
		if res, _ := ask("/healthz"); res.StatusCode != http.StatusOK {
			t.Errorf("beside them: %d", res.StatusCode)
		}
		if round == 0 {
			begun := time.Now()
			until.True(t, "the time of a handshake has passed", func() bool { return time.Since(begun) > 2500*time.Millisecond })
			counts("30", "0")
		}
		for _, l := range leave {
			l()
		}
		counts("0", "1")
	}
	// A WebSocket takes a connection of its own, of HTTP/1.1.
	client.CloseIdleConnections()
	counts("0", "0")
	transport, err := rpc.Dial(within(t), url+"/capnp", rpc.DialOptions{TLS: client.Transport.(*http.Transport).TLSClientConfig})
	if err != nil {
		t.Fatal(err)
	}
	_ = transport.Close(1000, "")
}
