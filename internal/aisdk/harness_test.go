//go:build unix

package aisdk

// What the tests share: a server with the route, chats, and streams that are read.

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/httpapi/apitest"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse()), goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

type obj = apitest.Obj

var op = apitest.Op

// rig is a running server with the route.
type rig struct{ *apitest.Rig }

// start runs a server until the test ends. change may be nil.
func start(t testing.TB, st *store.Store, change func(*node.Config, *httpapi.Config)) *rig {
	t.Helper()
	return &rig{apitest.Start(t, st, apitest.Options{Change: change, Handlers: func(cfg httpapi.Config) map[string]http.Handler {
		return map[string]http.Handler{Path: New(cfg)}
	}})}
}

// chat is a session that is chatted with.
type chat struct{ *apitest.Session }

func (r *rig) chat() *chat {
	r.TB.Helper()
	return &chat{r.Session()}
}

// say is the body of a message that is sent.
func (c *chat) say(id, text string) obj {
	return obj{"id": c.ID, "trigger": "submit-message", "messages": []obj{
		{"id": "earlier", "role": "user", "parts": []obj{{"type": "text", "text": "what was before"}}},
		{"id": id, "role": "user", "parts": []obj{{"type": "text", "text": text}}}}}
}

// reading is a stream that is read.
type reading struct {
	t     testing.TB
	scan  *bufio.Scanner
	texts []string // of its chunks so far
}

// open opens a stream.
func (c *chat) open(method, path, ref string, body any) *reading {
	c.TB.Helper()
	resp := c.Do(method, path, ref, body)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-Vercel-AI-UI-Message-Stream") != "v1" {
		text, _ := io.ReadAll(resp.Body)
		c.TB.Fatalf("%s %s: %d %v %s", method, path, resp.StatusCode, resp.Header, text)
	}
	r := &reading{t: c.TB, scan: bufio.NewScanner(resp.Body)}
	r.scan.Buffer(nil, 64<<20)
	return r
}

// next returns the next chunk; ok is false at the end.
func (r *reading) next() (text string, ok bool) {
	for r.scan.Scan() {
		if text, is := strings.CutPrefix(r.scan.Text(), "data: "); is {
			r.texts = append(r.texts, text)
			return text, true
		}
	}
	return "", false
}

// until reads up to a chunk that has a text.
func (r *reading) until(part string) {
	r.t.Helper()
	for {
		text, ok := r.next()
		if !ok {
			r.t.Fatalf("the stream ended (%v) before %s: %q", r.scan.Err(), part, r.texts)
		}
		if strings.Contains(text, part) {
			return
		}
	}
}

// rest reads to the end, and returns the message.
func (r *reading) rest() *folded {
	r.t.Helper()
	for {
		if _, ok := r.next(); !ok {
			break
		}
	}
	if n := len(r.texts); n == 0 || r.texts[n-1] != "[DONE]" {
		r.t.Fatalf("the stream ended with %q (%v)", r.texts, r.scan.Err())
	}
	return fold(r.t, r.texts)
}
