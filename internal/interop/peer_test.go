// What our vat serves: the Peer of internal/testschema/interop.capnp and its objects.

package interop

import (
	"context"
	"sync"

	"capnproto.org/go/capnp/v3"

	wire "github.com/mooring-rpc/mooring/internal/testschema/interop"
	"github.com/mooring-rpc/mooring/rpc"
)

// sharedState is what all objects of one side share.
type sharedState struct {
	mu                        sync.Mutex
	alive, running, cancelled uint32
	held                      *rpc.Ref
	waiting                   []func(failure *rpc.Exception)
}

func (h *sharedState) counts() (alive, running, cancelled uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.alive, h.running, h.cancelled
}

func (h *sharedState) created() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alive++
}

func (h *sharedState) released() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alive--
}

// thing gives a new object, or for no name what is held, perhaps nil.
func (h *sharedState) thing(name string) *rpc.Ref {
	if name == "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.held.AddRef()
	}
	return rpc.NewLocal(newNode(h, name))
}

func (h *sharedState) hold(r *rpc.Ref) {
	h.mu.Lock()
	before := h.held
	h.held = r
	h.mu.Unlock()
	before.Release()
}

func (h *sharedState) await(f func(failure *rpc.Exception)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = append(h.waiting, f)
}

func (h *sharedState) settle(failure *rpc.Exception) {
	h.mu.Lock()
	waiting := h.waiting
	h.waiting = nil
	h.mu.Unlock()
	for _, f := range waiting {
		f(failure)
	}
}

// peer is a connection's bootstrap object.
type peer struct{ shared *sharedState }

// Serve implements rpc.Object.
func (p peer) Serve(c *rpc.Call) {
	s, caps := c.Params()
	ptr := func() capnp.Ptr { // what no pointer can be read as, the callee sees as null
		got, _ := s.Ptr(0)
		return got
	}
	h := p.shared
	switch c.Method() {
	case peerEcho:
		p.echo(c, wire.Peer_echo_Params(s))
	case peerMake:
		returnCap(c, h.thing(ptr().Text()))
	case peerMakeLater:
		h.await(func(failure *rpc.Exception) {
			if failure != nil {
				c.Fail(failure)
				return
			}
			returnCap(c, h.thing(ptr().Text()))
		})
	case peerPromise:
		r, resolve := rpc.NewPromise()
		h.await(func(failure *rpc.Exception) {
			if failure != nil {
				resolve(nil, failure)
				return
			}
			to := h.thing(ptr().Text())
			resolve(to, nil)
			to.Release()
		})
		returnCap(c, r)
	case peerSettle:
		var failure *rpc.Exception
		if why := ptr().Text(); why != "" {
			failure = rpc.Failedf("%s", why)
		}
		h.settle(failure)
		c.Return(words(0, 0), nil)
	case peerHold:
		r := caps.Get(ptr())
		h.hold(r.AddRef())
		r.WhenResolved(func() {
			defer r.Release()
			_, own := r.Object().(*node)
			c.Return(words(1, 0), func(s capnp.Struct, _ *rpc.CapTable) error {
				wire.Peer_hold_Results(s).SetNull(r == nil)
				wire.Peer_hold_Results(s).SetOwn(own)
				return nil
			})
		})
	case peerHeld:
		returnCap(c, h.thing(""))
	case peerCallBack:
		r, times := caps.Get(ptr()), wire.Peer_callBack_Params(s).Times()
		c.Go(func(ctx context.Context) {
			defer r.Release()
			callBack(ctx, c, r, times)
		})
	case peerFail:
		c.Fail(&rpc.Exception{Type: rpc.ExceptionType(wire.Peer_fail_Params(s).Type()), Reason: ptr().Text()})
	case peerNever:
		p.never(c)
	case peerCounts:
		c.Return(words(2, 0), func(s capnp.Struct, _ *rpc.CapTable) error {
			alive, running, cancelled := h.counts()
			r := wire.Peer_counts_Results(s)
			r.SetAlive(alive)
			r.SetRunning(running)
			r.SetCancelled(cancelled)
			return nil
		})
	case peerOpen:
		h.created()
		returnCap(c, rpc.NewLocal(&sink{shared: h}))
	default:
		c.Fail(rpc.Unimplementedf("a Peer has no method %d of interface %x", c.Method().ID, c.Method().Interface))
	}
}

