// Two vats talking to each other, over every transport.

package rpc

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// transports are the ways to connect two vats.
var transports = map[string]func(t testing.TB) (a, b Transport){
	"pipe": func(testing.TB) (a, b Transport) { return Pipe() },
	"stream": func(t testing.TB) (a, b Transport) {
		x, y := net.Pipe()
		return NewStreamTransport(x), NewStreamTransport(y)
	},
	"tcp": func(t testing.TB) (a, b Transport) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		got := make(chan net.Conn, 1)
		go func() {
			c, _ := l.Accept()
			got <- c
		}()
		x, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return NewStreamTransport(x), NewStreamTransport(<-got)
	},
	"websocket":       func(t testing.TB) (a, b Transport) { return dialTest(t, nil) },
	"websocket plain": func(t testing.TB) (a, b Transport) { return dialTest(t, []string{SubprotocolPlain}) },
	"websocket bare":  func(t testing.TB) (a, b Transport) { return dialTest(t, []string{}) },
}

// dialTest connects over a real WebSocket; a is the client.
func dialTest(t testing.TB, protocols []string) (a, b Transport) {
	t.Helper()
	got := make(chan Transport, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tr, err := Accept(w, r, AcceptOptions{})
		if err != nil {
			t.Errorf("accept: %v", err)
		}
		got <- tr
	}))
	t.Cleanup(srv.Close)
	a, err := Dial(testContext(t), srv.URL, DialOptions{Subprotocols: protocols})
	if err != nil {
		t.Fatal(err)
	}
	return a, <-got
}

func eachTransport(t *testing.T, lim Limits, f func(t *testing.T, v *vats)) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := connect(t)
			f(t, startVats(t, a, b, lim))
		})
	}
}

func TestEcho(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
		boot := v.a.Bootstrap(testContext(t))
		defer boot.Release()
		for i := range uint64(50) {
			s, p, err := ask(t, boot, mEcho, i, "hello", nil)
			if err != nil || s.Uint64(0) != i || textOf(s, 0) != "hello" {
				t.Fatalf("echo %d: %v, %v", i, s, err)
			}
			p.Release()
		}
	})
}

func TestPipelineAndCallback(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
		ctx := testContext(t)
		boot := v.a.Bootstrap(ctx)
		defer boot.Release()
		// Three deep on unresolved promises.
		p1 := boot.Call(ctx, mMake, testSize, fill(0, "one", nil))
		c1 := p1.Cap(1)
		p1.Release()
		p2 := c1.Call(ctx, mMake, testSize, fill(0, "two", nil))
		c1.Release()
		c2 := p2.Cap(1)
		s, p3, err := ask(t, c2, mEcho, 7, "deep", nil)
		if err != nil || s.Uint64(0) != 7 {
			t.Fatalf("deep echo: %v", err)
		}
		p3.Release()
		p2.Release()
		c2.Release()
		// A callback: b calls an object of a.
		obj := newTestObject("callback")
		ref := NewLocal(obj)
		s, p4, err := ask(t, boot, mCall, 9, "back", ref)
		if err != nil || s.Uint64(0) != 9 || textOf(s, 0) != "back" {
			t.Fatalf("callback: %v", err)
		}
		p4.Release()
		ref.Release()
		select {
		case <-obj.gone:
		case <-ctx.Done():
			t.Fatal("the callback object was not released")
		}
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
		boot := v.a.Bootstrap(context.Background())
		defer boot.Release()
		for _, typ := range []ExceptionType{Failed, Overloaded, Disconnected, Unimplemented} {
			_, p, err := ask(t, boot, mFail, uint64(typ), "why", nil)
			ex, ok := err.(*Exception)
			if !ok || ex.Type != typ || ex.Reason != "why" || !ex.Remote {
				t.Errorf("%v: got %v", typ, err)
			}
			p.Release()
		}
		if _, _, err := ask(t, boot, mPanic, 0, "", nil); !IsFailed(err) {
			t.Errorf("panic: got %v", err)
		}
		if _, _, err := ask(t, boot, Method{testInterface, 999, ""}, 0, "", nil); !IsUnimplemented(err) {
			t.Errorf("unknown method: got %v", err)
		}
		if _, _, err := ask(t, boot, mEcho, 0, "", nil); err != nil {
			t.Errorf("after the errors: %v", err)
		}
	})
}
