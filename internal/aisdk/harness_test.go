//go:build unix

package aisdk

// What the tests share: a server on a real database, reached over real sockets, and who writes to its sessions.

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse()), goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

// patience is how long a test waits for what must come.
const patience = time.Minute

type obj = map[string]any

// rig is a running server with both APIs, and its owner's ref.
type rig struct {
	t     testing.TB
	owner capability.Ref
	base  string // http://HOST:PORT
	http  *http.Client
	log   *lockbuf.Buffer
	stop  func() // drains; further calls do nothing
}

// start runs a server until the test ends. change may be nil.
func start(t testing.TB, st *store.Store, change func(*node.Config, *httpapi.Config)) *rig {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, base: "http://" + ln.Addr().String(), log: &lockbuf.Buffer{}}
	address := capability.Ref{Hosts: []string{ln.Addr().String()}}
	owner, err := operator.Bootstrap(t.Context(), st, t.TempDir(), address, false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(owner.Path)
	if err != nil {
		t.Fatal(err)
	}
	if r.owner, err = capability.ParseRef(strings.TrimSpace(string(text))); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg, api := node.DefaultConfig(), httpapi.Config{Address: address, Log: log}
	cfg.Store, cfg.PollInterval, cfg.Log = st, 0, log
	if change != nil {
		change(&cfg, &api)
	}
	server := node.New(cfg)
	api.Server = server
	server.Mount(httpapi.Path, httpapi.New(api))
	server.Mount(Path, New(api))
	transport := &http.Transport{}
	r.http = &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, ln) }()
	r.stop = sync.OnceFunc(func() {
		transport.CloseIdleConnections()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the server ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the server does not end")
		}
		transport.CloseIdleConnections()
	})
	t.Cleanup(r.stop)
	return r
}

// do makes a request under a ref's text; body is a string, or what is to be JSON.
func (r *rig) do(method, path, ref string, body any) *http.Response {
	r.t.Helper()
	var from io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		from = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		from = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, from)
	if err != nil {
		r.t.Fatal(err)
	}
	if ref != "" {
		req.Header.Set("Authorization", "Bearer "+ref)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// ask is do for a request of the API that has an answer in JSON.
func (r *rig) ask(method, path, ref string, body any) obj {
	r.t.Helper()
	resp := r.do(method, httpapi.Path+path, ref, body)
	text, err := io.ReadAll(resp.Body)
	var answer obj
	if err != nil || resp.StatusCode >= 300 || json.Unmarshal(text, &answer) != nil {
		r.t.Fatalf("%s %s: %d %s (%v)", method, path, resp.StatusCode, text, err)
	}
	return answer
}

// text is do, and the whole answer.
func (r *rig) text(method, path, ref string, body any) (status int, text string) {
	r.t.Helper()
	resp := r.do(method, path, ref, body)
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

// chat is a session, its owner's ref, and an outbox that an agent writes with.
type chat struct {
	*rig
	id, owner string
	secret    string
	seq       uint64
}

func (r *rig) chat() *chat {
	r.t.Helper()
	made := r.ask("POST", "spaces/"+r.owner.Target()+"/sessions", r.owner.Text(), obj{})
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	return &chat{rig: r, id: made["session"].(string), owner: made["text"].(string), secret: base64.RawURLEncoding.EncodeToString(secret)}
}

// share mints a ref.
func (c *chat) share(limits obj) string {
	c.t.Helper()
	return c.ask("POST", "sessions/"+c.id+"/refs", c.owner, limits)["text"].(string)
}

// op returns an op, whose arguments follow as names and values.
func op(method string, args ...any) obj {
	named := obj{}
	for i := 0; i < len(args); i += 2 {
		named[args[i].(string)] = args[i+1]
	}
	return obj{"op_id": ulid.Make().String(), "method": method, "args": named}
}

// apply applies ops as the agent, and returns their results.
func (c *chat) apply(ops ...obj) (results []obj) {
	c.t.Helper()
	for _, o := range ops {
		c.seq++
		o["seq"] = c.seq
	}
	ack := c.ask("POST", "sessions/"+c.id+"/batches", c.owner, obj{"outbox": "agent", "secret": c.secret, "incarnation": 1, "batch_id": ulid.Make().String(), "ops": ops})
	for _, o := range ack["outcomes"].([]any) {
		if status := o.(obj)["status"]; status != "applied" {
			c.t.Fatalf("an op came to %v", o)
		}
		result, _ := o.(obj)["result"].(obj)
		results = append(results, result)
	}
	return results
}

// claim claims a prompt, and returns the claim.
func (c *chat) claim(request string) float64 {
	c.t.Helper()
	return c.apply(op("claim", "request", request, "lease", 60_000))[0]["claim"].(float64)
}

// begin begins a turn of a message.
func (c *chat) begin(id string, more obj) {
	c.t.Helper()
	info := obj{"id": id, "role": "assistant"}
	for name, value := range more {
		info[name] = value
	}
	c.apply(op("begin", "message", id, "payload", info))
}

func (c *chat) putText(message, part, text string) {
	c.t.Helper()
	c.apply(op("put", "key", session.PartKey(message, part), "payload", obj{"id": part, "messageID": message, "type": "text", "text": text}))
}

// finish ends a turn and answers the prompt.
func (c *chat) finish(message, request string, claim float64, answer obj) {
	c.t.Helper()
	c.apply(op("finalize", "message", message, "status", "completed"), op("answer", "request", request, "claim", claim, "payload", answer))
}

// say is the body of a message that is sent.
func (c *chat) say(id, text string) obj {
	return obj{"id": c.id, "trigger": "submit-message", "messages": []obj{
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
	c.t.Helper()
	resp := c.do(method, path, ref, body)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-Vercel-AI-UI-Message-Stream") != "v1" {
		text, _ := io.ReadAll(resp.Body)
		c.t.Fatalf("%s %s: %d %v %s", method, path, resp.StatusCode, resp.Header, text)
	}
	r := &reading{t: c.t, scan: bufio.NewScanner(resp.Body)}
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
