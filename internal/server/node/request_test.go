//go:build unix

package node

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc"
)

// TestRequestsHaveIDs: each answer names one, the log has it with what was refused, and a
// handler that panics does not keep its client from an answer.
func TestRequestsHaveIDs(t *testing.T) {
	t.Parallel()
	var log lockbuf.Buffer
	r := start(t, sqliteStore(t), func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	handlers := map[string]func(http.ResponseWriter){
		"fine":     func(w http.ResponseWriter) { _, _ = io.WriteString(w, "fine") },
		"refuses":  func(w http.ResponseWriter) { httpkit.WriteText(w, http.StatusForbidden, "no") },
		"panics":   func(w http.ResponseWriter) { w.Header().Set("Content-Length", "3"); panic("of its own") },
		"half":     func(w http.ResponseWriter) { _, _ = io.WriteString(w, "half"); flush(w); panic("in the middle") },
		"aborts":   func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"dressed":  func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "gzip"); panic("dressed") },
		"informed": func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); panic("after a hint") },
	}
	mux := http.NewServeMux()
	for name, do := range handlers {
		mux.HandleFunc("/"+name+"/", func(w http.ResponseWriter, _ *http.Request) { do(w) })
	}
	own := httptest.NewServer(r.server.withRequestID(mux))
	defer own.Close()
	web := httpOf(t, r)
	ids := make(map[string]string)
	for _, test := range []struct {
		path   string
		status int // 0: the answer is cut
		body   string
		logged string
	}{
		{"fine", 200, "fine", ""},
		{"refuses", 403, "no", `level=DEBUG msg="request refused"`},
		{"panics", 500, "internal error: the log says why at incident ID\n", `level=ERROR msg="a request's handler panicked"`},
		{"informed", 500, "internal error: the log says why at incident ID\n", `panic="after a hint"`},
		{"dressed", 500, "internal error: the log says why at incident ID\n", `panic=dressed`},
		{"half", 200, "half", `panic="in the middle"`},
		{"aborts", 0, "", ""},
		{"nowhere", 404, "404 page not found\n", `level=DEBUG msg="request refused"`},
		{"healthz", 200, "ok\n", ""},
		{"capnp", 426, "WebSocket protocol violation: Connection header \"close\" does not contain Upgrade\n", `msg="handshake refused"`},
	} {
		url := web + "/" + test.path
		if handlers[test.path] != nil {
			url = own.URL + "/" + test.path + "/secret"
		}
		id, status, body, err := ask(url)
		if test.status == 0 {
			if err == nil {
				t.Errorf("%s: %d %q", test.path, status, body)
			}
			continue
		}
		if status != test.status || body != strings.Replace(test.body, "ID", id, 1) || (err != nil) != (test.path == "half") {
			t.Errorf("%s: %d %q, %v", test.path, status, body, err)
		}
		if id == "" || ids[id] != "" {
			t.Errorf("%s: the id %q, as %s", test.path, id, ids[id])
		}
		ids[id] = test.path
		if test.logged == "" {
			continue
		}
		until.True(t, test.path+" is in the log", func() bool {
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, test.logged) && strings.Contains(line, id) {
					return true
				}
			}
			return false
		})
	}
	p := r.dial()
	m := r.create(p)
	socket, err := rpc.Dial(within(t), web+"/capnp", rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	newPeer(t, socket)
	refused := m.batch(op("put", "key", "ref/x", "payload", map[string]string{}), put(1))
	p.must(m.stream, refused)
	until.True(t, "the batch is in the log", func() bool {
		return strings.Contains(log.String(), `msg="batch refused" session=`+m.id+" batch="+refused.BatchID+" code=bad_key")
	})
	for series, want := range map[string]string{`route="GET /capnp",status="101"`: "1", `route="/panics/",status="500"`: "1", `route="/fine/",status="200"`: "1", `route="none",status="404"`: "1",
		`route="/half/",status="200"`: "1", `route="GET /healthz",status="200"`: "1"} {
		if got := r.metric("mooring_http_requests_total{" + series + "}"); got != want {
			t.Errorf("%s: %s", series, got)
		}
	}
	if all := log.String(); strings.Contains(all, "secret") || !strings.Contains(all, "request_test.go") {
		t.Errorf("the log has a path, or no stack:\n%s", all)
	}
	if got := r.metric(`mooring_refusals_total{code="internal"}`); got != "4" {
		t.Errorf("%s panics are counted, want 4", got)
	}
	w := httptest.NewRecorder()
	if r.server.Metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil)); w.Code != 200 || w.Header().Get(RequestHeader) == "" {
		t.Errorf("the metrics are answered with %d, %v", w.Code, w.Header())
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// ask gives what came of a request, as far as it came.
func ask(url string) (id string, status int, body string, err error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Get(url)
	if err != nil {
		return "", 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.Header.Get(RequestHeader), resp.StatusCode, string(text), errors.Join(err, resp.Body.Close())
}
