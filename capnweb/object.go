// Objects that peers call, their nodes, and each call of one, from its delivery to its answer.

package capnweb

import (
	"context"
	"log/slog"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// Object is something of this side that a peer may reference and call. Serve is called once for each call, in the order of
// their arrival, and of all calls over one connection never two at a time: it must not block. Work that blocks goes to
// Call.Go; to answer later, keep the Call. Every call is answered once, by Return or Fail; an unanswered one stays
// until its caller cancels it, or the connection ends. A panic is answered as an internal error.
//
// An Object that is a Releaser is notified when it is not referenced any more. One that is a Getter has properties.
type Object interface{ Serve(c *Call) }

// Releaser is notified when the last reference to an object is released: on the goroutine that released it. It must not
// block. However often an object was exported, Release is called once, and again only if it was exported again afterwards.
// That holds for pointers; for any other type each export is counted by itself.
type Releaser interface{ Release() }

// Getter is an object with properties besides its methods. Get is called like Serve and must not block; ok false is
// undefined. Stubs and promises in the value stay the object's: the peer gets its own references. Without it, reading a
// property of a method's name returns a stub of that method.
type Getter interface {
	Get(name string) (value any, ok bool)
}

// localNode is an object of this process.
type localNode struct {
	obj        Object
	refs       atomic.Int32
	registered bool      // in releasers
	pending    callQueue // of an Orderer
}

// releasers has the nodes of objects that are Releasers, so that each has only one.
var releasers struct {
	mu    sync.Mutex
	nodes map[Object]*localNode
}

// newLocal returns a reference to the node of an object.
func newLocal(obj Object) *localNode {
	_, wants := obj.(Releaser)
	if wants && reflect.TypeOf(obj).Kind() != reflect.Pointer {
		wants = false
	}
	if !wants {
		n := &localNode{obj: obj}
		n.refs.Store(1)
		return n
	}
	releasers.mu.Lock()
	defer releasers.mu.Unlock()
	n := releasers.nodes[obj]
	if n == nil {
		n = &localNode{obj: obj, registered: true}
		if releasers.nodes == nil {
			releasers.nodes = make(map[Object]*localNode)
		}
		releasers.nodes[obj] = n
	}
	n.refs.Add(1)
	return n
}

func (n *localNode) ref() { n.refs.Add(1) }

func (n *localNode) unref() {
	k := n.refs.Add(-1)
	if k < 0 {
		panic("capnweb: a reference was given up twice")
	}
	if k > 0 {
		return
	}
	if n.registered {
		releasers.mu.Lock()
		gone := n.refs.Load() == 0 && releasers.nodes[n.obj] == n
		if gone {
			delete(releasers.nodes, n.obj)
		}
		releasers.mu.Unlock()
		if !gone {
			return
		}
	}
	if r, ok := n.obj.(Releaser); ok {
		defer func() {
			if p := recover(); p != nil {
				slog.Default().Error("a Release panicked", "panic", p, "stack", string(debug.Stack()))
			}
		}()
		r.Release()
	}
}

func (n *localNode) call(on via, path []string, args *payload) node {
	for _, name := range path {
		if expr.IsReserved(name) {
			args.release()
			return newError(notAFunction(path))
		}
	}
	if _, ok := n.obj.(*function); ok && len(path) > 0 {
		args.release()
		return newError(notAFunction(path))
	}
	if len(path) > 1 {
		if _, ok := n.obj.(Getter); ok {
			r := newFuture()
			r.ref()
			n.ref()
			on.run(peerconn.Func(func() {
				r.resolve(nil, n.callProperty(via{c: on.c, direct: true}, path, args), nil)
				r.unref()
				n.unref()
			}))
			return r
		}
	}
	return n.callObject(on, path, args)
}

// callProperty calls a method of a property's value.
func (n *localNode) callProperty(on via, path []string, args *payload) node {
	v, ok, err := n.property(on, path[0])
	if err != nil {
		args.release()
		return newError(err)
	}
	if !ok {
		return n.callObject(on, path, args)
	}
	defer v.unref()
	return v.call(on, path[1:], args)
}

func (n *localNode) callObject(on via, path []string, args *payload) node {
	c := &Call{node: n, via: on.c, path: path, args: args, result: newFuture()}
	n.ref()
	c.result.owner = c
	if len(args.promises) == 0 {
		c.argValues, _ = args.value.([]any)
	}
	inLine := keepsOrder(n.obj) && n.pending.enqueue(c)
	if len(args.promises) == 0 && !inLine {
		on.run((*callTask)(c))
		return c.result
	}
	c.mu.Lock()
	c.watch()
	c.mu.Unlock()
	if len(args.promises) == 0 {
		return c.result
	}
	args.whenSettled(func(v any, err error) {
		c.argValues, _ = v.([]any)
		if inLine {
			n.pending.argsSettled(c, err)
			return
		}
		if err != nil {
			c.answer(nil, err)
			return
		}
		via{c: on.c}.run((*callTask)(c))
	}, nil)
	return c.result
}

// property reads a property, on the delivery goroutine.
func (n *localNode) property(on via, name string) (v node, ok bool, err error) {
	g, is := n.obj.(Getter)
	if !is {
		return nil, false, nil
	}
	if on.c != nil && on.c.isDone() {
		return nil, false, on.c.brokenErr()
	}
	defer func() {
		if p := recover(); p != nil {
			err = panicError(logOf(on.c), "a Get panicked", p, "property", name)
		}
	}()
	x, ok := g.Get(name)
	if !ok {
		return nil, false, nil
	}
	p, err := copyInProperty(x, on.c)
	if err != nil {
		return nil, false, err
	}
	return newValue(p), true, nil
}

func (n *localNode) get(on via, path []string) node {
	if len(path) == 0 {
		n.ref()
		return n
	}
	for _, name := range path {
		if expr.IsReserved(name) {
			return newValue(&payload{value: Undefined{}})
		}
	}
	if _, ok := n.obj.(*function); ok {
		return newValue(&payload{value: Undefined{}}) // it has no properties of its own
	}
	if _, ok := n.obj.(Getter); !ok {
		n.ref()
		m := &methodNode{on: n, path: path}
		m.refs.Store(1)
		return newValue(stubPayload(m))
	}
	r := newFuture()
	r.ref()
	n.ref()
	on.run(peerconn.Func(func() {
		on := via{c: on.c, direct: true}
		v, ok, err := n.property(on, path[0])
		switch {
		case err != nil:
			r.resolve(nil, nil, err)
		case !ok && len(path) > 1:
			r.resolve(nil, nil, TypeErrorf("cannot read a property of undefined"))
		case !ok:
			r.resolve(&payload{value: Undefined{}}, nil, nil)
		default:
			r.resolve(nil, v.get(on, path[1:]), nil)
			v.unref()
		}
		r.unref()
		n.unref()
	}))
	return r
}

func (n *localNode) remap(on via, path []string, captures []node, m *mapProgram) node {
	if len(path) > 0 {
		v := n.get(on, path)
		defer v.unref()
		return v.remap(on, nil, captures, m)
	}
	n.ref()
	p := stubPayload(n)
	defer p.release()
	return m.apply(on, p.value, p, captures)
}

func (n *localNode) pull(f func(*payload, error), _ *atomic.Bool) { f(n.self(), nil) }

// self returns the object as a value. It owns nothing: the caller of pull keeps the node.
func (n *localNode) self() *payload { return &payload{value: &Stub{node: n, borrowed: true}} }

func (n *localNode) onBroken(func(error)) {}

// stubPayload returns a payload that is a stub of n, whose reference it takes over.
func stubPayload(n node) *payload {
	s := &Stub{node: n, borrowed: true}
	return &payload{value: s, refs: []ownedRef{stubRef{s}}}
}

func logOf(c *Conn) *slog.Logger {
	if c == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.log
}

// Call is one call of an Object. Methods may be called from any goroutine.
type Call struct {
	node      *localNode
	via       *Conn
	path      []string
	args      *payload
	argValues []any
	result    *future // the answer; a reference to it does not keep the call

	answered  atomic.Bool
	queued    atomic.Bool // waits in the callQueue of an Orderer
	mu        sync.Mutex
	ctx       context.Context // nil until Context is called
	cancel    context.CancelFunc
	abandoned bool // nobody waits for the answer any more
	watched   bool // registered with the connection
}

// Method returns the name that was called; empty when the object itself was called as a function.
func (c *Call) Method() string {
	if len(c.path) == 0 {
		return ""
	}
	return c.path[len(c.path)-1]
}

// Path returns the whole path that was called, Method its last element: properties of properties have more than one.
func (c *Call) Path() []string { return c.path }

// Args returns the arguments: values as the package comment lists them, every promise among them resolved. They may be
// shared and must not be changed. Stubs in them are released when the call is answered: use Dup for those to keep.
func (c *Call) Args() []any { return c.argValues }

// Context returns a context that ends when the call is answered, its result is released by the peer before that, or the
// connection ends.
func (c *Call) Context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil {
		c.ctx, c.cancel = context.WithCancel(context.Background())
		if c.abandoned || c.answered.Load() || (c.via != nil && c.via.isDone()) {
			c.cancel()
		} else {
			c.watch()
		}
	}
	return c.ctx
}

