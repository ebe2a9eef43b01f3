//go:build interop

// Our client: what its scenarios are given, and their being run against our own server.

package npm

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/capnweb/testserver/target"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		for _, f := range atExit {
			f()
		}
		os.Exit(code)
	}))
}

// atExit is what is left to do when all tests are over.
var atExit []func()

// patience is how long anything may take.
const patience = time.Minute

// ours is the version of our own server, which has every feature.
const ours = "ours"

// scenario is something a client does.
type scenario struct {
	name  string
	since string // the first version of the npm package that can; "ours": only our server
	batch bool   // in HTTP batches, too
	sole  bool   // in HTTP batches against our server only: npm's sends no streams there
	only  string // "batch": not over WebSockets
	loose bool   // tables are not looked at in the end
	run   func(t *trial)
}

// clientScenarios are all of them.
func clientScenarios() []scenario {
	return slices.Concat(callScenarios, valueScenarios(), pipeliningScenarios, mapScenarios, capabilityScenarios,
		disposalScenarios, streamScenarios, linkScenarios, batchScenarios)
}

// trial is a scenario's test, with the server it runs against.
type trial struct {
	*testing.T
	version string // of the server
	batched bool
	address string
	ctx     context.Context

	links []*link
	batch *capnweb.Batch
	owned []interface{ Release() }
}

// link is a connection.
type link struct {
	conn  *capnweb.Conn
	main  *capnweb.Stub
	first capnweb.Stats
	lost  bool // not to be looked at in the end
	ended chan error
}

// runClient runs the scenarios that a server of this version can answer.
func runClient(t *testing.T, version, address string, batched bool) {
	ran := 0
	for _, s := range clientScenarios() {
		switch {
		case s.only == "batch" && !batched, s.only == "" && batched && !s.batch && (!s.sole || version != ours),
			!atLeast(version, s.since):
			continue
		}
		ran++
		t.Run(s.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			tr := &trial{T: t, version: version, batched: batched, address: address, ctx: ctx}
			defer tr.abandon()
			s.run(tr)
			if !t.Failed() {
				tr.finish(s.loose)
			}
		})
	}
	if ran == 0 {
		t.Error("no scenario was run")
	}
}

// atLeast says whether a server of this version has what another version brought.
func atLeast(version, since string) bool {
	switch {
	case version == ours || since == "":
		return true
	case since == ours:
		return false
	}
	a, b := strings.Split(version, "."), strings.Split(since, ".")
	for i := range a {
		if a[i] != b[i] {
			return len(a[i]) > len(b[i]) || len(a[i]) == len(b[i]) && a[i] > b[i]
		}
	}
	return true
}

// dial connects; peers may call main.
func (t *trial) dial(main any) *link {
	t.Helper()
	path := "/"
	if t.version != ours {
		path = "/watched"
	}
	tr, err := capnweb.Dial(t.ctx, "ws://"+t.address+path, capnweb.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l := &link{conn: capnweb.NewConn(tr, capnweb.Config{Main: main}), ended: make(chan error, 1)}
	go func() { l.ended <- l.conn.Run(context.Background()) }()
	l.main = l.conn.Main()
	l.first = l.conn.Stats()
	t.links = append(t.links, l)
	return l
}

// main gives the server's main object: of the first connection, or of the batch that send will send.
func (t *trial) main() *capnweb.Stub {
	t.Helper()
	if t.batched {
		if t.batch == nil {
			t.batch = capnweb.NewBatch("http://"+t.address+"/", capnweb.DialOptions{}, capnweb.Config{})
		}
		return own(t, t.batch.Main())
	}
	if len(t.links) == 0 {
		t.dial(nil)
	}
	return t.links[0].main
}

// send sends the batch; the next one is another.
func (t *trial) send() {
	t.Helper()
	if t.batch == nil {
		return
	}
	b := t.batch
	t.batch = nil
	if err := b.Send(t.ctx); err != nil {
		t.Fatal("send:", err)
	}
}

// own has something released in the end.
func own[T interface{ Release() }](t *trial, r T) T {
	t.owned = append(t.owned, r)
	return r
}

// call calls the main object.
func (t *trial) call(method string, args ...any) *capnweb.Promise {
	t.Helper()
	return own(t, t.main().Call(t.ctx, method, args...))
}

// ask calls the main object and waits.
func (t *trial) ask(method string, args ...any) any {
	t.Helper()
	p := t.call(method, args...)
	t.send()
	return t.await(p)
}

func (t *trial) await(p *capnweb.Promise) any {
	t.Helper()
	v, err := p.Await(t.ctx)
	if err != nil {
		t.Fatalf("await: %v", err)
	}
	return v
}

// is waits for a result, which must be this.
func (t *trial) is(p *capnweb.Promise, want any) {
	t.Helper()
	t.equal(t.await(p), want)
}

func (t *trial) equal(got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %#v, want %#v", got, want)
	}
}

