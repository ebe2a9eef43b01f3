package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

// embedded is a server in a program's own HTTP server.
type embedded struct {
	t   *testing.T
	srv *Server
	web *httptest.Server
	ref capability.Ref // the owner's
}

func embed(t *testing.T, change func(*Config)) *embedded {
	t.Helper()
	return embedIn(t, func(h http.Handler) http.Handler { return h }, change)
}

// embedIn is embed with middleware around the server's handler.
func embedIn(t *testing.T, middleware func(http.Handler) http.Handler, change func(*Config)) *embedded {
	t.Helper()
	web := httptest.NewUnstartedServer(nil)
	cfg := Config{Dir: t.TempDir(), Addrs: []net.Addr{web.Listener.Addr()}}
	if change != nil {
		change(&cfg)
	}
	srv, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	web.Config.Handler = middleware(srv.Handler())
	web.Start()
	text, err := os.ReadFile(srv.Owner().Path)
	if err != nil {
		t.Fatal(err)
	}
	e := &embedded{t: t, srv: srv, web: web}
	if e.ref, err = capability.ParseRef(strings.TrimSpace(string(text))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// ask sends a request under the owner's ref. The answer's body is the caller's to close.
func (e *embedded) ask(method, path, body string, headers ...string) *http.Response {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), method, e.web.URL+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+e.ref.Text())
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := e.web.Client().Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	return res
}

// says asks for a path, and compares the answer's status and the start of its body.
func (e *embedded) says(path string, status int, text string) {
	e.t.Helper()
	res := e.ask("GET", path, "")
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); res.StatusCode != status || !strings.HasPrefix(string(body), text) || err != nil {
		e.t.Errorf("%s: %d %q (%v), want %d %q", path, res.StatusCode, body, err, status, text)
	}
}

// Close ends the streams of a program's own HTTP server, and the handler refuses later requests.
func TestCloseEndsTheStreamsOfAnotherServer(t *testing.T) {
	t.Parallel()
	e := embed(t, nil)
	e.says("/healthz", 200, "ok\n")
	e.says("/readyz", 200, "ready\n")
	res := e.ask("POST", "/api/v1/spaces/"+e.ref.Target()+"/sessions", `{}`, "Content-Type", "application/json")
	var made struct{ Session, Text string }
	err := json.NewDecoder(res.Body).Decode(&made)
	res.Body.Close()
	if err != nil || res.StatusCode/100 != 2 {
		t.Fatalf("no session is made: %d, %v", res.StatusCode, err)
	}
	stream := e.ask("GET", "/api/v1/sessions/"+made.Session+"/events", "", "Accept", "text/event-stream", "Authorization", "Bearer "+made.Text)
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	if !lines.Scan() || stream.StatusCode != 200 {
		t.Fatalf("the stream does not begin: %d %s", stream.StatusCode, lines.Text())
	}
	if err := e.srv.Close(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	e.refuses()
	if err := e.srv.Serve(t.Context(), nil); fault.CodeOf(err) != fault.Usage {
		t.Errorf("served after Close: %v", err)
	}
}

// refuses checks what the handler answers after Close.
func (e *embedded) refuses() {
	e.t.Helper()
	e.says("/healthz", 200, "ok\n")
	e.says("/readyz", 503, "draining\n")
	e.says("/api/v1/sessions/x/snapshot", 503, `{"error":{"code":"draining",`)
	e.says("/s/healthz", 503, "the server is stopping\n")
	e.says("/sessions", 503, "the server is stopping\n")
}

// A handler of a server that was closed before refuses everything.
func TestCloseBeforeHandler(t *testing.T) {
	t.Parallel()
	web := httptest.NewUnstartedServer(nil)
	srv, err := New(t.Context(), Config{Dir: t.TempDir(), Addrs: []net.Addr{web.Listener.Addr()}})
	if err == nil {
		err = srv.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	web.Config.Handler = srv.Handler()
	web.Start()
	defer web.Close()
	(&embedded{t: t, srv: srv, web: web}).refuses()
}

// Below a path of a program's own, what opencode is given leads there.
func TestSharesBelowAPath(t *testing.T) {
	t.Parallel()
	e := embed(t, func(c *Config) { c.Address, c.ShareLoopback = "mooring://"+c.Addrs[0].String()+"/agents", true })
	res := e.ask("POST", "/agents/api/share", `{"sessionID":"ses_1"}`, "Authorization", "")
	defer res.Body.Close()
	var made struct{ URL string }
	if err := json.NewDecoder(res.Body).Decode(&made); err != nil || !strings.HasPrefix(made.URL, e.web.URL+"/agents/share/") {
		t.Fatalf("%d %+v, %v", res.StatusCode, made, err)
	}
	e.says(strings.TrimPrefix(made.URL, e.web.URL), 200, "<!doctype html>")
}

// Close waits for a program's own requests, and cuts off one that does not end.
func TestCloseCutsOffARequest(t *testing.T) {
	t.Parallel()
	cutsOff(t, embed(t, func(c *Config) { c.DrainTimeout = 200 * time.Millisecond }))
}

// Close goes on without a request that it cannot cut off.
func TestCloseBehindMiddlewareWithoutUnwrap(t *testing.T) {
	t.Parallel()
	hide := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(struct{ http.ResponseWriter }{w}, r) })
	}
	cutsOff(t, embedIn(t, hide, func(c *Config) { c.DrainTimeout = 200 * time.Millisecond }))
}

