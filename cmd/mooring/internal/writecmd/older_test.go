package writecmd

import (
	"context"
	"database/sql"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/server"
)

// oldSessions starts a server with n sessions whose last event is from 100 days ago, and returns their space.
func oldSessions(t *testing.T, n int) *client.Space {
	t.Helper()
	dir := t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(t.Context(), server.Config{Dir: filepath.Join(dir, "server"), Addrs: []net.Addr{ln.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: srv.Handler()}
	go web.Serve(ln)
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		_ = web.Close()
	})
	text, err := os.ReadFile(srv.Owner().Path)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := capability.ParseRef(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(filepath.Join(dir, "home"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	space, err := c.Space(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		_, b := space.Create(client.CreateOptions{})
		if _, err := b.CommitWait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "server", "mooring.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("UPDATE sessions SET updated = updated - ?", 100*24*time.Hour.Milliseconds()); err != nil {
		t.Fatal(err)
	}
	return space
}

// A command that is to stop finishes the request under way, says what is done, and goes on when it is
// given again.
func TestDeleteOlderStops(t *testing.T) {
	t.Parallel()
	sp := oldSessions(t, 3)
	var out, errOut strings.Builder
	h := &home.Folder{Env: &cli.Env{Out: &out, Err: &errOut}}
	ended, end := context.WithCancel(t.Context())
	end()
	o := client.OlderOptions{Remove: client.DeleteOlder, Age: 90 * 24 * time.Hour, Limit: 1}
	err := removeListed(ended, h, sp, o, 3)
	if fault.CodeOf(err) != fault.Canceled || !strings.Contains(err.Error(), "the same command goes on") || out.String() != "deleted 1 session\n" {
		t.Errorf("stopped: %v, %q", err, out.String())
	}
	out.Reset()
	if err := removeListed(t.Context(), h, sp, o, 2); err != nil || out.String() != "deleted 2 sessions\n" {
		t.Errorf("again: %v, %q", err, out.String())
	}
}
