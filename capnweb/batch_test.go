// HTTP batches, as bytes and between both sides.

package capnweb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
)

// post sends a batch as bytes.
func post(t testing.TB, url, body string) (status int, answer string) {
	t.Helper()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Post(url, "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == 200 && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("content type %q", resp.Header.Get("Content-Type"))
	}
	return resp.StatusCode, string(b)
}

func batchTarget(log *[]string) *capnweb.Methods {
	var mu sync.Mutex
	return capnweb.NewMethods(map[string]any{
		"square": func(n float64) float64 { return n * n },
		"later":  func(ctx context.Context, v any) any { return v },
		"log": func(ctx context.Context, s string) {
			mu.Lock()
			defer mu.Unlock()
			*log = append(*log, s)
		},
		"counter": func(n int) *counter { return &counter{n: n} },
		"call": func(ctx context.Context, f *capnweb.Stub) (any, error) {
			p := f.Call(ctx, "", 1)
			defer p.Release()
			return p.Await(ctx)
		},
		"give": func() *capnweb.Promise {
			p, resolve := capnweb.NewPromise()
			go resolve("given", nil)
			return p
		},
		"hang": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"fail": func() error { return errors.New("secret") },
	})
}

func TestBatchBodies(t *testing.T) {
	var log []string
	url := serveHTTP(t, batchTarget(&log), capnweb.Config{}, capnweb.AcceptOptions{})
	for _, c := range []struct{ name, body, want string }{
		{"nothing", "", ""},
		{"only line ends", "\n\r\n\n", ""},
		{"one call", `["push",["pipeline",0,["square"],[7]]]` + "\n" + `["pull",1]`, `["resolve",1,49]`},
		{"a last line end", `["push",["pipeline",0,["square"],[7]]]` + "\n" + `["pull",1]` + "\n", `["resolve",1,49]`},
		{"line ends of Windows", `["push",["pipeline",0,["square"],[7]]]` + "\r\n" + `["pull",1]` + "\r\n", `["resolve",1,49]`},
		{"not asked for", `["push",["pipeline",0,["square"],[7]]]`, ""},
		{"in two goes", `["push",["pipeline",0,["later"],[3]]]` + "\n" + `["push",["pipeline",0,["square"],[["pipeline",1]]]]` + "\n" +
			`["pull",2]`, `["resolve",2,9]`},
		{"an object", `["push",["pipeline",0,["counter"],[3]]]` + "\n" + `["push",["pipeline",1,["increment"],[4]]]` + "\n" +
			`["pull",2]`, `["resolve",2,7]`},
		{"given back", `["push",["pipeline",0,["give"],[]]]` + "\n" + `["pull",1]`, `["resolve",1,"given"]`},
		{"a failure", `["push",["pipeline",0,["fail"],[]]]` + "\n" + `["pull",1]`, `["reject",1,["error","Error","internal error"]]`},
		{"the client is called", `["push",["pipeline",0,["call"],[["export",-1]]]]` + "\n" + `["pull",1]`,
			`["reject",1,["error","Error","in an HTTP batch the client cannot be called"]]`},
		{"a promise that never comes", `["push",["pipeline",0,["later"],[["promise",-1]]]]` + "\n" + `["pull",1]`,
			`["reject",1,["error","Error","the batch ended before this was resolved or closed"]]`},
		{"a promise that comes", `["push",["pipeline",0,["later"],[["promise",-1]]]]` + "\n" + `["pull",1]` + "\n" + `["resolve",-1,5]`,
			`["resolve",1,5]`},
		{"it breaks off", `["push",["pipeline",0,["square"],[7]]]` + "\n" + `["pull",1]` + "\n" + `["pull",9]` + "\n" + `["pull",1]`,
			`["resolve",1,49]` + "\n" + `["abort",["error","TypeError","no export 9 to pull"]]`},
		{"the client breaks it off", `["push",["pipeline",0,["square"],[7]]]` + "\n" + `["abort",["error","Error","oh"]]` + "\n" + `["pull",1]`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, answer := post(t, url, c.body)
			answer = withoutReleases(answer)
			if status != 200 || answer != c.want {
				t.Errorf("%d\n%s\nwant\n%s", status, answer, c.want)
			}
		})
	}
}

