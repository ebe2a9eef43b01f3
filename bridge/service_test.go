// A service of internal/testschema/kinds.capnp, served to a peer over a bridge.

package bridge

import (
	"context"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/testschema/kinds"
	"github.com/mooring-rpc/mooring/rpc"
)

// service is an object of interface Server.
type service struct {
	name string
	log  *record
}

// record is what the services of a test have been through.
type record struct {
	mu       sync.Mutex
	calls    []string
	released int
	hangs    chan struct{} // closed when a hanging call has been given up
}

func (r *record) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, what)
}

func (s *service) Release() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.released++
}

func copied(c *rpc.Call, size capnp.ObjectSize) {
	params, _ := c.Params()
	c.Return(size, func(res capnp.Struct, _ *rpc.CapTable) error { return res.CopyFrom(params) })
}

func (s *service) Serve(c *rpc.Call) {
	params, caps := c.Params()
	m := c.Method()
	switch {
	case m.Interface == kinds.Base_TypeID, m.ID == 0:
		copied(c, capnp.ObjectSize{PointerCount: 1})
	case m.ID == 1:
		first, _ := kinds.Server_two_Params(params).First()
		s.log.note(s.name + " two " + first)
		copied(c, capnp.ObjectSize{DataSize: 8, PointerCount: 1})
	case m.ID == 2:
		c.Return(capnp.ObjectSize{}, nil)
	case m.ID == 3:
		s.listen(c, caps)
	case m.ID == 4:
		name, _ := kinds.Server_child_Params(params).Name()
		if name == "" {
			c.Fail(rpc.Failedf("a child needs a name"))
			return
		}
		child := rpc.NewLocal(&service{name: s.name + "/" + name, log: s.log})
		c.Go(func(context.Context) { // later: calls are pipelined on it
			defer child.Release()
			c.Return(capnp.ObjectSize{PointerCount: 1}, func(res capnp.Struct, caps *rpc.CapTable) error { return caps.Set(res, 0, child) })
		})
	case m.ID == 5:
		s.any(c, caps)
	case m.ID == 6:
		reason, _ := kinds.Server_fail_Params(params).Reason()
		switch reason {
		case "panic":
			panic("it was asked for")
		case "hang":
			ctx := c.Context()
			c.Go(func(context.Context) {
				<-ctx.Done()
				close(s.log.hangs)
				c.Fail(ctx.Err())
			})
		default:
			c.Fail(rpc.Failedf("%s", reason))
		}
	}
}

// listen calls its listener so often, one call after the other, and gives the sum of what it returned.
func (s *service) listen(c *rpc.Call, caps *rpc.CapTable) {
	params, _ := c.Params()
	ptr, _ := params.Ptr(0)
	listener, times := caps.Get(ptr), kinds.Server_listen_Params(params).Times()
	c.Go(func(ctx context.Context) {
		defer listener.Release()
		heard := listener.Call(ctx, rpc.Method{Interface: kinds.Listener_TypeID}, capnp.ObjectSize{PointerCount: 1}, func(p capnp.Struct, _ *rpc.CapTable) error {
			return kinds.Listener_heard_Params(p).SetText("begins")
		})
		defer heard.Release()
		var total uint64
		for i := range times {
			answer := listener.Call(ctx, rpc.Method{Interface: kinds.Listener_TypeID, ID: 1}, capnp.ObjectSize{DataSize: 8}, func(p capnp.Struct, _ *rpc.CapTable) error {
				kinds.Listener_counted_Params(p).SetA(i)
				kinds.Listener_counted_Params(p).SetB(100)
				return nil
			})
			res, _, err := answer.Wait(ctx)
			if err != nil {
				c.Fail(err)
				answer.Release()
				return
			}
			total += kinds.Listener_counted_Results(res).Sum()
			answer.Release()
		}
		c.Return(capnp.ObjectSize{DataSize: 8}, func(res capnp.Struct, _ *rpc.CapTable) error {
			kinds.Server_listen_Results(res).SetTotal(total)
			return nil
		})
	})
}

// any gives the last of the capabilities back.
func (s *service) any(c *rpc.Call, caps *rpc.CapTable) {
	params, _ := c.Params()
	ptr, _ := params.Ptr(0)
	list := capnp.PointerList(ptr.List())
	last, _ := list.At(list.Len() - 1)
	ref := caps.Get(last)
	if o, ok := ref.Object().(*service); ok {
		s.log.note("any " + o.name)
	}
	c.Return(capnp.ObjectSize{PointerCount: 1}, func(res capnp.Struct, caps *rpc.CapTable) error {
		defer ref.Release()
		return caps.Set(res, 0, ref)
	})
}

// rig is a service and a peer that calls it over a pipe.
type rig struct {
	t      testing.TB
	log    *record
	side   *Conn
	client *capnweb.Conn
	server *capnweb.Conn
	main   *capnweb.Stub
	leave  func()
}

const patience = time.Minute

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	r := &rig{t: t, log: &record{hangs: make(chan struct{})}}
	r.side = compiled(t, cfg).Conn(1 << 20)
	near, far := capnweb.Pipe()
	main := r.side.Object(rpc.NewLocal(&service{name: "main", log: r.log}), kinds.Server_TypeID)
	r.client, r.server = capnweb.NewConn(near, capnweb.Config{}), capnweb.NewConn(far, capnweb.Config{Main: main})
	var running sync.WaitGroup
	for _, c := range []*capnweb.Conn{r.client, r.server} {
		running.Go(func() { _ = c.Run(context.Background()) })
	}
	r.main = r.client.Main()
	var once sync.Once
	r.leave = func() {
		once.Do(func() {
			r.client.Close("test")
			running.Wait()
			r.side.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if r.side.WaitIdle(ctx); ctx.Err() != nil {
				t.Error("functions of a peer that has gone are held")
			}
			for _, c := range []*capnweb.Conn{r.client, r.server} {
				if s := c.Stats(); s.Exports != 0 || s.Imports != 0 || s.Calls != 0 {
					t.Errorf("a connection that has ended holds %+v", s)
				}
			}
		})
	}
	t.Cleanup(r.leave)
	return r
}

func (r *rig) await(p *capnweb.Promise) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.Await(ctx)
}

func (r *rig) call(method string, args ...any) (any, error) {
	p := r.main.Call(context.Background(), method, args...)
	defer p.Release()
	return r.await(p)
}

func (r *rig) noted() []string {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return append([]string(nil), r.log.calls...)
}
