// Order through vats in between, over both protocols: calls on one promise arrive as they were made, whatever it turns out to
// be, and wherever that is.

package bridge

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/schemas"
	"capnproto.org/go/capnp/v3/std/capnp/stream"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/testschema/interop"
	"github.com/mooring-rpc/mooring/rpc"
)

var hopChains = flag.Int("chains", 100, "how many chains of vats to try")

func TestOrderOverBothProtocols(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	for i := range *hopChains {
		s, err := seed+uint64(i), error(nil)
		synctest.Test(t, func(t *testing.T) { err = runChain(s) })
		if err != nil {
			t.Fatalf("%v\nSEED=%d -run OrderOverBothProtocols -chains 1 is the same again, or nearly", err, s)
		}
	}
}

// some gives a while: one of few, so that much happens at the same moment.
func some(rnd *rand.Rand, most int) time.Duration {
	return time.Duration(rnd.IntN(most)) * time.Millisecond
}

// slow is a link that takes its time: what is written to it arrives later, in order.
type slow struct {
	mu     sync.Mutex
	queue  [][]byte
	busy   bool
	closed func()
	rnd    *rand.Rand
	wg     *sync.WaitGroup
	write  func([]byte)
}

func newSlow(c *chain, write func([]byte)) *slow {
	return &slow{rnd: rand.New(rand.NewPCG(c.rnd.Uint64(), 0)), wg: &c.wg, write: write}
}

func (s *slow) add(m []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue = append(s.queue, m); !s.busy {
		s.busy = true
		s.wg.Go(s.run)
	}
}

func (s *slow) run() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.busy = false
			if s.closed != nil {
				s.closed()
			}
			s.mu.Unlock()
			return
		}
		m := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		if s.rnd.IntN(3) == 0 {
			time.Sleep(some(s.rnd, 8))
		}
		s.write(m)
	}
}

// close has f run when all has arrived.
func (s *slow) close(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = f; !s.busy {
		f()
	}
}

type slowVat struct {
	rpc.Transport
	link *slow
}

func (s slowVat) WriteBatch(_ context.Context, b []byte) error {
	s.link.add(slices.Clone(b))
	return nil
}

func (s slowVat) Close(code int, reason string) error {
	s.link.close(func() { _ = s.Transport.Close(code, reason) })
	return nil
}

type slowWeb struct {
	capnweb.Transport
	link *slow
}

func (s slowWeb) Write(_ context.Context, messages [][]byte) error {
	for _, m := range messages {
		s.link.add(slices.Clone(m))
	}
	return nil
}

func (s slowWeb) Close(code int, reason string) error {
	s.link.close(func() { _ = s.Transport.Close(code, reason) })
	return nil
}

// chain is vats in a line: the first speaks Cap'n Web, the last Cap'n Proto.
type chain struct {
	ctx   context.Context
	rnd   *rand.Rand
	wg    sync.WaitGroup
	close []func()
}

// vats connects two vats, and gives what the other one serves.
func (c *chain) vats(boot rpc.Object) *rpc.Ref {
	a, b := rpc.Pipe()
	wrap := func(t rpc.Transport) rpc.Transport {
		return slowVat{t, newSlow(c, func(b []byte) { _ = t.WriteBatch(c.ctx, b) })}
	}
	near, far := rpc.NewConn(wrap(a), rpc.Config{}), rpc.NewConn(wrap(b), rpc.Config{Bootstrap: boot})
	for _, conn := range []*rpc.Conn{near, far} {
		c.wg.Go(func() { _ = conn.Run(context.Background()) })
	}
	c.close = append(c.close, func() { near.Close("the test is over") })
	return near.Bootstrap(c.ctx)
}

// web connects two peers of Cap'n Web.
func (c *chain) web(main any) *capnweb.Stub {
	a, b := capnweb.Pipe()
	wrap := func(t capnweb.Transport) capnweb.Transport {
		return slowWeb{t, newSlow(c, func(m []byte) { _ = t.Write(c.ctx, [][]byte{m}) })}
	}
	near, far := capnweb.NewConn(wrap(a), capnweb.Config{}), capnweb.NewConn(wrap(b), capnweb.Config{Main: main})
	for _, conn := range []*capnweb.Conn{near, far} {
		c.wg.Go(func() { _ = conn.Run(context.Background()) })
	}
	c.close = append(c.close, func() { near.Close("the test is over") })
	return near.Main()
}

// relayVat passes the calls of a Peer on.
type relayVat struct{ next *rpc.Ref }

var onePointer = capnp.ObjectSize{PointerCount: 1}

func (r relayVat) Serve(c *rpc.Call) {
	in, caps := c.Params()
	ptr, _ := in.Ptr(0)
	arg := caps.Get(ptr)
	p := r.next.Call(context.Background(), c.Method(), onePointer, func(s capnp.Struct, caps *rpc.CapTable) error {
		if arg != nil && ptr.Interface().IsValid() {
			return caps.Set(s, 0, arg)
		}
		return nil
	})
	arg.Release()
	if c.Method().ID == methodHold {
		c.Return(onePointer, nil)
		p.Notify(p.Release)
		return
	}
	x := p.Cap(0)
	c.Return(onePointer, func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, x) })
	x.Release()
	p.Release()
}

