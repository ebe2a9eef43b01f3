// Package apitest is what the tests of protocols over HTTP share: a server on a real database, reached over real sockets, and an
// agent that writes to its sessions.
package apitest

import (
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

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
)

// Patience is how long a test waits for what must come.
const Patience = time.Minute

// Obj is an object of JSON.
type Obj = map[string]any

// Rig is a running server with the API and a protocol, and its owner's ref.
type Rig struct {
	TB     testing.TB
	Server *node.Server
	Owner  capability.Ref
	Base   string // http://HOST:PORT
	HTTP   *http.Client
	Log    *lockbuf.Buffer
	Stop   func() // drains; further calls do nothing
}

// Options are what a server has that others have not.
type Options struct {
	Change   func(*node.Config, *httpapi.Config)          // nil changes nothing
	Handlers func(httpapi.Config) map[string]http.Handler // of the protocol, by their paths
	Stopped  func()                                       // is called when the server has ended; may be nil
}

// Start runs a server until the test ends.
func Start(t testing.TB, st *store.Store, o Options) *Rig {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Rig{TB: t, Base: "http://" + ln.Addr().String(), Log: &lockbuf.Buffer{}}
	address := capability.Ref{Hosts: []string{ln.Addr().String()}}
	owner, err := operator.Bootstrap(t.Context(), st, t.TempDir(), address, false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(owner.Path)
	if err != nil {
		t.Fatal(err)
	}
	if r.Owner, err = capability.ParseRef(strings.TrimSpace(string(text))); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg, api := node.DefaultConfig(), httpapi.Config{Address: address, Log: log}
	cfg.Store, cfg.PollInterval, cfg.Log = st, 0, log
	if o.Change != nil {
		o.Change(&cfg, &api)
	}
	server := node.New(cfg)
	r.Server, api.Server = server, server
	server.Mount(httpapi.Path, httpapi.New(api))
	for path, h := range o.Handlers(api) {
		server.Mount(path, h)
	}
	transport := &http.Transport{}
	r.HTTP = &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, ln) }()
	r.Stop = sync.OnceFunc(func() {
		transport.CloseIdleConnections()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the server ended with %v", err)
			}
		case <-time.After(Patience):
			t.Error("the server does not end")
		}
		transport.CloseIdleConnections()
		if o.Stopped != nil {
			o.Stopped()
		}
	})
	t.Cleanup(r.Stop)
	return r
}

// Do makes a request under a ref's text; body is a string, or what is to be JSON.
func (r *Rig) Do(method, path, ref string, body any) *http.Response {
	r.TB.Helper()
	var from io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		from = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			r.TB.Fatal(err)
		}
		from = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	r.TB.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, r.Base+path, from)
	if err != nil {
		r.TB.Fatal(err)
	}
	if ref != "" {
		req.Header.Set("Authorization", "Bearer "+ref)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.HTTP.Do(req)
	if err != nil {
		r.TB.Fatal(err)
	}
	r.TB.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// Ask is do for a request of the API that has an answer in JSON.
func (r *Rig) Ask(method, path, ref string, body any) Obj {
	r.TB.Helper()
	resp := r.Do(method, httpapi.Path+path, ref, body)
	text, err := io.ReadAll(resp.Body)
	var answer Obj
	if err != nil || resp.StatusCode >= 300 || json.Unmarshal(text, &answer) != nil {
		r.TB.Fatalf("%s %s: %d %s (%v)", method, path, resp.StatusCode, text, err)
	}
	return answer
}

// Text is do, and the whole answer.
func (r *Rig) Text(method, path, ref string, body any) (status int, text string) {
	r.TB.Helper()
	resp := r.Do(method, path, ref, body)
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		r.TB.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

// Session is a session, its owner's ref, and an outbox that an agent writes with.
type Session struct {
	*Rig
	ID, Owner string
	secret    string
	seq       uint64
}

// Session makes a session.
func (r *Rig) Session() *Session {
	r.TB.Helper()
	made := r.Ask("POST", "spaces/"+r.Owner.Target()+"/sessions", r.Owner.Text(), Obj{})
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	return &Session{Rig: r, ID: made["session"].(string), Owner: made["text"].(string), secret: base64.RawURLEncoding.EncodeToString(secret)}
}

// Share mints a ref.
func (c *Session) Share(limits Obj) string {
	c.TB.Helper()
	return c.Ask("POST", "sessions/"+c.ID+"/refs", c.Owner, limits)["text"].(string)
}

// Op returns an op, whose arguments follow as names and values.
func Op(method string, args ...any) Obj {
	named := Obj{}
	for i := 0; i < len(args); i += 2 {
		named[args[i].(string)] = args[i+1]
	}
	return Obj{"op_id": ulid.Make().String(), "method": method, "args": named}
}

// Apply applies ops as the agent, and returns their results.
func (c *Session) Apply(ops ...Obj) (results []Obj) {
	c.TB.Helper()
	for _, o := range ops {
		c.seq++
		o["seq"] = c.seq
	}
	ack := c.Ask("POST", "sessions/"+c.ID+"/batches", c.Owner, Obj{"outbox": "agent", "secret": c.secret, "incarnation": 1, "batch_id": ulid.Make().String(), "ops": ops})
	for _, o := range ack["outcomes"].([]any) {
		if status := o.(Obj)["status"]; status != "applied" {
			c.TB.Fatalf("an op came to %v", o)
		}
		result, _ := o.(Obj)["result"].(Obj)
		results = append(results, result)
	}
	return results
}

// Claim claims a prompt, and returns the claim.
func (c *Session) Claim(request string) float64 {
	c.TB.Helper()
	return c.Apply(Op("claim", "request", request, "lease", 60_000))[0]["claim"].(float64)
}

// Begin begins a turn of a message.
func (c *Session) Begin(id string, more Obj) {
	c.TB.Helper()
	info := Obj{"id": id, "role": "assistant"}
	for name, value := range more {
		info[name] = value
	}
	c.Apply(Op("begin", "message", id, "payload", info))
}

// PutText puts a part that is a text.
func (c *Session) PutText(message, part, text string) {
	c.TB.Helper()
	c.Apply(Op("put", "key", session.PartKey(message, part), "payload", Obj{"id": part, "messageID": message, "type": "text", "text": text}))
}

// Finish ends a turn and answers the prompt.
func (c *Session) Finish(message, request string, claim float64, answer Obj) {
	c.TB.Helper()
	c.Apply(Op("finalize", "message", message, "status", "completed"), Op("answer", "request", request, "claim", claim, "payload", answer))
}
