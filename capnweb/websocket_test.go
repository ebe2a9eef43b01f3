// Connections over real WebSockets.

package capnweb_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/capnweb"
)

// serveHTTP serves main at a URL until the test ends, by when all connections must be over.
func serveHTTP(t testing.TB, main any, cfg capnweb.Config, opts capnweb.AcceptOptions) (url string) {
	t.Helper()
	return serveHandler(t, capnweb.Handler(func(*http.Request) any { return main }, cfg, opts))
}

func serveHandler(t testing.TB, handler http.Handler) (url string) {
	t.Helper()
	var open sync.WaitGroup
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Done()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		srv.Close()
		open.Wait()
	})
	return srv.URL
}

// dial connects to url until the test ends.
func dial(t testing.TB, url string, cfg capnweb.Config) *capnweb.Conn {
	t.Helper()
	link, err := capnweb.Dial(t.Context(), url, capnweb.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := capnweb.NewConn(link, cfg)
	ran := make(chan error, 1)
	go func() { ran <- c.Run(context.Background()) }()
	t.Cleanup(func() {
		c.Close("the test is over")
		<-ran
	})
	return c
}

func TestWebSocket(t *testing.T) {
	url := serveHTTP(t, capnweb.NewMethods(map[string]any{
		"square": func(n float64) float64 { return n * n },
		"echo":   func(v any) any { return v },
		"callBack": func(ctx context.Context, f *capnweb.Stub, n int) (any, error) {
			p := f.Call(ctx, "", n)
			defer p.Release()
			return p.Await(ctx)
		},
		"fail": func() error { return &capnweb.Error{Name: "RangeError", Message: "too far"} },
	}), capnweb.Config{}, capnweb.AcceptOptions{})
	main := dial(t, url, capnweb.Config{}).Main()
	defer main.Release()

	var n int
	if err := main.Call(bg, "square", 12).Into(bg, &n); err != nil || n != 144 {
		t.Error(n, err)
	}
	long := strings.Repeat("Länge ", 200_000)
	var s string
	if err := main.Call(bg, "echo", long).Into(bg, &s); err != nil || s != long {
		t.Error(len(s), err)
	}
	if err := main.Call(bg, "callBack", func(n int) int { return n + 1 }, 41).Into(bg, &n); err != nil || n != 42 {
		t.Error(n, err)
	}
	var e *capnweb.Error
	if _, err := main.Call(bg, "fail").Await(bg); !errors.As(err, &e) || e.Name != "RangeError" || e.Message != "too far" {
		t.Error(err)
	}
	for want, args := range map[string][]any{
		"TypeError: argument 1 of square: want a number, got a string": {"x"},
		"TypeError: square takes 1 argument, got 3":                    {1, 2, 3},
		"TypeError: square takes 1 argument, got 0":                    nil,
	} {
		if _, err := main.Call(bg, "square", args...).Await(bg); err == nil || err.Error() != want {
			t.Errorf("%v: %v", args, err)
		}
	}
	if _, err := main.Call(bg, "cube", 1).Await(bg); err == nil || !strings.Contains(err.Error(), "cube") {
		t.Error(err)
	}
}

// Calls without a context run in order, one after the other; those with one do not hold up others.
func TestCallsInOrder(t *testing.T) {
	var got []int
	release := make(chan struct{})
	url := serveHTTP(t, capnweb.NewMethods(map[string]any{
		"add":  func(n int) int { got = append(got, n); return len(got) },
		"wait": func(ctx context.Context) { <-release },
	}), capnweb.Config{}, capnweb.AcceptOptions{})
	main := dial(t, url, capnweb.Config{}).Main()
	wait := main.Call(bg, "wait")
	var last *capnweb.Promise
	for i := range 1000 {
		last = main.Call(bg, "add", i)
	}
	if v := await(t, last); v != 1000.0 {
		t.Error(v)
	}
	close(release)
	await(t, wait)
	for i, n := range got {
		if i != n {
			t.Fatalf("call %d came as number %d", n, i)
		}
	}
}

// raw speaks to a server below the protocol.
func raw(t *testing.T, url string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return c
}

// Whoever breaks the rules of the transport is told by an abort, and the connection is closed with 3000.
func TestWebSocketAborts(t *testing.T) {
	url := serveHTTP(t, nil, capnweb.Config{Limits: capnweb.Limits{MessageBytes: 1000}}, capnweb.AcceptOptions{})
	for name, c := range map[string]struct {
		kind    websocket.MessageType
		message []byte
		want    string
	}{
		"binary":     {websocket.MessageBinary, []byte(`["pull",1]`), "binary"},
		"too large":  {websocket.MessageText, []byte(`["push","` + strings.Repeat("x", 100_000) + `"]`), "too large"},
		"not JSON":   {websocket.MessageText, []byte(`["push",`), "JSON"},
		"not UTF-8":  {websocket.MessageText, []byte("[\"push\",\"\xff\"]"), "UTF-8"},
		"two values": {websocket.MessageText, []byte("[\"pull\",1]\n[\"pull\",2]"), "JSON"},
		"empty":      {websocket.MessageText, nil, "JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			ws := raw(t, url)
			if err := ws.Write(t.Context(), c.kind, c.message); err != nil {
				t.Fatal(err)
			}
			_, b, err := ws.Read(t.Context())
			if err != nil || !strings.HasPrefix(string(b), `["abort",["error",`) || !strings.Contains(string(b), c.want) {
				t.Fatalf("%s, %v", b, err)
			}
			_, _, err = ws.Read(t.Context())
			bye, ok := errors.AsType[websocket.CloseError](err)
			if !ok || bye.Code != 3000 || bye.Reason == "" || len(bye.Reason) > 123 {
				t.Fatal(err)
			}
		})
	}
}