// cutsOff checks that Close ends although the body of a request never comes.
func cutsOff(t *testing.T, e *embedded) {
	t.Helper()
	conn, err := net.Dial("tcp", e.web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/v1/spaces/%s/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\r\n",
		e.ref.Target(), e.ref.Text())
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100") { // its body is read from here on
		t.Fatalf("%q, %v", line, err)
	}
	began, patience := time.Now(), time.AfterFunc(20*time.Second, func() { conn.Close() })
	if err := e.srv.Close(); err != nil {
		t.Error(err)
	}
	if !patience.Stop() {
		t.Errorf("Close waited until its peer left")
	}
	if took := time.Since(began); took < 100*time.Millisecond { // calls have three quarters of DrainTimeout
		t.Errorf("Close waited for a request for %v", took)
	}
}

// A listener is served until the context ends, or Close is called.
func TestServe(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(srv *Server, cancel func()){
		"context": func(_ *Server, cancel func()) { cancel() },
		"Close":   func(srv *Server, _ func()) { _ = srv.Close() },
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Dir: t.TempDir(), Addrs: []net.Addr{ln.Addr()}, TLS: true}
		srv, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if o := srv.Owner(); !o.Created || o.Dead || o.Foreign || !strings.HasPrefix(o.Path, cfg.Dir) {
			t.Errorf("%+v", o)
		}
		if at, want := srv.Address().Address(), "moorings://"+ln.Addr().String(); at != want {
			t.Errorf("it is at %s, want %s", at, want)
		}
		if _, err := New(t.Context(), cfg); fault.CodeOf(err) != fault.InUse {
			t.Errorf("opened twice: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- srv.Serve(ctx, ln) }()
		res, err := http.Get("http://" + ln.Addr().String() + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("ready: %d", res.StatusCode)
		}
		end(srv, cancel)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		if err := srv.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		if srv, err = New(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if o := srv.Owner(); o.Created {
			t.Errorf("opened again: %+v", o)
		}
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Limits change while the server runs, if they go together.
func TestSetLimits(t *testing.T) {
	t.Parallel()
	e := embed(t, func(c *Config) { c.Limits.Connections = 5 })
	if err := e.srv.SetLimits(Limits{StrangerBytes: 1}); fault.CodeOf(err) != fault.Usage {
		t.Errorf("limits that cannot be: %v", err)
	}
	if err := e.srv.SetLimits(Limits{Connections: 1, ShareBytes: 10}); err != nil {
		t.Fatal(err)
	}
	res := e.ask("POST", "/api/share/x/sync", `{"secret":"a","data":[]}`, "Content-Type", "application/json")
	res.Body.Close()
	if res.StatusCode != 413 {
		t.Errorf("a sync beyond the new limit: %d", res.StatusCode)
	}
	for _, want := range []int{101, 503} {
		res := e.ask("GET", "/rpc", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
		defer res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("status %d, want %d", res.StatusCode, want)
		}
	}
}

// Metrics are guarded as everything is.
func TestMetricsNameAHost(t *testing.T) {
	t.Parallel()
	e := embed(t, nil)
	web := httptest.NewServer(e.srv.Metrics())
	defer web.Close()
	for host, want := range map[string]int{"localhost": 200, "rebound.example": http.StatusMisdirectedRequest} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", web.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := web.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != want || want == 200 != strings.Contains(string(text), "mooring_connections ") {
			t.Errorf("%s: %d %.100s, %v", host, res.StatusCode, text, err)
		}
	}
}
