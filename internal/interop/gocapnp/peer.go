package gocapnp

// The Peer of internal/testschema/interop.capnp on go-capnp's package server.

import (
	"context"
	"errors"
	"sync"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/exc"
	"capnproto.org/go/capnp/v3/server"

	wire "github.com/mooring-rpc/mooring/internal/testschema/interop"
)

// sharedState is what all objects of one side share.
type sharedState struct {
	mu                        sync.Mutex
	alive, running, cancelled uint32
	held                      wire.Node
	waiting                   []func(failure string)

	// The first reference of a promise made by hand must go last: gone before the promise is resolved, what it resolves
	// to is never released; gone while others use it, calls on those fail. So it is kept until nothing is held.
	promises []wire.Node
}

func (h *sharedState) add(alive, running, cancelled int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alive += uint32(alive)
	h.running += uint32(running)
	h.cancelled += uint32(cancelled)
}

// thing gives a new object, or for no name what is held, perhaps null.
func (h *sharedState) thing(name string) wire.Node {
	if name == "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.held.AddRef()
	}
	return wire.Node_ServerToClient(newNode(h, name))
}

func (h *sharedState) await(f func(failure string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = append(h.waiting, f)
}

func (h *sharedState) keep(promise wire.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.promises = append(h.promises, promise)
}

func (h *sharedState) hold(n wire.Node) {
	h.mu.Lock()
	gone := []wire.Node{h.held}
	h.held = n
	if !n.IsValid() {
		gone = append(gone, h.promises...)
		h.promises = nil
	}
	h.mu.Unlock()
	for _, n := range gone {
		n.Release()
	}
}

type peer struct{ shared *sharedState }

// Echo implements wire.Peer_Server.
func (p *peer) Echo(_ context.Context, call wire.Peer_echo) error {
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	r.SetNumber(call.Args().Number())
	text, err := call.Args().Text()
	if err == nil {
		err = r.SetText(text)
	}
	if err != nil {
		return err
	}
	parts, err := call.Args().Parts()
	if err != nil {
		return err
	}
	return r.SetParts(parts)
}

// Make implements wire.Peer_Server.
func (p *peer) Make(_ context.Context, call wire.Peer_make) error {
	name, err := call.Args().Name()
	if err != nil {
		return err
	}
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	return r.SetNode(p.shared.thing(name))
}

// MakeLater implements wire.Peer_Server.
func (p *peer) MakeLater(ctx context.Context, call wire.Peer_makeLater) error {
	name, err := call.Args().Name()
	if err != nil {
		return err
	}
	settled := make(chan string, 1)
	p.shared.await(func(failure string) { settled <- failure })
	call.Go()
	select {
	case failure := <-settled:
		if failure != "" {
			return errors.New(failure)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	return r.SetNode(p.shared.thing(name))
}

// Promise implements wire.Peer_Server.
func (p *peer) Promise(_ context.Context, call wire.Peer_promise) error {
	name, err := call.Args().Name()
	if err != nil {
		return err
	}
	promise, resolver := capnp.NewLocalPromise[wire.Node]()
	p.shared.keep(promise)
	p.shared.await(func(failure string) {
		if failure != "" {
			resolver.Reject(errors.New(failure))
			return
		}
		resolver.Fulfill(p.shared.thing(name))
	})
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	return r.SetNode(promise.AddRef())
}

// Settle implements wire.Peer_Server.
func (p *peer) Settle(_ context.Context, call wire.Peer_settle) error {
	failure, err := call.Args().Failure()
	if err != nil {
		return err
	}
	p.shared.mu.Lock()
	waiting := p.shared.waiting
	p.shared.waiting = nil
	p.shared.mu.Unlock()
	for _, f := range waiting {
		f(failure)
	}
	return nil
}

// Hold implements wire.Peer_Server.
func (p *peer) Hold(ctx context.Context, call wire.Peer_hold) error {
	null := !call.Args().HasNode()
	n := call.Args().Node().AddRef()
	defer n.Release()
	p.shared.hold(n.AddRef())
	call.Go() // a promise may take its time
	if err := n.Resolve(ctx); err != nil {
		return err
	}
	at := capnp.Client(n).Snapshot()
	defer at.Release()
	_, own := server.IsServer(at.Brand())
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	r.SetNull(null)
	r.SetOwn(own)
	return nil
}

// Held implements wire.Peer_Server.
func (p *peer) Held(_ context.Context, call wire.Peer_held) error {
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	return r.SetNode(p.shared.thing(""))
}

// CallBack implements wire.Peer_Server.
func (p *peer) CallBack(ctx context.Context, call wire.Peer_callBack) error {
	n := call.Args().Node().AddRef()
	defer n.Release()
	times := call.Args().Times()
	call.Go()
	for i := range times {
		f, done := n.Note(ctx, func(p wire.Node_note_Params) error {
			p.SetNumber(i + 1)
			return nil
		})
		_, err := f.Struct()
		done()
		if err != nil {
			return err
		}
	}
	return nil
}

// Fail implements wire.Peer_Server.
func (p *peer) Fail(_ context.Context, call wire.Peer_fail) error {
	reason, err := call.Args().Reason()
	if err != nil {
		return err
	}
	return exc.New(exc.Type(call.Args().Type()), "", reason)
}

// Never implements wire.Peer_Server.
func (p *peer) Never(ctx context.Context, call wire.Peer_never) error {
	p.shared.add(0, 1, 0)
	call.Go()
	<-ctx.Done()
	p.shared.add(0, -1, 1)
	return ctx.Err()
}

// Counts implements wire.Peer_Server.
func (p *peer) Counts(_ context.Context, call wire.Peer_counts) error {
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	p.shared.mu.Lock()
	defer p.shared.mu.Unlock()
	r.SetAlive(p.shared.alive)
	r.SetRunning(p.shared.running)
	r.SetCancelled(p.shared.cancelled)
	return nil
}

// Open implements wire.Peer_Server.
func (p *peer) Open(_ context.Context, call wire.Peer_open) error {
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	p.shared.add(1, 0, 0)
	return r.SetSink(wire.Sink_ServerToClient(&sink{shared: p.shared}))
}

// node is a counted object.
type node struct {
	shared *sharedState
	name   string

	mu      sync.Mutex
	numbers []uint32
}

func newNode(h *sharedState, name string) *node {
	h.add(1, 0, 0)
	return &node{shared: h, name: name}
}

// Shutdown implements server.Shutdowner.
func (n *node) Shutdown() { n.shared.add(-1, 0, 0) }

// Name implements wire.Node_Server.
func (n *node) Name(_ context.Context, call wire.Node_name) error {
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	return r.SetName(n.name)
}

// Child implements wire.Node_Server.
func (n *node) Child(_ context.Context, call wire.Node_child) error {
	name, err := call.Args().Name()
	if err != nil {
		return err
	}
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	return r.SetNode(n.shared.thing(n.name + "/" + name))
}

// Note implements wire.Node_Server.
func (n *node) Note(_ context.Context, call wire.Node_note) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.numbers = append(n.numbers, call.Args().Number())
	return nil
}

// Noted implements wire.Node_Server.
func (n *node) Noted(_ context.Context, call wire.Node_noted) error {
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	numbers := n.order()
	to, err := r.NewNumbers(int32(len(numbers)))
	if err != nil {
		return err
	}
	for i, v := range numbers {
		to.Set(i, v)
	}
	return nil
}

func (n *node) order() []uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]uint32(nil), n.numbers...)
}

// sink takes a stream, one call after the other.
type sink struct {
	shared *sharedState
	bytes  uint64
	writes uint32
	failed error
}

// Shutdown implements server.Shutdowner.
func (k *sink) Shutdown() { k.shared.add(-1, 0, 0) }

// Write implements wire.Sink_Server.
func (k *sink) Write(_ context.Context, call wire.Sink_write) error {
	b, err := call.Args().Bytes()
	if err != nil || len(b) == 0 {
		k.failed = errors.New("a write of nothing")
	}
	if k.failed != nil {
		return k.failed
	}
	k.bytes += uint64(len(b))
	k.writes++
	return nil
}

// Done implements wire.Sink_Server.
func (k *sink) Done(_ context.Context, call wire.Sink_done) error {
	if k.failed != nil {
		return k.failed
	}
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	r.SetBytes(k.bytes)
	r.SetWrites(k.writes)
	return nil
}
