//go:build interop

// Our client: callbacks, stubs passed back and on, order, and who holds what.

package npm

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb"
)

var capabilityScenarios = []scenario{
	{name: "callbacks/function", run: func(t *trial) {
		t.equal(t.ask("callFunction", func(i float64) float64 { return i + 1 }, 3), map[string]any{"result": 4.0})
	}},
	{name: "callbacks/that blocks", run: func(t *trial) {
		got := t.ask("callFunction", func(ctx context.Context, i float64) (any, error) {
			p := t.main().Call(ctx, "square", i) // a call back while this one is waited for
			defer p.Release()
			return p.Await(ctx)
		}, 3)
		t.equal(got, map[string]any{"result": 9.0})
	}},
	{name: "callbacks/object", run: func(t *trial) {
		n := newThing(4)
		t.equal(t.ask("incrementCounter", n, 9), 13.0)
		t.until("it is released", func() bool { return n.gone() == 1 })
	}},
	{name: "callbacks/error", run: func(t *trial) {
		t.fails(t.call("callFunction", func() error { return &capnweb.Error{Name: "RangeError", Message: "mine"} }, nil), "TypeError", "")
		t.fails(t.call("callFunction", func(any) error { return &capnweb.Error{Name: "RangeError", Message: "mine"} }, 1), "RangeError", "mine")
	}},
	{name: "callbacks/error that is redacted", run: func(t *trial) {
		t.fails(t.call("callFunction", func(any) error { return errors.New("the secret is hunter2") }, 1), "", "internal error")
	}},
	{name: "callbacks/capability as result", run: func(t *trial) {
		n := newThing(1)
		p := t.call("callFunction", func(any) any { return n }, 0)
		result := p.Get("result")
		t.is(own(t, result.Call(t.ctx, "increment", 5)), 6.0)
		result.Release()
		p.Release()
		t.until("it is released", func() bool { return n.gone() == 1 })
	}},
	{name: "callbacks/many at once, in order", run: func(t *trial) {
		var mu sync.Mutex
		seen := []any{}
		got := t.ask("callMany", func(i float64) float64 {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, i)
			return i
		}, 200)
		t.equal(got, upto(200))
		t.equal(seen, upto(200))
	}},
	{name: "callbacks/pipelined by the server", run: func(t *trial) {
		n := newThing(3)
		t.equal(t.ask("pipelineCallback", func() any { return n }, 4), 7.0)
		t.until("it is released", func() bool { return n.gone() == 1 })
	}},
	{name: "callbacks/mapped by the server", loose: true, run: func(t *trial) {
		t.equal(t.ask("mapCallback", func() []int { return []int{1, 2, 3} }, func(x float64) float64 { return x * 2 }), []any{2.0, 4.0, 6.0})
		t.equal(t.ask("mapCallback", func() any { return nil }, func(x float64) float64 { return x * 2 }), nil)
	}},
	{name: "callbacks/after the answer", run: func(t *trial) {
		seen := make(chan float64, 10)
		t.ask("callLater", func(i float64) { seen <- i }, 10)
		for i := range 10 {
			select {
			case got := <-seen:
				t.equal(got, float64(i))
			case <-t.ctx.Done():
				t.Fatal("not called")
			}
		}
	}},
	{name: "callbacks/held", run: func(t *trial) {
		t.equal(t.ask("hold", func(x float64) float64 { return x + 1 }), 1.0)
		t.equal(t.ask("callHeld", 4), 5.0)
		t.equal(t.ask("heldCount"), 1.0)
		t.ask("release")
		t.equal(t.ask("heldCount"), 0.0)
		t.fails(t.call("callHeld", 1), "Error", "nothing is held")
	}},
	{name: "callbacks/within callbacks", run: func(t *trial) {
		var down func(ctx context.Context, i float64) (float64, error)
		down = func(ctx context.Context, i float64) (float64, error) {
			if i == 0 {
				return 0, nil
			}
			p := t.links[0].main.Call(ctx, "callFunction", down, i-1)
			defer p.Release()
			var r struct {
				Result float64 `json:"result"`
			}
			err := p.Into(ctx, &r)
			return 1 + r.Result, err
		}
		t.equal(t.ask("callFunction", down, 5), map[string]any{"result": 5.0})
	}},

	{name: "stubs/passed back", run: func(t *trial) {
		n := newThing(2)
		p := t.call("echoStub", n)
		s, ok := t.await(p).(*capnweb.Stub)
		if !ok || s.Object() != capnweb.Object(n) {
			t.Fatalf("%T is not ours", t.await(p))
		}
		t.is(own(t, s.Call(t.ctx, "increment", 3)), 5.0)
		p.Release()
		t.until("it is released", func() bool { return n.gone() == 1 })
	}},
	{name: "stubs/passed back, pipelined", run: func(t *trial) {
		n := newThing(2)
		p := t.call("echoStub", n)
		t.is(own(t, p.Call(t.ctx, "increment", 3)), 5.0)
		p.Release()
		t.until("it is released", func() bool { return n.gone() == 1 })
	}},
	{name: "stubs/the server's own passed back", since: ours, run: func(t *trial) {
		c := t.call("makeCounter", 1)
		first, ok := t.await(c).(*capnweb.Stub)
		again, ok2 := t.ask("echoStub", first).(*capnweb.Stub)
		if !ok || !ok2 {
			t.Fatal("no stubs")
		}
		t.is(own(t, first.Call(t.ctx, "increment")), 2.0)
		c.Release()
		t.is(own(t, again.Call(t.ctx, "increment")), 3.0)
	}},
	{name: "stubs/in data", run: func(t *trial) {
		n, m := newThing(1), newThing(10)
		p := t.call("echo", map[string]any{"a": n, "list": []any{m, m}})
		got, ok := t.await(p).(map[string]any)
		if !ok {
			t.Fatal("no object")
		}
		list, ok := got["list"].([]any)
		if !ok || len(list) != 2 {
			t.Fatal("no list")
		}
		for i, v := range []any{got["a"], list[0], list[1]} {
			s, ok := v.(*capnweb.Stub)
			if !ok {
				t.Fatalf("%T is no stub", v)
			}
			t.is(own(t, s.Call(t.ctx, "increment")), []float64{2, 11, 12}[i])
		}
		p.Release()
		t.until("they are released", func() bool { return n.gone() == 1 && m.gone() > 0 })
	}},
	{name: "stubs/three parties", run: func(t *trial) {
		a, b := t.dial(nil), t.dial(nil)
		c := own(t, a.main.Call(t.ctx, "makeCounter", 5))
		t.is(own(t, b.main.Call(t.ctx, "incrementCounter", t.await(c), 2)), 7.0)
		t.is(own(t, b.main.Call(t.ctx, "hold", t.await(c))), 1.0)
		back := own(t, b.main.Call(t.ctx, "held"))
		t.is(own(t, back.Call(t.ctx, "increment")), 8.0)
		t.is(own(t, b.main.Call(t.ctx, "release")), capnweb.Undefined{})
	}},
	{name: "stubs/three parties, promise", run: func(t *trial) {
		a, b := t.dial(nil), t.dial(nil)
		c := own(t, a.main.Call(t.ctx, "laterCounter", 30, 5))
		t.is(own(t, b.main.Call(t.ctx, "incrementCounter", c, 2)), 7.0)
	}},

	{name: "order/1000 calls", batch: true, run: func(t *trial) {
		all := make([]*capnweb.Promise, 1000)
		for i := range all {
			all[i] = t.call("push", i)
		}
		log := t.call("takeLog")
		t.send()
		for i, p := range all {
			t.is(p, float64(i+1))
		}
		t.is(log, upto(1000))
	}},
	{name: "order/1000 calls on a late promise", run: func(t *trial) {
		c := t.call("laterCounter", 20, 0)
		all := make([]*capnweb.Promise, 1000)
		for i := range all {
			all[i] = own(t, c.Call(t.ctx, "increment"))
		}
		for i, p := range all {
			t.is(p, float64(i+1))
		}
	}},
	{name: "order/slow calls hold up nobody", run: func(t *trial) {
		var first atomic.Bool
		slow := t.call("slow", 150, "v")
		slow.Then(func(any, error) { first.Store(true) })
		t.equal(t.ask("square", 2), 4.0)
		if first.Load() {
			t.Error("the slow call was first")
		}
		t.is(slow, "v")
	}},
}

