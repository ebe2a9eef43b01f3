//go:build unix

package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// A body is bounded, and so are all bodies together; what was held is given back.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(s *node.Config, c *Config) { c.BodyBytes, s.RefBytes = 1<<20, 3*bodyChunk })
	m := r.create()
	path := "/sessions/" + m.id + "/batches"
	long := `{"outbox":"` + strings.Repeat("x", 1<<20) + `"}`
	if got := r.ask("POST", path, m.owner.Text(), long); got.status != 413 || got.code() != "too_large" {
		t.Errorf("told: %d %s", got.status, got.text)
	}
	// One that takes its time holds what it may become.
	c, err := net.Dial("tcp", r.host)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST %s%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", Path, path[1:], m.owner.Text())
	small := func() *reply {
		b := newBox()
		return r.ask("POST", path, m.owner.Text(), b.json(b.batch(m.id, op("put", "key", "message/x", "payload", obj{}))))
	}
	until.True(t, "it is being read", func() bool {
		_, known := r.server.MemoryBudgets()
		return known.Stats().Held == 2*bodyChunk
	})
	if got := small(); got.status != 429 || got.code() != "overloaded" || got.header.Get("Retry-After") != "1" {
		t.Errorf("without room: %d %s", got.status, got.text)
	}
	_ = c.Close()
	until.True(t, "there is room again", func() bool { return small().status == 200 })
}

// Chunked bodies have no length to be told by.
func TestALongBodyOfNoLength(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, c *Config) { c.BodyBytes = 1 << 20 })
	m := r.create()
	req := r.request("POST", "/sessions/"+m.id+"/batches", m.owner.Text(), "")
	req.Body, req.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(`{"outbox":"`), strings.NewReader(strings.Repeat("x", 2<<20)))), -1
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("%d", resp.StatusCode)
	}
}

// A body that does not come is not waited for long, and one that breaks off is none.
func TestBodiesThatDoNotCome(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, c *Config) { c.Timeout = 3 * time.Second })
	m := r.create()
	for _, cut := range []bool{false, true} {
		c, err := net.Dial("tcp", r.host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "POST %ssessions/%s/batches HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n{}", Path, m.id, m.owner.Text())
		if cut {
			_ = c.(*net.TCPConn).CloseWrite()
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(cut, err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 400 || !bytes.Contains(text, []byte("did not come whole")) {
			t.Errorf("%v: %d %s", cut, resp.StatusCode, text)
		}
	}
}

// Who guesses waits, and nobody else does.
func TestGuessing(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(s *node.Config, _ *Config) { s.WrongTries, s.WrongTryInterval = 1, time.Hour })
	m := r.create()
	forged := m.owner.With(m.owner.ID, capability.NewSecret()).Text()
	if got := r.ask("GET", "/sessions/"+m.id, forged, nil); got.status != 401 || got.code() != "unknown_ref" {
		t.Errorf("the first try: %d %s", got.status, got.text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if resp, err := r.http.Do(r.request("GET", "/sessions/"+m.id, forged, nil).WithContext(ctx)); err == nil {
		_ = resp.Body.Close()
		t.Errorf("the second try is answered at once: %d", resp.StatusCode)
	}
	if got := r.ask("GET", "/sessions/"+m.id, m.owner.Text(), nil); got.status != 200 {
		t.Errorf("the right one: %d %s", got.status, got.text)
	}
}

// A wait that is longer than a request's time ends with the answer that it is.
func TestGuessingTakesNoLongerThanARequest(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(s *node.Config, c *Config) {
		s.WrongTries, s.WrongTryInterval, c.Timeout = 1, time.Hour, 2*time.Second
	})
	forged := r.owner.With(r.owner.ID, capability.NewSecret()).Text()
	for range 2 {
		if got := r.ask("GET", "/spaces/"+r.owner.Target()+"/sessions", forged, nil); got.status != 401 || got.code() != "unknown_ref" {
			t.Errorf("%d %s", got.status, got.text)
		}
	}
}

// A request that outlives its server's patience ends with an answer.
func TestDrainingServerAnswers(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	api := New(Config{Server: r.server})
	r.stop()
	w := &answered{header: http.Header{}}
	req, err := http.NewRequestWithContext(context.Background(), "GET", "http://x"+Path+"sessions/"+m.id, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+m.owner.Text())
	api.ServeHTTP(w, req)
	if w.status != 503 || !strings.Contains(w.text.String(), `"draining"`) || w.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", w.status, w.text.String())
	}
}

