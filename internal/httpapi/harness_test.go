//go:build unix

// What the tests share: a server on a real database, reached over real sockets.

package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/breach"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/store"
)

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.checks", "15") // each is a story over sockets; -rapid.checks asks for more
	goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse()), goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

// patience is how long a test waits for what must come.
const patience = time.Minute

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// rig is a running server with the API, and its owner's ref.
type rig struct {
	t      testing.TB
	server *node.Server
	owner  capability.Ref
	base   string // http://HOST:PORT/api/v1
	host   string
	http   *http.Client
	seen   *checked
	api    *API
	stop   func() // drains; further calls do nothing
}

// start runs a server until the test ends. change may be nil.
func start(t testing.TB, st *store.Store, change func(*node.Config, *Config)) *rig {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, host: ln.Addr().String()}
	address := capability.Ref{Hosts: []string{r.host}}
	dir := t.TempDir()
	owner, err := operator.Bootstrap(t.Context(), st, dir, address, false)
	if err != nil {
		t.Fatal(err)
	}
	text := readFile(t, owner.Path)
	if r.owner, err = capability.ParseRef(strings.TrimSpace(text)); err != nil {
		t.Fatal(err)
	}
	cfg, api := node.DefaultConfig(), Config{Address: address}
	cfg.Store, cfg.PollInterval = st, 0
	if change != nil {
		change(&cfg, &api)
	}
	r.server = node.New(cfg)
	api.Server = r.server
	r.api = New(api)
	r.server.Mount(Path, r.api)
	r.base = "http://" + r.host + strings.TrimSuffix(Path, "/")
	transport := &http.Transport{}
	r.seen = &checked{t: t, next: transport, ops: map[string]int{}}
	r.http = &http.Client{Transport: r.seen}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.server.Run(ctx, ln) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
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
	}
	t.Cleanup(r.stop)
	return r
}

// obj is a JSON object.
type obj = map[string]any

// reply is what a request came to.
type reply struct {
	status int
	header http.Header
	text   []byte
	json   obj
}

// code is the code of a refusal; "" for none.
func (r *reply) code() string {
	e, _ := r.json["error"].(obj)
	code, _ := e["code"].(string)
	return code
}

func (r *reply) message() string {
	e, _ := r.json["error"].(obj)
	m, _ := e["message"].(string)
	return m
}

// request makes a request under a ref's text; body is a string, bytes or what is to be JSON.
func (r *rig) request(method, path, ref string, body any) *http.Request {
	r.t.Helper()
	var from io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		from = strings.NewReader(b)
	case json.RawMessage: // which json.Marshal would change
		from = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		from = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(within(r.t), method, r.base+path, from)
	if err != nil {
		r.t.Fatal(err)
	}
	if ref != "" {
		req.Header.Set("Authorization", "Bearer "+ref)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// do sends a request and reads the whole reply.
func (r *rig) do(req *http.Request) *reply {
	r.t.Helper()
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	breach.Check(r.t, resp, string(text))
	out := &reply{status: resp.StatusCode, header: resp.Header, text: text}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") && req.Method != http.MethodHead {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&out.json); err != nil {
			r.t.Fatalf("%s: %v: %s", req.URL.Path, err, text)
		}
	}
	return out
}

func (r *rig) ask(method, path, ref string, body any) *reply {
	r.t.Helper()
	return r.do(r.request(method, path, ref, body))
}

// must is ask, which comes to a status.
func (r *rig) must(status int, method, path, ref string, body any) obj {
	r.t.Helper()
	got := r.ask(method, path, ref, body)
	if got.status != status {
		r.t.Fatalf("%s %s: %d %s", method, path, got.status, got.text)
	}
	return got.json
}

// made is a session, its owner's ref and an outbox.
type made struct {
	id    string
	owner capability.Ref
	box   *box
}

// create makes a session of the first batch of an outbox.
func (r *rig) create() *made {
	r.t.Helper()
	m := &made{id: capability.SessionPrefix + ulid.Make().String(), box: newBox()}
	m.owner = r.owner.New(m.id)
	b := m.box.batch(m.id, op("create", "ref", m.owner.ID, "hash", hashText(m.owner.Secret)))
	ack := r.must(200, "POST", "/spaces/"+r.owner.Target()+"/sessions", r.owner.Text(), obj{"session": m.id, "ref": m.owner.ID, "batch": m.box.json(b)})
	if ack["applied"] != json.Number("1") {
		r.t.Fatalf("create: %v", ack)
	}
	return m
}

// share mints a ref with rights and more.
func (r *rig) share(m *made, wish obj) string {
	r.t.Helper()
	return r.must(201, "POST", "/sessions/"+m.id+"/refs", m.owner.Text(), wish)["text"].(string)
}

// put appends n messages, one a batch.
func (r *rig) put(m *made, n int) {
	r.t.Helper()
	for range n {
		b := m.box.batch(m.id, op("put", "key", fmt.Sprintf("message/m%d", m.box.seq+1), "payload", json.RawMessage(`{"n":1}`)))
		if ack := r.must(200, "POST", "/sessions/"+m.id+"/batches", m.owner.Text(), m.box.json(b)); ack["rejected"] != json.Number("0") {
			r.t.Fatal(ack)
		}
	}
}

// event is one of a stream.
type event struct{ id, name, data string }

// stream is a stream of server-sent events that is being read.
type stream struct {
	t    testing.TB
	body io.ReadCloser
	scan *bufio.Scanner
	beat int  // comments so far
	cuts bool // it may end within a line
}

// open asks for a stream; the reply is a refusal, if it is one.
func (r *rig) open(req *http.Request) (*stream, *reply) {
	r.t.Helper()
	req.Header.Set("Accept", "text/event-stream")
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		out := &reply{status: resp.StatusCode, header: resp.Header, text: text}
		_ = json.Unmarshal(text, &out.json)
		return nil, out
	}
	s := &stream{t: r.t, body: resp.Body, scan: bufio.NewScanner(resp.Body)}
	s.scan.Buffer(nil, 64<<20)
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return s, nil
}

func (r *rig) follow(m *made, ref string, after uint64) *stream {
	r.t.Helper()
	s, refused := r.open(r.request("GET", fmt.Sprintf("/sessions/%s/events?after=%d", m.id, after), ref, nil))
	if refused != nil {
		r.t.Fatalf("follow: %d %s", refused.status, refused.text)
	}
	return s
}

// next gives the next event; ok is false at the end.
func (s *stream) next() (e event, ok bool) {
	for s.scan.Scan() {
		line := s.scan.Text()
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if e != (event{}) {
				s.check(e)
				return e, true
			}
		case name == "":
			s.beat++
		case name == "id":
			e.id = value
		case name == "event":
			e.name = value
		case name == "data" && e.data != "":
			e.data += "\n" + value
		case name == "data":
			e.data = value
		case !s.cuts:
			s.t.Errorf("a line of the stream is %q", line)
		}
	}
	return e, false
}

// check holds an event to the description.
func (s *stream) check(e event) {
	s.t.Helper()
	switch e.name {
	case "ended":
		fits(s.t, "Error", e.data)
	case "hidden":
		fits(s.t, "Mark", e.data)
	default:
		fits(s.t, "Event", e.data)
	}
}
