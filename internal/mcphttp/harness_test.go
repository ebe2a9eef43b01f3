package mcphttp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/httpapi/apitest"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// rig is a server with the handler, a client of Mooring, and what was logged and answered.
type rig struct {
	t       *testing.T
	url     string
	owner   capability.Ref
	handler *Handler
	client  *client.Client
	space   *client.Space
	log     *lockbuf.Buffer
	wire    *lockbuf.Buffer // all answers of the handler
	stop    func()          // drains the server; further calls do nothing
}

func start(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, wire: &lockbuf.Buffer{}}
	server := apitest.Start(t, teststore.SQLite(t), apitest.Options{
		Handlers: func(api httpapi.Config) map[string]http.Handler {
			mine := Config{Config: api, Version: "1"}
			if change != nil {
				change(&mine)
			}
			r.handler = New(mine)
			return map[string]http.Handler{Path: r.handler}
		},
		Stopped: func() { r.handler.Close() },
	})
	r.url, r.owner, r.log, r.stop = server.Base+Path, server.Owner, server.Log, server.Stop
	var err error
	if r.client, err = client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir())}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.client.Close() })
	if r.space, err = r.client.Space(t.Context(), r.owner); err != nil {
		t.Fatal(err)
	}
	return r
}

// create makes a session with a title and messages, each with one text.
func (r *rig) create(title string, texts ...string) *client.Session {
	r.t.Helper()
	s, b := r.space.Create(client.CreateOptions{})
	b.Put("session", map[string]any{"title": title})
	for i, text := range texts {
		role := []string{"user", "assistant"}[i%2]
		id := fmt.Sprintf("msg_%03d", i)
		b.Put("message/"+id, map[string]any{"role": role})
		b.Put("part/"+id+"/prt_1", map[string]any{"type": "text", "text": text})
	}
	r.commit(b)
	return s
}

func (r *rig) commit(b *client.Batch) {
	r.t.Helper()
	results, err := b.CommitWait(within(r.t))
	if err == nil {
		err = results.Err()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// share makes a ref of a session that is valid when share returns.
func (r *rig) share(s *client.Session, o client.ShareOptions) capability.Ref {
	r.t.Helper()
	b := s.Batch()
	ref, _ := b.Share(o)
	r.commit(b)
	return ref
}

// bearer adds a ref to requests, and copies answers.
type bearer struct {
	mu   sync.Mutex
	ref  string
	next http.RoundTripper
	to   io.Writer
}

func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	b.mu.Lock()
	ref := b.ref
	b.mu.Unlock()
	req = req.Clone(req.Context())
	if ref != "" {
		req.Header.Set("Authorization", "Bearer "+ref)
	}
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		fmt.Fprintf(b.to, "%s %v\n", resp.Status, resp.Header)
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(resp.Body, b.to), resp.Body}
	}
	return resp, err
}

// model is a client of the protocol.
type model struct {
	*mcp.ClientSession
	t       *testing.T
	bearer  *bearer
	updates chan string // URIs
}

// versions are those with and without sessions.
var versions = []string{"2025-11-25", "2026-07-28"}

func onVersions(t *testing.T, f func(t *testing.T, version string)) {
	for _, v := range versions {
		t.Run(v, func(t *testing.T) { f(t, v) })
	}
}

// connect begins a client under a ref.
func (r *rig) connect(version string, ref capability.Ref) *model {
	r.t.Helper()
	m, err := r.tryConnect(version, ref.Text())
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *rig) tryConnect(version, ref string) (*model, error) {
	transport := &http.Transport{}
	m := &model{t: r.t, bearer: &bearer{ref: ref, next: transport, to: r.wire}, updates: make(chan string, 100)}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { m.updates <- req.Params.URI },
	})
	var err error
	m.ClientSession, err = c.Connect(within(r.t), &mcp.StreamableClientTransport{Endpoint: r.url, HTTPClient: &http.Client{Transport: m.bearer}}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		transport.CloseIdleConnections()
		return nil, err
	}
	r.t.Cleanup(func() {
		_ = m.Close() // its ref may be dead
		transport.CloseIdleConnections()
	})
	return m, nil
}

type obj = map[string]any

// call calls a tool; refused is the line of a refusal.
func (m *model) call(name string, args obj) (out obj, refused string) {
	m.t.Helper()
	res, err := m.CallTool(within(m.t), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		m.t.Fatalf("%s: %v", name, err)
	}
	text := res.Content[0].(*mcp.TextContent).Text
	if res.IsError {
		if strings.Contains(text, "\n") {
			m.t.Errorf("%s: the refusal is not one line: %s", name, text)
		}
		return nil, text
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		m.t.Fatalf("%s: %v: %s", name, err, text)
	}
	structured, err := json.Marshal(res.StructuredContent)
	if err != nil {
		m.t.Fatal(err)
	}
	var both obj
	if err := json.Unmarshal(structured, &both); err != nil || !bytes.Equal(encode(m.t, both), encode(m.t, out)) {
		m.t.Errorf("%s: the text is %s, the structured content %s", name, text, structured)
	}
	if len(text) > 12<<10 {
		m.t.Errorf("%s: the result has %d bytes", name, len(text))
	}
	return out, ""
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// must is call of what is not refused.
func (m *model) must(name string, args obj) obj {
	m.t.Helper()
	out, refused := m.call(name, args)
	if refused != "" {
		m.t.Fatalf("%s was refused: %s", name, refused)
	}
	return out
}

// refuses is call of what is refused with a code.
func (m *model) refuses(code, name string, args obj) string {
	m.t.Helper()
	out, refused := m.call(name, args)
	if !strings.HasPrefix(refused, code+": ") {
		m.t.Errorf("%s came to %v %s, want %s", name, out, refused, code)
	}
	return refused
}

// list returns what a member of all elements of a list is.
func list(out obj, name, member string) (all []string) {
	elements, _ := out[name].([]any)
	for _, e := range elements {
		all = append(all, fmt.Sprint(e.(obj)[member]))
	}
	return all
}
