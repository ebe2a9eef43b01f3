//go:build interop

// Our client: what becomes of a connection, and what only batches do.

package npm

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb"
)

var linkScenarios = []scenario{
	{name: "broken/by the server", run: func(t *trial) {
		l := t.dial(nil)
		l.lost = true
		var notified atomic.Int32
		c := own(t, l.main.Call(t.ctx, "makeCounter", 1))
		counter, ok := t.await(c).(*capnweb.Stub)
		if !ok {
			t.Fatal("no stub")
		}
		for _, s := range []*capnweb.Stub{l.main, counter} {
			s.OnBroken(func(err error) {
				if err != nil {
					notified.Add(1)
				}
			})
		}
		pending := own(t, l.main.Call(t.ctx, "slow", 5000, 1))
		gone := own(t, l.main.Call(t.ctx, "abort", "bye"))
		for _, p := range []*capnweb.Promise{pending, gone, own(t, counter.Call(t.ctx, "increment"))} {
			if _, err := p.Await(t.ctx); err == nil {
				t.Error("a call on a broken connection was answered")
			}
		}
		t.until("told", func() bool { return notified.Load() == 2 })
		<-l.conn.Done()
		if l.conn.Err() == nil {
			t.Error("it does not say why")
		}
	}},
	{name: "broken/the server is told", run: func(t *trial) {
		t.main()
		before, l := t.counted(), t.dial(nil)
		l.lost = true
		t.is(own(t, l.main.Call(t.ctx, "hold", func() {})), 1.0)
		t.is(own(t, l.main.Call(t.ctx, "hold", func() {})), 2.0)
		l.conn.Abort(&capnweb.Error{Name: "Error", Message: "enough"})
		t.until("told", func() bool { return t.counted().Broken-before.Broken == 2 })
	}},
	{name: "broken/promise that fails", run: func(t *trial) {
		notified := make(chan error, 1)
		p := t.call("throwError")
		s := own(t, p.Stub())
		s.OnBroken(func(err error) { notified <- err })
		t.fails(p, "RangeError", "test error")
		select {
		case <-notified:
		case <-t.ctx.Done():
			t.Error("not told")
		}
	}},
	{name: "broken/closed", run: func(t *trial) {
		l := t.dial(nil)
		l.lost = true
		t.is(own(t, l.main.Call(t.ctx, "square", 2)), 4.0)
		l.conn.Close("enough")
		if _, err := own(t, l.main.Call(t.ctx, "square", 2)).Await(t.ctx); err == nil {
			t.Error("a closed connection answers")
		}
		<-l.conn.Done()
	}},
}

var batchScenarios = []scenario{
	{name: "batch/runs what nobody asks for", only: "batch", run: func(t *trial) {
		t.call("push", "one").Release()
		t.call("push", "two")
		t.equal(t.ask("takeLog"), []any{"one", "two"})
	}},
	{name: "batch/waits for what is late", only: "batch", run: func(t *trial) {
		a, b := t.call("slow", 60, "a"), t.call("slow", 30, "b")
		t.send()
		t.is(a, "a")
		t.is(b, "b")
	}},
	{name: "batch/calls after it fail", only: "batch", run: func(t *trial) {
		main := t.main()
		t.equal(t.ask("square", 2), 4.0)
		if _, err := own(t, main.Call(t.ctx, "square", 3)).Await(t.ctx); err == nil {
			t.Error("a batch was answered twice")
		}
	}},
	{name: "batch/stub used after it", only: "batch", run: func(t *trial) {
		c, ok := t.ask("makeCounter", 1).(*capnweb.Stub)
		if !ok {
			t.Fatal("no stub")
		}
		if _, err := own(t, c.Call(t.ctx, "increment")).Await(t.ctx); err == nil {
			t.Error("an object outlives its batch")
		}
	}},
	{name: "batch/sent twice", only: "batch", run: func(t *trial) {
		p := t.call("square", 2)
		b := t.batch
		t.send()
		t.is(p, 4.0)
		if b.Send(t.ctx) == nil {
			t.Error("a batch was sent twice")
		}
	}},
	{name: "batch/empty", only: "batch", run: func(t *trial) {
		b := capnweb.NewBatch("http://"+t.address+"/", capnweb.DialOptions{}, capnweb.Config{})
		if err := b.Send(t.ctx); err != nil {
			t.Error(err)
		}
	}},
}