// fails waits for an error of this name and message; empty ones are not looked at.
func (t *trial) fails(p *capnweb.Promise, name, message string) *capnweb.Error {
	t.Helper()
	v, err := p.Await(t.ctx)
	if err == nil {
		t.Fatalf("no error but %#v", v)
	}
	e, ok := errors.AsType[*capnweb.Error](err)
	if !ok {
		if name != "" || message != "" {
			t.Fatalf("got %T %v, want %s: %s", err, err, name, message)
		}
		return &capnweb.Error{Message: err.Error()}
	}
	if name != "" && e.Name != name || message != "" && e.Message != message {
		t.Fatalf("got %s: %q, want %s: %q", e.Name, e.Message, name, message)
	}
	return e
}

// until asks again until it is so.
func (t *trial) until(what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never so:", what)
		}
	}
}

// finish lets go of everything and looks whether anything is left.
func (t *trial) finish(loose bool) {
	slices.Reverse(t.owned)
	for _, r := range t.owned {
		r.Release()
	}
	t.owned = nil
	if t.batched || loose {
		return
	}
	for _, l := range t.links {
		if l.lost {
			continue
		}
		t.until("our tables are empty", func() bool {
			s := l.conn.Stats()
			return s.Exports == l.first.Exports && s.Imports == l.first.Imports && s.Calls == 0
		})
		stats := func(main *capnweb.Stub) any {
			p := main.Call(t.ctx, "stats")
			defer p.Release()
			return t.await(p)
		}
		fresh := t.dial(nil)
		fresh.lost = true
		var got, want any
		want = stats(fresh.main)
		defer func() {
			if t.Failed() {
				t.Logf("the server holds %v, a fresh one %v; we %+v", got, want, l.conn.Stats())
			}
		}()
		t.until("the server's tables are empty", func() bool {
			got = stats(l.main)
			return reflect.DeepEqual(got, want)
		})
	}
}

// abandon closes all connections.
func (t *trial) abandon() {
	for _, r := range t.owned {
		r.Release()
	}
	for _, l := range t.links {
		l.main.Release()
		l.conn.Close("the test is over")
		select {
		case <-l.ended:
		case <-time.After(patience):
			t.Error("a connection does not end")
		}
	}
}

// counts are the server's.
type counts struct {
	Disposed int `json:"disposed"`
	Broken   int `json:"broken"`
}

// counted asks for the counts, over a connection of its own.
func (t *trial) counted() (c counts) {
	t.Helper()
	p := t.links[0].main.Call(t.ctx, "counts")
	defer p.Release()
	if err := p.Into(t.ctx, &c); err != nil {
		t.Fatal("counts:", err)
	}
	return c
}

// disposes expects f to have the server dispose of so many counters.
func (t *trial) disposes(n int, f func()) {
	t.Helper()
	t.main()
	before := t.counted()
	f()
	t.until("the server has disposed of what it should", func() bool { return t.counted().Disposed-before.Disposed == n })
}

// thing is an object of ours that counts its releases.
type thing struct {
	*capnweb.Methods
	mu       sync.Mutex
	i        float64
	released int
}

// newThing makes a counter like the target's.
func newThing(i float64) *thing {
	n := &thing{i: i}
	n.Methods = capnweb.NewMethods(map[string]any{
		"increment": func(by *float64) float64 {
			n.mu.Lock()
			defer n.mu.Unlock()
			if by == nil {
				n.i++
			} else {
				n.i += *by
			}
			return n.i
		},
		"ping": func() string { return "pong" },
	})
	return n
}

func (n *thing) Release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.released++
}

func (n *thing) gone() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.released
}

// upto gives 0 to n-1.
func upto(n int) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = float64(i)
	}
	return all
}

// readAll reads a stream.
func (t *trial) readAll(v any) []any {
	t.Helper()
	r, ok := v.(*capnweb.Readable)
	if !ok {
		t.Fatalf("%T is no stream", v)
	}
	all := []any{}
	for {
		chunk, err := r.Read(t.ctx)
		if errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal("read:", err)
		}
		all = append(all, chunk)
	}
}

// stream gives chunks, and then the end or an error.
func (t *trial) stream(fail error, chunks ...any) *capnweb.Readable {
	r, w := capnweb.NewReadable()
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for _, c := range chunks {
			if w.Write(t.ctx, c) != nil {
				return
			}
		}
		if fail != nil {
			w.Abort(fail)
			return
		}
		_ = w.Close(t.ctx) // the reader has gone
	}()
	return r
}

// TestOurServer runs the scenarios against our own server.
func TestOurServer(t *testing.T) {
	t.Parallel()
	shared := target.NewShared()
	server := httptest.NewServer(capnweb.Handler(func(*http.Request) any { return target.New(shared) },
		capnweb.Config{}, capnweb.AcceptOptions{OriginPatterns: []string{"*"}}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	address := strings.TrimPrefix(server.URL, "http://")
	t.Run("websocket", func(t *testing.T) { runClient(t, ours, address, false) })
	t.Run("batch", func(t *testing.T) { runClient(t, ours, address, true) })
}
