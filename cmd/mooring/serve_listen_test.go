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
	"reflect"
	"strings"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/coder/websocket"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/server"
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
	if code != exitRefused || !strings.Contains(errText, "somebody serves it") {
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
	if code != exitRefused || strings.Count(errText, "\n") != 1 {
		t.Errorf("%d %q", code, errText)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file: %q, %v", text, err)
	}
}

// limitFields says which field each limit's flag is for.
func limitFields(l *server.Limits) map[string]any {
	return map[string]any{
		"max-connections": &l.Connections, "max-connections-per-address": &l.ConnectionsPerAddress, "max-handshakes": &l.Handshakes,
		"max-stranger-bytes": &l.StrangerBytes, "max-peer-bytes": &l.PeerBytes, "max-ref-bytes": &l.RefBytes,
		"max-subscriptions": &l.Subscriptions, "max-batches-in-flight": &l.BatchesInFlight, "max-commit-queue": &l.CommitQueue,
		"batch-timeout": &l.BatchTimeout, "max-wrong-tries": &l.WrongTries, "wrong-try-interval": &l.WrongTryInterval,
		"handshake-timeout": &l.HandshakeTimeout, "idle-timeout": &l.IdleTimeout, "ping-interval": &l.PingInterval,
		"ping-timeout": &l.PingTimeout, "write-timeout": &l.WriteTimeout,
		"max-message-bytes": &l.MessageBytes, "max-segments": &l.Segments, "max-nesting": &l.Nesting,
		"max-traversal-bytes": &l.TraversalBytes, "max-questions": &l.Questions, "max-answers": &l.Answers,
		"max-answer-bytes": &l.AnswerBytes, "max-exports": &l.Exports, "max-imports": &l.Imports,
		"max-share-bytes": &l.ShareBytes, "max-share-message": &l.ShareMessageBytes, "max-share-requests": &l.ShareRequests,
		"max-share-creates": &l.ShareCreates, "max-share-secrets": &l.ShareSecrets,
		"share-body-timeout": &l.ShareBodyTimeout, "share-sync-timeout": &l.ShareSyncTimeout,
		"session-quota": &l.SessionQuota, "ref-quota": &l.RefQuota, "create-quota": &l.CreateQuota,
		"max-queued-calls": &l.QueuedCalls, "max-queued-bytes": &l.QueuedBytes,
	}
}

// Every limit has a flag that sets its field and no other, and stands in the help once.
func TestLimitFlags(t *testing.T) {
	t.Parallel()
	flags := func() (*cobra.Command, *server.Limits) {
		limits := server.DefaultLimits()
		cmd := &cobra.Command{Use: "x"}
		addLimits(cmd, &limits)
		return cmd, &limits
	}
	code, help, _ := command(t, "serve", "--help")
	if code != 0 {
		t.Fatalf("--help: %d", code)
	}
	untouched := server.DefaultLimits()
	fields := limitFields(&untouched)
	all, _ := flags()
	all.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		if fields[f.Name] == nil {
			t.Errorf("--%s is for no field that the test knows", f.Name)
			return
		}
		cmd, limits := flags()
		value := map[string]string{"int": "123", "size": "123MiB", "duration": "123s"}[f.Value.Type()]
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			t.Errorf("--%s %s: %v", f.Name, value, err)
		}
		for name, field := range limitFields(limits) {
			if changed := !reflect.DeepEqual(field, fields[name]); changed != (name == f.Name) {
				t.Errorf("--%s: the field of --%s has changed is %v", f.Name, name, changed)
			}
		}
		if err := checkLimits(cmd.Flags(), *limits); (err != nil) != (f.Name == "max-message-bytes") { // above what may be traversed
			t.Errorf("--%s %s: %v", f.Name, value, err)
		}
		if n := strings.Count(help, "--"+f.Name+" "); n != 1 {
			t.Errorf("the help names --%s %d times", f.Name, n)
		}
	})
	for name := range fields {
		if all.Flags().Lookup(name) == nil {
			t.Errorf("there is no --%s", name)
		}
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
	if n := strings.Count(log, "connection aborted"); n == 0 || n > logRepeats.Burst+2 || !strings.Contains(log, "more_like_it") {
		t.Errorf("%d lines of %d peers:\n%s", n, peers, log)
	}
}
