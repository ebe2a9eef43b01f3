//go:build unix

// Byte streams, metrics and limits of mooring serve.

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/rpc"
)

// shortDir is a folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mooring")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// answers checks that a vat answers over a byte stream.
func answers(t *testing.T, network, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), servePatience)
	defer cancel()
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	conn := rpc.NewConn(rpc.NewStreamTransport(c), rpc.Config{})
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = conn.Run(context.Background())
	}()
	gateway := conn.Bootstrap(ctx)
	if _, _, err := gateway.Call(ctx, rpc.Method{Interface: 1}, capnp.ObjectSize{}, nil).Wait(ctx); !rpc.IsUnimplemented(err) {
		t.Errorf("%s %s: the gateway answers %v", network, address, err)
	}
	gateway.Release()
	conn.Close("test")
	<-ran
}

// scrape reads what a server tells of itself.
func scrape(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestServeByteStreamsAndMetrics(t *testing.T) {
	t.Parallel()
	sock := filepath.Join(shortDir(t), "capnp")
	dir := t.TempDir()
	args := []string{"--capnp-listen", "unix:" + sock, "--capnp-listen", "tcp://127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"}
	s := startServe(t, dir, args...)
	if len(s.banner.Capnp) != 2 || s.banner.Capnp[0] != "unix:"+sock {
		t.Fatalf("the banner names %q", s.banner.Capnp)
	}
	tcp, ok := strings.CutPrefix(s.banner.Capnp[1], "tcp://")
	if !ok {
		t.Fatalf("the banner names %q", s.banner.Capnp)
	}
	answers(t, "unix", sock)
	answers(t, "tcp", tcp)
	text := scrape(t, s.banner.Metrics)
	if !strings.Contains(text, "\nmooring_connections ") || !strings.Contains(text, "go_goroutines") {
		t.Errorf("metrics: %s", text)
	}
	for deadline := time.Now().Add(time.Minute); strings.Contains(text, "\ngo_gc_gogc_percent 100\n"); text = scrape(t, s.banner.Metrics) {
		time.Sleep(pollInterval)
		if time.Now().After(deadline) {
			t.Fatal("little lives in the server, and it collects whenever that has doubled")
		}
	}
	// A second server on the same socket is refused, one after a crash is not.
	code, _, errText := command(t, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--capnp-listen", "unix:"+sock)
	if code != cli.ExitRefused || !strings.Contains(errText, "somebody serves it") {
		t.Errorf("a second server: %d %q", code, errText)
	}
	if code, text := s.stop(); code != 0 {
		t.Errorf("ended with %d: %s", code, text)
	}
	if _, err := os.Lstat(sock); err == nil {
		t.Error("the socket is still there")
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	startServe(t, dir, args...)
	answers(t, "unix", sock)
}

func TestServeKeepsFilesThatAreNoSockets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(shortDir(t), "notes")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errText := command(t, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--capnp-listen", "unix:"+file)
	if code != cli.ExitRefused || strings.Count(errText, "\n") != 1 {
		t.Errorf("%d %q", code, errText)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file: %q, %v", text, err)
	}
}

// A limit given to the command is the one a peer meets.
func TestServeLimitIsMet(t *testing.T) {
	t.Parallel()
	sock := filepath.Join(shortDir(t), "capnp")
	startServe(t, t.TempDir(), "--capnp-listen", "unix:"+sock, "--max-segments", "3", "--max-connections-per-address", "1")
	c, err := net.Dial("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(servePatience))
	if _, err := c.Write([]byte{3, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(c); err != nil || !strings.Contains(string(said), "4 segments, the limit is 3") {
		t.Errorf("said %q, %v", said, err)
	}
}

// TestAbortedConnectionsAreSummedUp: peers that break the protocol, one after another, fill
// no log.
func TestAbortedConnectionsAreSummedUp(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	const peers = 60
	const burst = 10 // of one message a minute
	for range peers {
		c, _, err := websocket.Dial(t.Context(), "ws://"+s.banner.Listening+"/rpc", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Write(t.Context(), websocket.MessageText, []byte(`["release",0,7]`)); err != nil {
			t.Fatal(err)
		}
		for err == nil { // until it is told off, and closed
			_, _, err = c.Read(t.Context())
		}
		_ = c.CloseNow()
	}
	_, log := s.stop()
	if n := strings.Count(log, "connection aborted"); n == 0 || n > burst+2 || !strings.Contains(log, "more_like_it") {
		t.Errorf("%d lines of %d peers:\n%s", n, peers, log)
	}
}