// A message of the largest size is taken.
func TestWebSocketLargestMessage(t *testing.T) {
	url := serveHTTP(t, nil, capnweb.Config{Limits: capnweb.Limits{MessageBytes: 1000}}, capnweb.AcceptOptions{})
	ws := raw(t, url)
	head, tail := `["push",["pipeline",0,[],["`, `"]]]`
	m := head + strings.Repeat("x", 1000-len(head)-len(tail)) + tail
	for _, m := range []string{m, `["pull",1]`} {
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	if _, b, err := ws.Read(t.Context()); err != nil || !strings.HasPrefix(string(b), `["reject",1,`) {
		t.Fatalf("%s, %v", b, err)
	}
}

// Either side closes in good order: no error on the one, and the code with the reason for who is told.
func TestWebSocketClose(t *testing.T) {
	url := serveHTTP(t, nil, capnweb.Config{}, capnweb.AcceptOptions{})
	link, err := capnweb.Dial(t.Context(), url, capnweb.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := capnweb.NewConn(link, capnweb.Config{})
	go c.Close("enough")
	if err := c.Run(t.Context()); err != nil {
		t.Error(err)
	}
	<-c.Done()
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}

func TestAbortReachesThePeer(t *testing.T) {
	main := capnweb.NewMethods(map[string]any{
		"die": func(c *capnweb.Call) error {
			c.Conn().Abort(&capnweb.Error{Name: "Error", Message: "no more of this"})
			return nil
		},
	})
	c := dial(t, serveHTTP(t, main, capnweb.Config{}, capnweb.AcceptOptions{}), capnweb.Config{})
	_, err := c.Main().Call(bg, "die").Await(bg)
	if broken, ok := errors.AsType[*capnweb.BrokenError](err); !ok || !strings.Contains(broken.Reason, "no more of this") {
		t.Error(err)
	}
	<-c.Done()
	if e, ok := errors.AsType[*capnweb.Error](c.Err()); !ok || e.Message != "no more of this" {
		t.Error(c.Err())
	}
}

func TestDialFails(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "http://user:secret@other.example/", http.StatusFound)
			return
		}
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer srv.Close()
	for path, want := range map[string]string{"/moved": "redirects to http://user:xxxxx@other.example/", "/": "418"} {
		if _, err := capnweb.Dial(t.Context(), srv.URL+path, capnweb.DialOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// The same rule holds for WebSockets and batches.
func TestOrigins(t *testing.T) {
	url := serveHTTP(t, nil, capnweb.Config{}, capnweb.AcceptOptions{
		OriginPatterns: []string{"good.example", "*.sub.example", "https://tls.example"}})
	own := strings.TrimPrefix(url, "http://")
	for origin, ok := range map[string]bool{
		"": true, "http://" + own: true, "https://" + strings.ToUpper(own): true, "https://good.example": true, "http://GOOD.example": true,
		"https://a.sub.example": true, "https://sub.example": false, "https://tls.example": true, "http://tls.example": false,
		"https://good.example:8443": false, "https://good.example.bad": false, "https://notgood.example": false, "null": false,
		"https://bad.example": false, "http://127.0.0.1:1": false, "%zz": false, "file://": false,
	} {
		header := http.Header{}
		if origin != "" {
			header.Set("Origin", origin)
		}
		link, err := capnweb.Dial(t.Context(), url, capnweb.DialOptions{Header: header})
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "403") {
			t.Errorf("%q, WebSocket: %v", origin, err)
		}
		if err == nil {
			link.Close(1000, "")
		}
		err = capnweb.NewBatch(url, capnweb.DialOptions{Header: header}, capnweb.Config{}).Send(t.Context())
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "403") {
			t.Errorf("%q, batch: %v", origin, err)
		}
	}
}

func BenchmarkEcho(b *testing.B) {
	for _, flight := range []int{1, 64} {
		b.Run(fmt.Sprint(flight, " in flight"), func(b *testing.B) {
			url := serveHTTP(b, capnweb.NewMethods(map[string]any{"echo": func(v any) any { return v }}),
				capnweb.Config{}, capnweb.AcceptOptions{})
			main := dial(b, url, capnweb.Config{}).Main()
			defer main.Release()
			tokens := make(chan struct{}, flight)
			var failed error
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				tokens <- struct{}{}
				p := main.Call(bg, "echo", "hello")
				p.Then(func(v any, err error) {
					if err != nil {
						failed = err
					}
					p.Release()
					<-tokens
				})
			}
			for range flight {
				tokens <- struct{}{}
			}
			if failed != nil {
				b.Fatal(failed)
			}
		})
	}
}