// Streams go both ways in a batch: nobody waits for the other to say that a chunk was taken.
func TestBatchStreams(t *testing.T) {
	var log []string
	url := serveHTTP(t, batchTarget(&log), capnweb.Config{}, capnweb.AcceptOptions{})
	for _, c := range []struct{ name, body, want string }{
		{"a stream comes back", `["pipe"]` + "\n" + `["push",["pipeline",0,["later"],[["readable",1]]]]` + "\n" + `["pull",2]` + "\n" +
			`["stream",["pipeline",1,["write"],["x"]]]` + "\n" + `["stream",["pipeline",1,["close"],[]]]`,
			`["pipe"]` + "\n" + `["resolve",2,["readable",1]]` + "\n" + `["stream",["pipeline",1,["write"],["x"]]]` + "\n" +
				`["resolve",3,["undefined"]]` + "\n" + `["resolve",4,["undefined"]]` + "\n" + `["stream",["pipeline",1,["close"],[]]]`},
		{"a stream is not closed", `["pipe"]` + "\n" + `["push",["pipeline",0,["later"],[["readable",1]]]]` + "\n" + `["pull",2]`,
			`["pipe"]` + "\n" + `["resolve",2,["readable",1]]` + "\n" +
				`["stream",["pipeline",1,["abort"],[["error","Error","the batch ended before this was resolved or closed"]]]]`},
		{"nobody reads it", `["pipe"]` + "\n" + `["stream",["pipeline",1,["write"],["x"]]]` + "\n" +
			`["push",["pipeline",0,["later"],[["readable",1]]]]`, `["resolve",2,["undefined"]]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, answer := post(t, url, c.body)
			got, want := strings.Split(withoutReleases(answer), "\n"), strings.Split(c.want, "\n")
			slices.Sort(got) // what is answered and what is streamed do not wait for each other
			slices.Sort(want)
			if status != 200 || !slices.Equal(got, want) {
				t.Errorf("%d\n%s\nwant\n%s", status, answer, c.want)
			}
		})
	}
}

func TestBatchBlobs(t *testing.T) {
	var log []string
	url := serveHTTP(t, batchTarget(&log), capnweb.Config{}, capnweb.AcceptOptions{})
	b := capnweb.NewBatch(url, capnweb.DialOptions{}, capnweb.Config{})
	in := &capnweb.Blob{Type: "text/plain", Data: bytes.Repeat([]byte("blob "), 200_000)}
	p := b.Main().Call(bg, "later", in)
	if err := b.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, ok := await(t, p).(*capnweb.Blob); !ok || out.Type != in.Type || !bytes.Equal(out.Data, in.Data) {
		t.Error("it is another one")
	}
}

// withoutReleases leaves out what may come before an answer, after it, or not at all.
func withoutReleases(answer string) string {
	var kept []string
	for line := range strings.SplitSeq(answer, "\n") {
		if !strings.HasPrefix(line, `["release",`) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// What nobody asks about is done all the same, before the answer.
func TestBatchDoesEverything(t *testing.T) {
	var log []string
	url := serveHTTP(t, batchTarget(&log), capnweb.Config{}, capnweb.AcceptOptions{})
	var body strings.Builder
	for i := range 200 {
		fmt.Fprintf(&body, `["push",["pipeline",0,["log"],["%d"]]]`+"\n", i)
	}
	if status, answer := post(t, url, body.String()); status != 200 || answer != "" {
		t.Errorf("%d %s", status, answer)
	}
	if len(log) != 200 {
		t.Errorf("%d of 200 were done", len(log))
	}
}

func TestBatchLimits(t *testing.T) {
	url := serveHTTP(t, capnweb.NewMethods(map[string]any{"echo": func(v any) any { return v }, "blow": func() string { return strings.Repeat("x", 900) }, "flood": func() string { return strings.Repeat("x", 4500) }}),
		capnweb.Config{Limits: capnweb.Limits{QueuedBytes: 1000}}, capnweb.AcceptOptions{})
	if status, _ := post(t, url, strings.Repeat("\n", 1000)); status != 200 {
		t.Errorf("at the limit: %d", status)
	}
	if status, answer := post(t, url, strings.Repeat("\n", 1001)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("beyond the limit: %d %s", status, answer)
	}
	var body strings.Builder
	for i := range 15 {
		fmt.Fprintf(&body, `["push",["pipeline",0,["blow"],[]]]`+"\n"+`["pull",%d]`+"\n", i+1)
	}
	status, answer := post(t, url, body.String())
	if len(answer) > 5000 || status == 200 && !strings.Contains(answer, "overloaded") {
		t.Errorf("answers beyond the limit: %d, %d bytes\n%s", status, len(answer), strings.ReplaceAll(answer, strings.Repeat("x", 900), "x…"))
	}
	if status, answer := post(t, url, `["push",["pipeline",0,["flood"],[]]]`+"\n"+`["pull",1]`); status == 200 {
		t.Errorf("one answer beyond the limit: %d, %d bytes", status, len(answer))
	}
}

func TestBatchMethods(t *testing.T) {
	url := serveHTTP(t, nil, capnweb.Config{}, capnweb.AcceptOptions{OriginPatterns: []string{"good.example"}})
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	for _, c := range []struct {
		method, origin string
		preflight      bool
		status         int
		allow, cors    string
	}{
		{"GET", "", false, 405, "OPTIONS, POST", ""},
		{"PUT", "", false, 405, "OPTIONS, POST", ""},
		{"OPTIONS", "", false, 405, "OPTIONS, POST", ""},
		{"POST", "", false, 200, "", ""},
		{"POST", "https://good.example", false, 200, "", "https://good.example"},
		{"POST", "https://bad.example", false, 403, "", ""},
		{"POST", "null", false, 403, "", ""},
		{"OPTIONS", "https://good.example", true, 204, "", "https://good.example"},
		{"OPTIONS", "https://bad.example", true, 403, "", ""},
		{"GET", "https://bad.example", false, 403, "", ""},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), c.method, url, nil)
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		if c.preflight {
			req.Header.Set("Access-Control-Request-Method", "POST")
			req.Header.Set("Access-Control-Request-Headers", "authorization")
		}
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		h := resp.Header
		if resp.StatusCode != c.status || h.Get("Allow") != c.allow || h.Get("Access-Control-Allow-Origin") != c.cors ||
			h.Get("Vary") == "" {
			t.Errorf("%+v: %d %v", c, resp.StatusCode, h)
		}
		if c.status == 204 && (h.Get("Access-Control-Allow-Methods") != "POST" || h.Get("Access-Control-Allow-Headers") != "authorization") {
			t.Errorf("%+v: %v", c, h)
		}
	}
}

// A client that goes away ends what it has asked for.
func TestBatchIsCancelled(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	url := serveHTTP(t, capnweb.NewMethods(map[string]any{"hang": func(ctx context.Context) {
		close(started)
		<-ctx.Done()
		close(ended)
	}}), capnweb.Config{}, capnweb.AcceptOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	b := capnweb.NewBatch(url, capnweb.DialOptions{}, capnweb.Config{})
	p := b.Main().Call(ctx, "hang")
	go func() {
		<-started
		cancel()
	}()
	if err := b.Send(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-ended
	if _, err := p.Await(bg); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestBatchClient(t *testing.T) {
	var log []string
	url := serveHTTP(t, batchTarget(&log), capnweb.Config{}, capnweb.AcceptOptions{})
	b := capnweb.NewBatch(strings.Replace(url, "http", "ws", 1), capnweb.DialOptions{}, capnweb.Config{})
	main := b.Main()
	square := main.Call(bg, "square", 7)
	c := main.Call(bg, "counter", 3)
	inc := c.Call(bg, "increment", 4)
	val := c.Get("value")
	nested := main.Call(bg, "square", inc)
	dropped := main.Call(bg, "log", "dropped")
	dropped.Release()
	failed := main.Call(bg, "fail")
	back := main.Call(bg, "call", func(n int) int { return n })
	early := make(chan any, 1)
	square.Then(func(v any, err error) { early <- v })
	if err := b.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[*capnweb.Promise]any{square: 49.0, inc: 7.0, val: 7.0, nested: 49.0} {
		if v := await(t, p); v != want {
			t.Errorf("%v, want %v", v, want)
		}
	}
	if v := <-early; v != 49.0 {
		t.Error(v)
	}
	if err := awaitErr(t, failed); err.Error() != "internal error" {
		t.Error(err)
	}
	if err := awaitErr(t, back); !strings.Contains(err.Error(), "cannot be called") {
		t.Error(err)
	}
	stub, ok := await(t, c).(*capnweb.Stub)
	if !ok {
		t.Fatal("no stub")
	}
	late := awaitErr(t, stub.Call(bg, "increment"))
	if _, ok := errors.AsType[*capnweb.BrokenError](late); !ok || !strings.Contains(late.Error(), "batch") {
		t.Error(late)
	}
	if err := awaitErr(t, main.Call(bg, "square", 1)); !strings.Contains(err.Error(), "batch") {
		t.Error(err)
	}
	if err := b.Send(t.Context()); err == nil {
		t.Error("a batch was sent twice")
	}
	if len(log) != 1 {
		t.Error("a call whose promise was released was not made")
	}
}

func TestBatchClientFails(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter){
		"404 Not Found: nothing here": func(w http.ResponseWriter) { http.Error(w, "nothing here", 404) },
		"not JSON":                    func(w http.ResponseWriter) { io.WriteString(w, "<html>") },
		"redirects to":                func(w http.ResponseWriter) { w.Header().Set("Location", "/x"); w.WriteHeader(302) },
		"too large":                   func(w http.ResponseWriter) { w.Write(make([]byte, 5000)) },
		"aborted the connection: oh": func(w http.ResponseWriter) {
			io.WriteString(w, `["abort",["error","Error","oh"]]`)
		},
	}
	for want, answer := range answers {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w) }))
		b := capnweb.NewBatch(srv.URL, capnweb.DialOptions{}, capnweb.Config{Limits: capnweb.Limits{QueuedBytes: 1000}})
		p := b.Main().Call(bg, "x")
		if err := b.Send(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if err := awaitErr(t, p); !strings.Contains(err.Error(), want) {
			t.Errorf("the promise: %v, want %s", err, want)
		}
		srv.Close()
	}
	// An answer that leaves something out.
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer srv.Close()
	b := capnweb.NewBatch(srv.URL, capnweb.DialOptions{}, capnweb.Config{})
	p := b.Main().Call(bg, "x")
	if err := b.Send(t.Context()); err != nil {
		t.Error(err)
	}
	if err := awaitErr(t, p); !strings.Contains(err.Error(), "batch has been answered") {
		t.Error(err)
	}
}

// Who collects too much is told, and does not wait for ever.
func TestBatchClientIsFull(t *testing.T) {
	b := capnweb.NewBatch("http://unused.example", capnweb.DialOptions{}, capnweb.Config{Limits: capnweb.Limits{QueuedBytes: 1000}})
	main := b.Main()
	for range 100 {
		p := main.Call(bg, "x", strings.Repeat("x", 50))
		done := make(chan error, 1)
		p.Then(func(_ any, err error) { done <- err })
		select {
		case err := <-done:
			if !strings.Contains(err.Error(), "the batch is full") {
				t.Error(err)
			}
			return
		default:
		}
	}
	t.Error("no end to it")
}

// FuzzBatch feeds bodies to a server: it must answer each, and be gone then.
func FuzzBatch(f *testing.F) {
	for _, body := range []string{"", "\n", `["push",["pipeline",0,["square"],[7]]]` + "\n" + `["pull",1]`,
		`["push",["pipeline",0,["counter"],[3]]]` + "\n" + `["push",["remap",1,["value"],[["import",0]],[["pipeline",-1,["square"],[["pipeline",0]]]]]]` + "\n" + `["pull",2]`,
		`["push",["pipeline",0,["call"],[["export",-1]]]]` + "\n" + `["pull",1]` + "\n" + `["release",1,1]`,
		`["pipe"]` + "\n" + `["stream",["pipeline",1,["write"],["x"]]]` + "\n" + `["push",["pipeline",0,["later"],[["readable",1]]]]` + "\n" + `["pull",3]`,
		`["push",["pipeline",0,["later"],[["promise",-1]]]]` + "\n" + `["pull",1]` + "\n" + `["reject",-1,["error","E","m"]]`,
		`["push",["pipeline",0,["later"],[["writable",-1]]]]` + "\n" + `["pull",1]`,
		`["push",["blob","t",["readable",1]]]`, `["stream",["pipeline",0,["give"],[]]]`, "[]\r\n[]", `["abort",null]`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var log []string
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(string(body)))
		w := httptest.NewRecorder()
		target := batchTarget(&log)
		if strings.Contains(string(body), "hang") {
			return
		}
		capnweb.ServeBatch(w, r, capnweb.Config{Main: target, Limits: capnweb.Limits{QueuedBytes: 1 << 16, MapSteps: 1000, Depth: 32}}, capnweb.AcceptOptions{})
		if w.Code != 200 && w.Code != 413 && w.Code != 500 {
			t.Fatalf("status %d", w.Code)
		}
	})
}