// Conn returns the connection the call came over; nil for a call from within this process.
func (c *Call) Conn() *Conn { return c.via }

// Go runs f on a goroutine of its own; calls that arrive later do not wait for it. A panic in f is answered as an
// internal error.
func (c *Call) Go(f func(ctx context.Context)) {
	ctx := c.Context()
	run := func() {
		defer c.recover()
		f(ctx)
	}
	if c.via == nil {
		go run()
		return
	}
	if !c.via.loop.Spawn(run) {
		c.answer(nil, c.via.brokenErr())
	}
}

// Return answers with v, which may hold stubs, promises, objects, functions and streams: they are taken over.
// A value that cannot be sent is answered as a TypeError. Only the first answer counts.
func (c *Call) Return(v any) {
	switch v.(type) {
	case nil, bool, string, float64, Undefined:
		p := payload{value: v}
		if s, ok := v.(string); ok {
			p.size = len(s)
		}
		c.answer(&p, nil)
		return
	}
	p, err := copyInResult(v, c.via)
	if err != nil {
		c.answer(nil, err)
		return
	}
	c.answer(p, nil)
}

// Fail answers with an error: an *Error unchanged, others as Config.Redact returns.
func (c *Call) Fail(err error) {
	if err == nil {
		err = errInternal
	}
	c.answer(nil, err)
}

