// Handlers that wait, and values that are nothing: nobody else is held up.

package capnweb_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/until"
)

// What belongs to nobody's value cannot stop a connection.
func TestNilPointersInResults(t *testing.T) {
	p := serve(t, capnweb.NewMethods(map[string]any{
		"blob": func(c *capnweb.Call) { c.Return([]any{(*capnweb.Blob)(nil)}) },
		"stub": func(c *capnweb.Call) { c.Return((*capnweb.Stub)(nil)) },
		"read": func(c *capnweb.Call) {
			c.Return(map[string]any{"a": (*capnweb.Readable)(nil), "b": (*capnweb.Request)(nil)})
		},
		"err": func(c *capnweb.Call) { c.Return([]any{(*capnweb.Error)(nil)}) },
		"ok":  func() float64 { return 1 },
	}))
	m := p.client.Main()
	defer m.Release()
	for _, name := range []string{"stub", "read", "err", "blob", "ok"} {
		r := m.Call(bg, name)
		ctx, cancel := context.WithTimeout(bg, patience)
		_, err := r.Await(ctx)
		if err == context.DeadlineExceeded {
			t.Fatal(name, "hangs")
		}
		cancel()
		r.Release()
	}
}

// slowObject waits for its caller.
type slowObject struct{}

func (slowObject) Serve(c *capnweb.Call) {
	back := c.Args()[0].(*capnweb.Stub).Call(bg, "")
	defer back.Release()
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	v, err := back.Await(ctx)
	if err != nil {
		c.Fail(err)
		return
	}
	c.Return(v)
}

// A handler that waits does not stop the reader, however long its message took to be read.
func TestWaitingAfterALargeMessage(t *testing.T) {
	never := capnweb.Limits{PingInterval: time.Hour} // when the reader is looked after too
	p := connect(t, capnweb.Config{}, capnweb.Config{Main: slowObject{}, Limits: never})
	m := p.client.Main()
	defer m.Release()
	list := make([]any, 200_000)
	for i := range list {
		list[i] = map[string]any{"a": strings.Repeat("x", 10)}
	}
	r := m.Call(bg, "wait", func() float64 { return 7 }, list)
	defer r.Release()
	if v := await(t, r); v != 7.0 {
		t.Fatal(v)
	}
}

// What one connection's handler does holds up no call of another, though both wait for the same promise.
func TestSharedPromise(t *testing.T) {
	shared, resolve := capnweb.NewPromise()
	defer shared.Release()
	stuck := make(chan struct{})
	main := capnweb.NewMethods(map[string]any{
		"shared": func() *capnweb.Stub { return shared.Stub() },
		"hang":   func(c *capnweb.Call) { <-stuck; c.Return(nil) },
		"ok":     func() float64 { return 1 },
	})
	one, two := serve(t, main), serve(t, main)
	defer close(stuck)
	m1, m2 := one.client.Main(), two.client.Main()
	defer m1.Release()
	defer m2.Release()
	s1, s2 := m1.Call(bg, "shared"), m2.Call(bg, "shared")
	defer s1.Release()
	defer s2.Release()
	w1 := s1.Call(bg, "hang")
	defer w1.Release()
	until.True(t, "the first waits", func() bool { return one.server.Stats().Calls > 0 })
	w2 := s2.Call(bg, "ok")
	defer w2.Release()
	until.True(t, "the second waits", func() bool { return two.server.Stats().Calls > 0 })
	resolve(main, nil)
	ctx, cancel := context.WithTimeout(bg, patience)
	defer cancel()
	if v, err := w2.Await(ctx); err != nil || v != 1.0 {
		t.Error("the second connection waits for the first one's handler:", v, err)
	}
}

// A batch does not wait for a call that it gives up itself.
func TestBatchGivesUp(t *testing.T) {
	body := strings.NewReader(`["push",["pipeline",0,["hold"],[]]]` + "\n" + `["release",1,1]`)
	ctx, cancel := context.WithTimeout(bg, patience)
	defer cancel()
	w := httptest.NewRecorder()
	capnweb.ServeBatch(w, httptest.NewRequest("POST", "/", body).WithContext(ctx), capnweb.Config{
		Main: capnweb.NewMethods(map[string]any{"hold": func(*capnweb.Call) {}})}, capnweb.AcceptOptions{})
	if ctx.Err() != nil {
		t.Error("it waits")
	}
}

// mute is a transport whose peer answers no ping while a message is taken in.
type mute struct {
	capnweb.Transport
	taking atomic.Bool
}

func (m *mute) Ping(ctx context.Context) error {
	if !m.taking.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// tiring is an object whose calls take an hour to take in.
type tiring struct{ m *mute }

func (o tiring) KeepsOrder() bool {
	o.m.taking.Store(true)
	time.Sleep(time.Hour) // of the bubble's clock
	o.m.taking.Store(false)
	return false
}

func (o tiring) Serve(c *capnweb.Call) { c.Return(1) }

// Taking a message in may take longer than a ping has: the peer is not silent, we are deaf.
func TestTakingInIsNotSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := capnweb.Pipe()
		m := &mute{Transport: far}
		c := capnweb.NewConn(m, capnweb.Config{Main: tiring{m}})
		ran := make(chan error, 1)
		go func() { ran <- c.Run(bg) }()
		if err := near.Write(bg, [][]byte{[]byte(`["push",["pipeline",0,["x"],[]]]`), []byte(`["pull",1]`)}); err != nil {
			t.Fatal(err)
		}
		if answer, err := near.Read(bg); err != nil || string(answer) != `["resolve",1,1]` {
			t.Errorf("%s, %v", answer, err)
		}
		c.Close("over")
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}