// returnCap answers with a capability, perhaps nil, and releases it.
func returnCap(c *rpc.Call, r *rpc.Ref) {
	c.Return(words(0, 1), capOf(r))
	r.Release()
}

func (p peer) echo(c *rpc.Call, from wire.Peer_echo_Params) {
	c.Return(words(1, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		to := wire.Peer_echo_Results(s)
		to.SetNumber(from.Number())
		text, err := from.Text()
		if err == nil {
			err = to.SetText(text)
		}
		if err != nil {
			return err
		}
		parts, err := from.Parts()
		if err != nil {
			return err
		}
		return to.SetParts(parts)
	})
}

func (p peer) never(c *rpc.Call) {
	h := p.shared
	h.mu.Lock()
	h.running++
	h.mu.Unlock()
	c.Go(func(ctx context.Context) {
		<-ctx.Done()
		h.mu.Lock()
		h.running--
		h.cancelled++
		h.mu.Unlock()
		c.Fail(ctx.Err())
	})
}

func callBack(ctx context.Context, c *rpc.Call, r *rpc.Ref, times uint32) {
	for i := range times {
		noted := note(ctx, r, i+1)
		_, _, err := noted.Wait(ctx)
		noted.Release()
		if err != nil {
			c.Fail(err)
			return
		}
	}
	c.Return(words(0, 0), nil)
}

// node is a counted object.
type node struct {
	shared *sharedState
	name   string

	mu      sync.Mutex
	numbers []uint32
}

func newNode(h *sharedState, name string) *node {
	h.created()
	return &node{shared: h, name: name}
}

// Release implements rpc.Releaser.
func (n *node) Release() { n.shared.released() }

// Serve implements rpc.Object.
func (n *node) Serve(c *rpc.Call) {
	s, _ := c.Params()
	switch c.Method() {
	case nodeName:
		c.Return(words(0, 1), text(n.name))
	case nodeChild:
		name, err := wire.Node_child_Params(s).Name()
		if err != nil {
			c.Fail(err)
			return
		}
		returnCap(c, n.shared.thing(n.name+"/"+name))
	case nodeNote:
		n.mu.Lock()
		n.numbers = append(n.numbers, wire.Node_note_Params(s).Number())
		n.mu.Unlock()
		c.Return(words(0, 0), nil)
	case nodeNoted:
		c.Return(words(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			to, err := wire.Node_noted_Results(s).NewNumbers(int32(len(n.numbers)))
			if err != nil {
				return err
			}
			for i, v := range n.numbers {
				to.Set(i, v)
			}
			return nil
		})
	default:
		c.Fail(rpc.Unimplementedf("a Node has no method %d of interface %x", c.Method().ID, c.Method().Interface))
	}
}

// order gives the numbers noted so far.
func (n *node) order() []uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]uint32(nil), n.numbers...)
}

// sink takes a stream. Its calls come over one connection, so one by one.
type sink struct {
	shared *sharedState
	bytes  uint64
	writes uint32
	failed *rpc.Exception
}

// Release implements rpc.Releaser.
func (k *sink) Release() { k.shared.released() }

// Serve implements rpc.Object.
func (k *sink) Serve(c *rpc.Call) {
	s, _ := c.Params()
	switch c.Method() {
	case sinkWrite:
		b, err := wire.Sink_write_Params(s).Bytes()
		if err != nil || len(b) == 0 {
			k.failed = rpc.Failedf("a write of nothing")
		}
		if k.failed != nil {
			c.Fail(k.failed)
			return
		}
		k.bytes += uint64(len(b))
		k.writes++
		c.Return(words(0, 0), nil)
	case sinkDone:
		if k.failed != nil {
			c.Fail(k.failed)
			return
		}
		c.Return(words(2, 0), func(s capnp.Struct, _ *rpc.CapTable) error {
			wire.Sink_done_Results(s).SetBytes(k.bytes)
			wire.Sink_done_Results(s).SetWrites(k.writes)
			return nil
		})
	default:
		c.Fail(rpc.Unimplementedf("a Sink has no method %d of interface %x", c.Method().ID, c.Method().Interface))
	}
}
