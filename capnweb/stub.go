// Stub and Promise: references to objects and to results, wherever they are.

package capnweb

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
)

// Stub is a counted reference to something that can be called: an object or function of the peer, of this side, or of
// another connection. Release it once; calls through a released one fail. Two calls through one Stub are delivered in
// the order in which they were made, within the limits of the package comment's Order. All methods may be called from any
// goroutine.
type Stub struct {
	node     node
	borrowed bool // it belongs to a payload, and its reference is the payload's
	released atomic.Bool
}

// NewStub returns a first reference to an object or function of this side: a value that may be exported.
// It panics for anything else, a mistake in the program.
func NewStub(object any) *Stub {
	switch o := object.(type) {
	case *Stub:
		return o.Dup()
	case Object:
		return &Stub{node: newLocal(o)}
	}
	return &Stub{node: newLocal(Func(object))}
}

// liveNode returns the node, or that of a released stub.
func (s *Stub) liveNode() node {
	if s == nil || s.released.Load() {
		return releasedNode
	}
	return s.node
}

var releasedNode = func() *future {
	f := newError(&BrokenError{Reason: "the stub was released"})
	f.refs.Store(1 << 30)
	return f
}()

// transfer returns the stub that a payload owns for s.
func (s *Stub) transfer(move bool) *Stub {
	if move && !s.borrowed {
		if s.released.CompareAndSwap(false, true) {
			return &Stub{node: s.node, borrowed: true}
		}
		releasedNode.ref()
		return &Stub{node: releasedNode, borrowed: true}
	}
	n := s.liveNode()
	n.ref()
	return &Stub{node: n, borrowed: true}
}

// stubRef is a stub owned by a payload.
type stubRef struct{ s *Stub }

func (r stubRef) drop() {
	if r.s.released.CompareAndSwap(false, true) {
		r.s.node.unref()
	}
}

func (r stubRef) refersTo() node { return r.s.node }

// Call calls a method; an empty name calls the stub itself as a function. It does not wait for the answer; ctx bounds only
// a wait at a limit of calls in flight. Arguments are copied when Call returns, stubs among them by Dup. Errors are reported
// by the promise.
func (s *Stub) Call(ctx context.Context, method string, args ...any) *Promise {
	var path []string
	if method != "" {
		path = []string{method}
	}
	return callNode(ctx, s.liveNode(), path, args)
}

// CallEncoded is Call with arguments that [EncodeArgs] has made.
func (s *Stub) CallEncoded(ctx context.Context, method string, args *EncodedArgs) *Promise {
	var path []string
	if method != "" {
		path = []string{method}
	}
	n := s.liveNode()
	in, _ := shortcut(n).(*importNode)
	return callWith(ctx, n, in, path, &payload{value: args.values, size: args.size, encoded: args}, nil)
}

func callNode(ctx context.Context, n node, path []string, args []any) *Promise {
	in, _ := shortcut(n).(*importNode)
	var c *Conn
	if in != nil {
		c = in.c
	}
	p, b, err := copyInArgs(args, c)
	if err != nil {
		return &Promise{node: newError(err)}
	}
	return callWith(ctx, n, in, path, p, b)
}

// callWith makes a call with a payload. in is the import that it goes to, if that is known, and b the map that it is part of, if it is.
func callWith(ctx context.Context, n node, in *importNode, path []string, p *payload, b *mapBuilder) *Promise {
	if ph, ok := n.(*placeholder); ok && (b == nil || ph.builder.depth > b.depth) {
		b = ph.builder
	}
	if b != nil {
		return b.call(n, path, p)
	}
	if in != nil {
		if err := in.c.waitAtLimit(ctx); err != nil {
			p.release()
			return &Promise{node: newError(err)}
		}
	}
	return &Promise{node: n.call(via{}, path, p)}
}

// Get reads a property, or a property of properties. It sends nothing until it is awaited or passed on.
func (s *Stub) Get(path ...string) *Promise {
	n := s.liveNode()
	n.ref()
	return newGet(n, path)
}

// Map makes the peer run f for each element of the stub's value (once if it is no array, not at all for null and
// undefined) without a round trip. f is called once, here, with a placeholder, and the calls it makes on it are recorded; a
// call on another stub is recorded if the placeholder, or a result derived from it, is among its arguments.
func (s *Stub) Map(f func(in *Promise) any) *Promise { return sendMap(s.liveNode(), nil, f) }

// Dup returns another reference, released independently.
func (s *Stub) Dup() *Stub {
	n := s.liveNode()
	n.ref()
	return &Stub{node: n}
}

// Release releases the reference. Further calls do nothing.
func (s *Stub) Release() {
	if s != nil && s.released.CompareAndSwap(false, true) {
		s.node.unref()
	}
}

// OnBroken registers f to be called once, with the reason, when the stub's target cannot be reached any more.
func (s *Stub) OnBroken(f func(error)) {
	s.liveNode().onBroken(func(err error) { guarded(func() { f(err) }) })
}