// answer answers the call, taking p over.
func (c *Call) answer(p *payload, err error) {
	if !c.answered.CompareAndSwap(false, true) {
		p.release()
		return
	}
	c.endContext()
	if p != nil {
		if over := (via{c: c.via}).chargeHeldBytes(c.result, p.cost(), p.cost()); over != nil {
			p.release()
			p, err = nil, over
		}
	}
	c.result.settle(p, err)
	if c.result.refs.Load() <= 0 { // nobody waits: it is not kept
		c.result.free()
	}
	c.releaseArgs()
}

// detachArgs transfers the arguments to the caller, to be released in place of the call, if it is not answered yet.
func (c *Call) detachArgs() *payload {
	c.mu.Lock()
	defer c.mu.Unlock()
	args := c.args
	c.args = nil
	return args
}

// releaseArgs releases what the call keeps until its answer.
func (c *Call) releaseArgs() {
	c.detachArgs().release()
	if c.queued.Load() {
		c.node.pending.remove(c)
	}
	c.node.unref()
}

// onAbandoned is called when nobody waits for the answer any more.
func (c *Call) onAbandoned() { c.endContext() }

// watch registers the call to be ended with the connection. c.mu is held.
func (c *Call) watch() {
	if c.via != nil && !c.watched && !c.answered.Load() {
		c.watched = true
		c.via.watchCall(c)
	}
}

func (c *Call) endContext() {
	c.mu.Lock()
	c.abandoned = true
	cancel, watched := c.cancel, c.watched
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if watched && c.answered.Load() {
		c.via.unwatchCall(c)
	}
}

// onConnEnd is called when the connection has ended.
func (c *Call) onConnEnd() {
	c.mu.Lock()
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// deliver passes the call to its object, on the delivery goroutine.
func (c *Call) deliver() {
	defer c.recover()
	if c.via != nil && c.via.isDone() {
		c.answer(nil, c.via.brokenErr())
		return
	}
	c.node.obj.Serve(c)
	if !c.answered.Load() {
		c.mu.Lock()
		c.watch()
		c.mu.Unlock()
		if c.answered.Load() { // meanwhile
			c.endContext()
		}
	}
}

func (c *Call) recover() {
	if r := recover(); r != nil {
		c.answer(nil, panicError(logOf(c.via), "a handler panicked", r, "method", c.Method()))
	}
}
