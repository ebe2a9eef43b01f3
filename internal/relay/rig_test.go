package relay

// What the tests share: a server that comes and goes, and a relay in front of it, both on real sockets.

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/server"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

// rig is a server and a relay, each of which can be stopped and started again.
type rig struct {
	t      *testing.T
	dir    string
	addr   string // HOST:PORT of the server
	owner  capability.Ref
	log    lockbuf.Buffer
	change func(*Config)
	rows   int           // unfinished ops that the outbox takes; 0 for its own limit
	every  time.Duration // how often ended shares are forgotten; 0 for the relay's own

	client *client.Client
	relay  *Relay
	http   *httptest.Server // of the relay

	stopServer, stopRelay func()
}

// start makes the server once, so that there is an owner's ref, and runs both.
func start(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), addr: "127.0.0.1:0", change: change, stopServer: func() {}, stopRelay: func() {}}
	r.startServer()
	text, err := capability.ReadRefFile(filepath.Join(r.dir, "server", "owner.ref"))
	if err != nil {
		t.Fatal(err)
	}
	r.owner = text
	r.startRelay()
	t.Cleanup(func() {
		r.stopRelay()
		r.stopServer()
	})
	return r
}

func (r *rig) startServer() {
	r.t.Helper()
	ln, err := new(net.ListenConfig).Listen(r.t.Context(), "tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = ln.Addr().String()
	srv, err := server.New(context.Background(), server.Config{Dir: filepath.Join(r.dir, "server"), Addrs: []net.Addr{ln.Addr()}, ShareLoopback: true})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, ln) }()
	r.stopServer = func() {
		r.stopServer = func() {}
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the server ended with %v", err)
		}
		if err := srv.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

func (r *rig) startRelay() {
	r.t.Helper()
	cfg := client.Config{OpenOutbox: sqliteclient.Outbox(filepath.Join(r.dir, "home"))}
	cfg.Reconnect.Initial, cfg.Reconnect.Max = 5*time.Millisecond, 50*time.Millisecond
	cfg.OutboxConfig.Backoff.Initial, cfg.OutboxConfig.Backoff.Max = 5*time.Millisecond, 50*time.Millisecond
	cfg.OutboxConfig.Limits.Rows = r.rows
	var err error
	if r.client, err = client.Open(r.t.Context(), cfg); err != nil {
		r.t.Fatal(err)
	}
	space, err := r.client.Space(r.t.Context(), r.owner)
	if err != nil {
		r.t.Fatal(err)
	}
	c := Config{Client: r.client, Space: space, Dir: filepath.Join(r.dir, "relay"), Log: slog.New(slog.NewTextHandler(&r.log, nil))}
	if r.change != nil {
		r.change(&c)
	}
	if r.relay, err = New(r.t.Context(), c); err != nil {
		r.t.Fatal(err)
	}
	if r.every > 0 {
		r.relay.forgetEvery = r.every
	}
	r.http = httptest.NewServer(r.relay)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.relay.Run(ctx) }()
	r.stopRelay = func() {
		r.stopRelay = func() {}
		r.http.Close()
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
		if err := r.relay.Close(); err != nil {
			r.t.Error(err)
		}
		if err := r.client.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

// plain does not keep connections, so that nothing of it is left.
var plain = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// ask sends a request; headers are names and values in turn.
func ask(t *testing.T, method, at, body string, headers ...string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		} else {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := plain.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(got)
}

// want is ask for a status.
func want(t *testing.T, status int, method, at, body string, headers ...string) string {
	t.Helper()
	got, text := ask(t, method, at, body, headers...)
	if got != status {
		t.Fatalf("%s %s: status %d, want %d: %s", method, at, got, status, text)
	}
	return text
}

// create makes a share at a share server: of the relay, or the real one.
func create(t *testing.T, at, session string) (c opencode.CreateReply) {
	t.Helper()
	text := want(t, http.StatusOK, "POST", at+"/api/share", string(mustJSON(t, map[string]string{"sessionID": session})))
	if err := json.Unmarshal([]byte(text), &c); err != nil || c.ID == "" || c.Secret == "" {
		t.Fatalf("create gave %s", text)
	}
	return c
}

// syncTo sends items, JSON texts.
func syncTo(t *testing.T, at string, c opencode.CreateReply, items ...string) {
	t.Helper()
	want(t, http.StatusOK, "POST", at+"/api/share/"+c.ID+"/sync", syncBody(c.Secret, items...))
}

func syncBody(secret string, items ...string) string {
	return `{"secret":"` + secret + `","data":[` + strings.Join(items, ",") + `]}`
}

func end(t *testing.T, at string, c opencode.CreateReply) {
	t.Helper()
	want(t, http.StatusOK, "DELETE", at+"/api/share/"+c.ID, `{"secret":"`+c.Secret+`"}`)
}

// real is the address of the real server.
func (r *rig) real() string { return "http://" + r.addr }

// drained waits until the server has all.
func (r *rig) drained() {
	r.t.Helper()
	if err := r.client.Drain(r.t.Context(), nil); err != nil {
		r.t.Fatal(err)
	}
}

// settled waits until nothing is left of ends and of files, and the server has it.
func (r *rig) settled() {
	r.t.Helper()
	until.True(r.t, "everything is settled", func() bool {
		return !slices.ContainsFunc(r.relay.all(), (*share).unsettled)
	})
	r.drained()
}

// data is what the real server gives out of a share, item by item; nil if it does not show it.
func (r *rig) data(id string) []string {
	r.t.Helper()
	status, text := ask(r.t, "GET", r.real()+"/api/share/"+id+"/data", "")
	if status == http.StatusNotFound {
		return nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal([]byte(text), &items); status != http.StatusOK || err != nil {
		r.t.Fatalf("data: status %d, %s", status, text)
	}
	list := make([]string, len(items))
	for i, item := range items {
		list[i] = string(item)
	}
	return list
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// parseURL parses an address.
func parseURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// logged waits until the relay has logged words.
func (r *rig) logged(words string) {
	r.t.Helper()
	until.True(r.t, words, func() bool { return strings.Contains(r.log.String(), words) })
}