type answered struct {
	header http.Header
	status int
	text   bytes.Buffer
}

func (w *answered) Header() http.Header         { return w.header }
func (w *answered) WriteHeader(status int)      { w.status = status }
func (w *answered) Write(b []byte) (int, error) { return w.text.Write(b) }

// Secrets are in no log and in no error, wherever they were put by mistake.
func TestSecretsStayAway(t *testing.T) {
	t.Parallel()
	var log lockbuf.Buffer
	r := start(t, teststore.SQLite(t), func(s *node.Config, c *Config) {
		s.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Log = s.Log
	})
	m := r.create()
	secret, text := m.owner.Secret.RevealText(), m.owner.Text()
	outbox := hashText(capability.NewSecret()) // looks like any other
	at := "/sessions/" + m.id
	for i, req := range []*http.Request{
		r.request("GET", at, strings.TrimSuffix(text, secret[30:]), nil),
		r.request("GET", at, "mooring://"+secret, nil),
		r.request("GET", at, text+"x", nil),
		r.request("GET", at+"/events?ref="+secret, text, nil),
		r.request("GET", at+"/events?"+secret+"=1", text, nil),
		r.request("GET", at+"/events?after="+secret, text, nil),
		r.request("GET", "/sessions/"+secret, text, nil),
		r.request("GET", "/"+secret, text, nil),
		r.request("DELETE", at+"/refs/"+m.owner.ID+"%23"+secret, text, nil),
		r.request("POST", at+"/batches", text, obj{"outbox": "x", "secret": secret + outbox}),
		r.request("POST", at+"/batches", text, obj{"outbox": "x", "secret": outbox[1:]}),
		r.request("POST", at+"/batches", text, obj{"outbox": "x", "incarnation": 1, "secret": outbox, "with": []string{text + "x"}}),
		r.request("POST", at+"/batches", text, obj{"outbox": "x", "incarnation": 1, "secret": outbox, "batch_id": secret, "ops": []any{obj{"op_id": secret}}}),
		r.request("POST", at+"/refs", text, obj{"rights": []string{"read"}, "ref": m.owner.ID + "#" + secret, "hash": outbox}),
		r.request("POST", at+"/refs", text, obj{"rights": []string{"read"}, "hash": secret}),
		r.request("POST", at+"/rotate", text, obj{"ref": m.owner.New(m.id).ID + "#" + secret, "hash": outbox}),
		r.request("POST", "/spaces/"+r.owner.Target()+"/rotate", r.owner.Text(), obj{"ref": text, "hash": outbox}),
		r.request("POST", "/spaces/"+r.owner.Target()+"/refs", r.owner.Text(), obj{"rights": []string{"list"}, "seal": secret + "x"}),
		r.request("POST", at+"/acknowledge", text, obj{"outbox": "x", "secret": outbox, "incarnation": 1, "acked_through": secret}),
		r.request("POST", at+"/acknowledge", text, obj{"outbox": secret + outbox, "secret": outbox, "incarnation": 1, "acked_through": 1}),
		r.request("POST", "/spaces/"+r.owner.Target()+"/sessions", r.owner.Text(), obj{"session": m.id, "ref": text, "hash": outbox}),
	} {
		if i%2 == 0 {
			req.Header.Set("Accept", "text/event-stream")
		}
		got := r.do(req)
		if got.status < 400 || got.code() == "internal" {
			t.Errorf("%d: %d %s", i, got.status, got.text)
		}
		for _, s := range []string{secret[:20], outbox[1:20]} {
			if bytes.Contains(got.text, []byte(s)) || strings.Contains(fmt.Sprint(got.header), s) {
				t.Errorf("%d: a secret is in %s", i, got.text)
			}
		}
	}
	r.stop()
	if message := log.String(); message == "" || strings.Contains(message, secret[:20]) || strings.Contains(message, outbox[1:20]) {
		t.Errorf("the log: %s", message)
	}
}