func (r relayVat) Release() { r.next.Release() }

// Methods of a Peer.
const (
	methodPromise = 3
	methodHold    = 5
)

// What a promise turns out to be: a node of the last vat's own, of a third, or of the first.
const (
	toLast = iota
	toThird
	toFirst
)

// lastVat promises a node and resolves that later: to its own, to one of another vat, or to what it was given.
type lastVat struct {
	kind  int
	later time.Duration // when it is known
	own   *rpc.Ref
	third *rpc.Ref // relays to the node

	held *rpc.Ref
}

func (v *lastVat) Serve(c *rpc.Call) {
	in, caps := c.Params()
	switch c.Method().ID {
	case methodHold:
		ptr, _ := in.Ptr(0)
		v.held = caps.Get(ptr)
		c.Return(onePointer, nil)
	case methodPromise:
		r, resolve := rpc.NewPromise()
		to := []*rpc.Ref{v.own, v.third, v.held}[v.kind]
		c.Return(onePointer, func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, r) })
		r.Release()
		go func() {
			time.Sleep(v.later)
			resolve(to, nil)
		}()
	}
}

func (v *lastVat) Release() {
	v.held.Release()
	v.own.Release()
	v.third.Release()
}

// lastWeb is lastVat that speaks Cap'n Web.
func (c *chain) lastWeb(kind int, later time.Duration, target *noted) any {
	node := capnweb.NewMethods(map[string]any{"note": target.add})
	third := c.web(capnweb.NewMethods(map[string]any{"node": func() any { return node }}))
	return capnweb.NewMethods(map[string]any{
		"hold": func(any) {},
		"promise": func(ctx context.Context, _ string) *capnweb.Promise {
			p, resolve := capnweb.NewPromise()
			go func() {
				time.Sleep(later)
				if kind == toLast {
					resolve(node, nil)
				} else {
					resolve(third.Call(c.ctx, "node"), nil)
				}
				third.Release()
			}()
			return p
		},
	})
}

// noted is a node that writes down what it is told, by either protocol.
type noted struct {
	mu  sync.Mutex
	got []int
}

func (n *noted) add(k int) {
	n.mu.Lock()
	n.got = append(n.got, k)
	n.mu.Unlock()
}

func (n *noted) Serve(c *rpc.Call) {
	in, _ := c.Params()
	n.add(int(in.Uint32(0)))
	c.Return(capnp.ObjectSize{}, nil)
}

func runChain(seed uint64) error {
	reg := new(schemas.Registry)
	interop.RegisterSchema(reg)
	stream.RegisterSchema(reg)
	bridge, err := New(Config{Schema: reg, Interfaces: []uint64{interop.Peer_TypeID, interop.Node_TypeID}})
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(seed, 3))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := &chain{ctx: ctx, rnd: rnd}
	target := new(noted)
	kind, later := rnd.IntN(3), some(rnd, 30)
	vats, webs := rnd.IntN(3), rnd.IntN(2)
	side := bridge.Conn(1 << 20)
	var main *capnweb.Stub
	if vats == 0 && kind != toFirst && rnd.IntN(2) == 0 { // Cap'n Web has no disembargo: what comes back may be overtaken
		vats, main = -1, c.web(c.lastWeb(kind, later, target))
	} else {
		last := &lastVat{kind: kind, later: later, own: rpc.NewLocal(target)}
		last.third = c.vats(target)
		ref := c.vats(last)
		for range vats {
			ref = c.vats(relayVat{ref})
		}
		main = c.web(side.Object(ref, interop.Peer_TypeID))
	}
	for range webs {
		next := c.web(main)
		main.Release()
		main = next
	}
	// The first peer's own node is a function: hold gives it to the last vat.
	hold := main.Call(ctx, "hold", func(m map[string]any) {
		if n, ok := m["note"].(float64); ok {
			target.add(int(n))
		}
	})
	x := main.Call(ctx, "promise", "x")
	const n = 60
	var all []*capnweb.Promise
	for i := range n {
		all = append(all, x.Call(ctx, "note", i))
		if rnd.IntN(4) == 0 {
			time.Sleep(some(rnd, 4))
		}
	}
	if vats < 0 {
		hold.Release()
	} else {
		all = append(all, hold)
	}
	for _, p := range append(all, x) {
		if _, e := p.Await(ctx); e != nil && err == nil {
			err = fmt.Errorf("kind %d, %d relays and %d of Cap'n Web: %w", kind, vats, webs, e)
		}
		p.Release()
	}
	main.Release()
	for _, f := range slices.Backward(c.close) {
		f()
	}
	c.wg.Wait()
	side.Wait()
	if err == nil && !slices.IsSorted(target.got) || len(target.got) != n {
		err = fmt.Errorf("kind %d, %d relays and %d of Cap'n Web: %v", kind, vats, webs, target.got)
	}
	return err
}