var disposalScenarios = []scenario{
	{name: "disposal/of a result", run: func(t *trial) {
		t.disposes(1, func() {
			c := t.call("makeCounter", 1)
			t.await(c)
			c.Release()
		})
	}},
	{name: "disposal/of a promise never asked for", run: func(t *trial) {
		t.disposes(1, func() { t.call("makeCounter", 1).Release() })
	}},
	{name: "disposal/of a promise not resolved yet", run: func(t *trial) {
		t.disposes(1, func() {
			c := t.call("laterCounter", 30, 1)
			v := own(t, c.Call(t.ctx, "increment"))
			c.Release()
			t.is(v, 2.0)
		})
	}},
	{name: "disposal/dup", run: func(t *trial) {
		t.main()
		before := t.counted()
		c := t.call("makeCounter", 1)
		a, ok := t.await(c).(*capnweb.Stub)
		if !ok {
			t.Fatal("no stub")
		}
		b := a.Dup()
		d := b.Dup()
		c.Release()
		d.Release()
		d.Release()
		t.is(own(t, b.Call(t.ctx, "increment")), 2.0)
		t.equal(t.counted().Disposed, before.Disposed)
		t.disposes(1, b.Release)
	}},
	{name: "disposal/calls on a released stub", run: func(t *trial) {
		c := t.call("makeCounter", 1)
		a, ok := t.await(c).(*capnweb.Stub)
		if !ok {
			t.Fatal("no stub")
		}
		b := a.Dup()
		b.Release()
		if _, err := own(t, b.Call(t.ctx, "increment")).Await(t.ctx); err == nil {
			t.Error("a released stub can be called")
		}
	}},
	{name: "disposal/of a result with many", run: func(t *trial) {
		t.disposes(3, func() {
			p := t.call("tree")
			t.await(p)
			p.Release()
		})
	}},
	{name: "disposal/one kept of many", run: func(t *trial) {
		var kept *capnweb.Stub
		t.disposes(2, func() {
			p := t.call("tree")
			tree, _ := t.await(p).(map[string]any)
			list, ok := tree["list"].([]any)
			if !ok {
				t.Fatal("no list")
			}
			s, ok := list[0].(*capnweb.Stub)
			if !ok {
				t.Fatal("no stub")
			}
			kept = s.Dup()
			p.Release()
		})
		t.is(own(t, kept.Call(t.ctx, "increment")), 21.0)
		t.disposes(1, kept.Release)
	}},
	{name: "disposal/100 objects", run: func(t *trial) {
		t.disposes(100, func() {
			all := make([]*capnweb.Promise, 100)
			for i := range all {
				all[i] = t.call("makeCounter", i)
			}
			for _, p := range all {
				t.await(p)
				p.Release()
			}
		})
	}},
	{name: "disposal/of arguments", run: func(t *trial) {
		n := newThing(0)
		t.equal(t.ask("describe", map[string]any{"n": n}), "{n: stub}")
		t.until("it is released", func() bool { return n.gone() == 1 })
	}},
	{name: "disposal/the same stub many times", run: func(t *trial) {
		n := newThing(0)
		s := capnweb.NewStub(n)
		for i := range 3 {
			t.equal(t.ask("hold", s), float64(i+1))
		}
		t.equal(t.ask("describe", []any{s, s, s}), "[stub, stub, stub]")
		s.Release()
		t.is(own(t, t.call("held").Call(t.ctx, "ping")), "pong")
		t.equal(n.gone(), 0)
		t.ask("release")
		t.finish(true)
		t.until("it is released", func() bool { return n.gone() == 1 })
	}},
	{name: "disposal/sent again while it is released", run: func(t *trial) {
		n := newThing(0)
		s := capnweb.NewStub(n)
		all := make([]*capnweb.Promise, 200)
		for i := range all {
			all[i] = t.call("describe", s)
		}
		for _, p := range all {
			t.is(p, "stub")
		}
		t.equal(n.gone(), 0)
		s.Release()
		t.until("it is released", func() bool { return n.gone() == 1 })
	}},
	{name: "disposal/told to a callback", run: func(t *trial) {
		var notified atomic.Int32
		d := t.call("makeDisposable", func() { notified.Add(1) })
		t.is(own(t, d.Call(t.ctx, "ping")), "pong")
		t.equal(notified.Load(), int32(0))
		d.Release()
		t.until("it is told", func() bool { return notified.Load() == 1 })
	}},
	{name: "disposal/when the connection closes", run: func(t *trial) {
		t.main()
		t.disposes(4, func() {
			l := t.dial(nil)
			l.lost = true
			t.await(own(t, l.main.Call(t.ctx, "tree")))
			t.await(own(t, l.main.Call(t.ctx, "makeCounter", 1)))
			l.conn.Close("enough")
		})
	}},
	{name: "disposal/ours when the connection closes", run: func(t *trial) {
		l := t.dial(nil)
		l.lost = true
		n := newThing(1)
		t.is(own(t, l.main.Call(t.ctx, "hold", n)), 1.0)
		t.equal(n.gone(), 0)
		l.conn.Close("enough")
		t.until("it is released", func() bool { return n.gone() == 1 })
	}},
}