// guarded calls a program's callback and recovers its panics.
func guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			slog.Default().Error("a callback panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// Object returns the object behind the stub if it is known to be one of this process, else nil, so that a server can
// recognize its own object when a peer passes it back.
func (s *Stub) Object() Object {
	if l, ok := shortcut(s.liveNode()).(*localNode); ok {
		return l.obj
	}
	return nil
}

// Promise is the result of a call that may not have arrived yet. Calls may be pipelined on it at once. Await asks for it;
// a result that is never awaited is never sent. Release it once: before its result has arrived that cancels the call.
type Promise struct {
	node     node
	path     []string
	borrowed bool
	released atomic.Bool
	fetched  atomic.Pointer[fetchedNode] // the node of path, once it was asked for
}

// fetchedNode is the node that a promise of a property has asked for.
type fetchedNode struct{ n node }

func (p *Promise) liveNode() node {
	if p == nil || p.released.Load() {
		return releasedNode
	}
	return p.node
}

func (p *Promise) transfer(move bool) *Promise {
	if move && !p.borrowed {
		if p.released.CompareAndSwap(false, true) {
			return &Promise{node: p.node, path: p.path, borrowed: true}
		}
		releasedNode.ref()
		return &Promise{node: releasedNode, borrowed: true}
	}
	n := p.liveNode()
	n.ref()
	return &Promise{node: n, path: p.path, borrowed: true}
}

// promiseRef is a promise owned by a payload.
type promiseRef struct{ p *Promise }

func (r promiseRef) drop() {
	if r.p.released.CompareAndSwap(false, true) {
		r.p.node.unref()
	}
}

func (r promiseRef) refersTo() node { return r.p.node }

// Call calls a method of the result, as Stub.Call does.
func (p *Promise) Call(ctx context.Context, method string, args ...any) *Promise {
	path := p.path
	if method != "" {
		path = append(path[:len(path):len(path)], method)
	}
	return callNode(ctx, p.liveNode(), path, args)
}

// Get reads a property of the result.
func (p *Promise) Get(path ...string) *Promise {
	n := p.liveNode()
	n.ref()
	return newGet(n, expr.JoinPath(p.path, path))
}

// Map runs f for each element of the result, where it is.
func (p *Promise) Map(f func(in *Promise) any) *Promise { return sendMap(p.liveNode(), p.path, f) }

// target returns the promise's node: its own or, for a property, one that is asked for once.
func (p *Promise) target() node {
	n := p.liveNode()
	if len(p.path) == 0 || n == node(releasedNode) {
		return n
	}
	if g := p.fetched.Load(); g != nil {
		return g.n
	}
	g := &fetchedNode{n.get(via{}, p.path)}
	if !p.fetched.CompareAndSwap(nil, g) {
		g.n.unref()
		return p.fetched.Load().n
	}
	if p.released.Load() { // released meanwhile
		p.dropFetched()
		return releasedNode
	}
	return g.n
}

func (p *Promise) dropFetched() {
	if g := p.fetched.Swap(&fetchedNode{releasedNode}); g != nil && g.n != node(releasedNode) {
		g.n.unref()
	}
}

// Await waits for the result: a value as the package comment lists them, or the peer's *Error, or *BrokenError. Stubs
// in the value live as long as the promise: use Dup for those that are to outlive it. It may be called again, and returns
// the same value, which must not be changed.
func (p *Promise) Await(ctx context.Context) (any, error) {
	n := p.target()
	for {
		var f *future
		switch t := n.(type) {
		case *future:
			f = t
		case *importNode:
			if !t.promise {
				return p.awaitAny(ctx)
			}
			t.request()
			f = &t.future
		default:
			return p.awaitAny(ctx)
		}
		if wait := f.wait(); wait != nil {
			select {
			case <-wait:
			case <-ctx.Done():
				if !f.reached(stateResolved) {
					return nil, ctx.Err()
				}
			}
		}
		switch {
		case f.err != nil:
			return nil, f.err
		case f.next != nil:
			n = f.next
		case len(f.val.promises) > 0:
			return p.awaitAny(ctx)
		default:
			return f.val.value, nil
		}
	}
}

// outcome is the result of a promise.
type outcome struct {
	v   any
	err error
}

// awaitAny is Await for a result that takes several steps.
func (p *Promise) awaitAny(ctx context.Context) (any, error) {
	result := make(chan outcome, 1)
	var over atomic.Bool
	defer over.Store(true)
	p.then(func(v any, err error) { result <- outcome{v, err} }, &over)
	select {
	case o := <-result:
		return o.v, o.err
	case <-ctx.Done():
		select {
		case o := <-result:
			return o.v, o.err
		default:
		}
		return nil, ctx.Err()
	}
}

// Then calls f with the result, on the goroutine that resolves it: f must not block. If the promise is released first,
// f gets an error, or the result if it arrives earlier.
func (p *Promise) Then(f func(v any, err error)) {
	p.then(func(v any, err error) { guarded(func() { f(v, err) }) }, nil)
}

func (p *Promise) then(f func(v any, err error), over *atomic.Bool) {
	p.target().pull(func(q *payload, err error) {
		if err != nil {
			f(nil, err)
			return
		}
		q.whenSettled(f, over)
	}, over)
}

// Stub returns a reference to the result, to call it and to pass it on before it has arrived.
func (p *Promise) Stub() *Stub {
	n := p.target()
	n.ref()
	return &Stub{node: n}
}

// Release releases the promise, and with it the stubs in its value. Further calls do nothing.
func (p *Promise) Release() {
	if p != nil && p.released.CompareAndSwap(false, true) {
		p.node.unref()
		if len(p.path) > 0 {
			p.dropFetched()
		}
	}
}

// NewPromise returns a promise and the function that resolves it, to return or pass before its value is known. The first
// resolution counts. References in v are taken over.
func NewPromise() (p *Promise, resolve func(v any, err error)) {
	f := newFuture()
	f.ref() // resolve's own
	var once atomic.Bool
	return &Promise{node: f}, func(v any, err error) {
		if !once.CompareAndSwap(false, true) {
			return
		}
		var q *payload
		if err == nil {
			q, err = copyInResult(v, nil)
		}
		f.settle(q, err)
		f.unref()
	}
}
