//go:build unix

package web

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// dialSocket opens a stream over a WebSocket, as a page of the server's would.
func dialSocket(t testing.TB, r *rig, path string, headers ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	header := http.Header{"Origin": {"http://" + r.host}}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		header.Set(name, value)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	conn, res, err := websocket.Dial(within(t), r.url(path), &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}, HTTPHeader: header})
	if err == nil {
		conn.SetReadLimit(-1)
		t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, res, err
}

// listenSocket is listen over a WebSocket.
func listenSocket(t testing.TB, r *rig, path string) *source { return listenSocketAs(t, r, path, "") }

// listenSocketAs shows a token first, if it is not "".
func listenSocketAs(t testing.TB, r *rig, path, token string) *source {
	t.Helper()
	conn, res, err := dialSocket(t, r, path)
	if err == nil && token != "" {
		err = conn.Write(within(t), websocket.MessageText, []byte(token))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return &source{t: t, res: res, in: bufio.NewReader(websocket.NetConn(ctx, conn, websocket.MessageBinary)), stop: func() { _ = conn.CloseNow() }}
}

var position = regexp.MustCompile(`event: (at|caught)\ndata: .*\n\n?`)

// A WebSocket says what server-sent events do, byte by byte, from every cursor, and ends for the same reasons.
func TestSocketSaysWhatEventsDo(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		m.script()
		m.do(put("part/a/1", fmt.Sprintf(`{"type":"text","text":"ä%s"}`, strings.Repeat("ö€", 40<<10)))) // in several messages, that end within characters
		public := m.publish()
		path := "/share/" + public.ID + "/live"
		end := m.do(put("message/z", `{"role":"user"}`))
		said := func(s *source) string {
			var all bytes.Buffer
			caught := fmt.Sprintf(`data: {"cursor":%d,"hash":`, end)
			for {
				line, err := s.in.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if all.WriteString(line); strings.HasPrefix(line, caught) {
					s.stop()
					return position.ReplaceAllString(all.String(), "") // how often that is said is nobody's promise
				}
			}
		}
		for from := range end {
			at := fmt.Sprintf("%s?after=%d", path, from)
			if got, want := said(listenSocket(t, r, at)), said(listen(t, newBrowser(t), r.url(at), "")); got != want {
				t.Fatalf("from %d it says\n%.2000s\nand server-sent events\n%.2000s", from, got, want)
			}
		}
		if got := listenSocket(t, r, fmt.Sprintf("%s?after=%d", path, end+1)).ends(); len(got) != 1 || got[0] != "reload {}" {
			t.Errorf("from a cursor that there is not: %q", got)
		}
		// Of a server that was restored the page has other events: it is painted anew.
		page := newBrowser(t).get(r.url("/share/" + public.ID)).body
		painted := regexp.MustCompile(`data-cursor="(\d+)" data-hash="([0-9a-f]{64})"`).FindStringSubmatch(page)
		if painted == nil {
			t.Fatalf("the page does not say where it is: %.500s", page)
		}
		listenSocket(t, r, fmt.Sprintf("%s?after=%s&hash=%s", path, painted[1], painted[2])).caughtUp(end)
		other := fmt.Sprintf("%s?after=%s&hash=%064d", path, painted[1], 1)
		for label, s := range map[string]*source{"a WebSocket": listenSocket(t, r, other), "server-sent events": listen(t, newBrowser(t), r.url(other), "")} {
			if got := s.ends(); len(got) != 1 || got[0] != "reload {}" {
				t.Errorf("from another event, over %s: %q", label, got)
			}
		}
		s := listenSocket(t, r, path+"?after=0")
		s.caughtUp(end)
		end = m.do(put("message/live", `{"role":"user"}`))
		s.caughtUp(end)
		m.revoke(public.Share)
		if got := s.ends(); len(got) == 0 || !strings.HasPrefix(got[len(got)-1], `over {"code":"revoked"`) {
			t.Errorf("the revoke: %q", got)
		}
		if got := listenSocket(t, r, path+"?after=0").ends(); len(got) != 1 || !strings.HasPrefix(got[0], `over {"code":"revoked"`) {
			t.Errorf("who comes back: %q", got)
		}
	})
}

// A server that stops ends them, without a word of an end.
func TestSocketsEndWithTheServer(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	s := listenSocket(t, r, "/share/"+m.publish().ID+"/live?after=0")
	s.until("caught")
	r.stop()
	for {
		got, err := s.next()
		if err == io.EOF {
			return
		}
		if err != nil || got.event == "over" {
			t.Fatal(got, err)
		}
	}
}

func TestRefusedSockets(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *node.Config, _ *Config) { c.Connections = 2 })
	m := r.create()
	path := "/share/" + m.publish().ID
	for _, c := range []struct {
		path   string
		header string
		want   int
	}{
		{path + "/live?after=0", "Origin: http://evil.example", 403},
		{path + "/live?after=0", "Origin: http://127.0.0.1:1", 403}, // another port's page
		{path + "/live?after=0", "Origin: null", 403},
		{path + "/live?after=x", "X: x", 400},
		{path + "/live", "X: x", 400},
		{path + "/block?key=message/no", "X: x", 404},
	} {
		if _, res, err := dialSocket(t, r, c.path, c.header); err == nil || res == nil || res.StatusCode != c.want {
			t.Errorf("%s, %s: %v %v, want %d", c.path, c.header, res, err, c.want)
		}
	}
	first, second := listenSocket(t, r, path+"/live?after=0"), listenSocket(t, r, path+"/live?after=0")
	first.until("caught")
	second.until("caught")
	if _, res, err := dialSocket(t, r, path+"/live?after=0"); err == nil || res == nil || res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a third of two: %v %v", res, err)
	}
	first.stop()
	second.stop()
	until.True(t, "they have left", func() bool { return r.metric("mooring_connections") == "0" })

	// A page says nothing, or is ended; so is who says too much.
	for _, said := range []string{"x", strings.Repeat("x", 2*maxHello)} {
		conn, _, err := dialSocket(t, r, path+"/live?after=0")
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Write(within(t), websocket.MessageText, []byte(said)); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, _, err = conn.Read(within(t))
		}
		until.True(t, "it has left", func() bool { return r.metric("mooring_connections") == "0" })
	}
}

// Who does not read is ended.
func TestSlowSocket(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(_ *node.Config, c *Config) { c.WriteTimeout = time.Second })
	m := r.create()
	live := "/share/" + m.publish().ID + "/live?after="
	c, err := net.Dial("tcp", r.host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET %s0 HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", live, r.host)
	until.True(t, "it follows", func() bool { return r.metric("mooring_connections") == "1" })
	text := strings.Repeat("words and words ", 12<<10)
	var at uint64
	for i := range 45 { // more than sockets hold
		at = m.do(put("part/m/p", fmt.Sprintf(`{"type":"text","text":"%d %s"}`, i, text)))
	}
	until.True(t, "it is ended", func() bool { return r.metric("mooring_connections") == "0" })
	for last, got := "0", (map[uint64][]message{}); ; { // on a slow machine who reads may be slow too, and comes back
		s := listenSocket(t, r, live+last)
		err := s.frames(at, got)
		if s.stop(); err == nil {
			break
		}
		last = cmp.Or(s.last, last)
	}
	if log := r.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("readers who went away are errors in the log:\n%s", log)
	}
}
