// Nodes for objects of this process.

package capnweb

import (
	"log/slog"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

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

// methodNode is a method of an object, read as a value.
type methodNode struct {
	refs atomic.Int32
	on   node
	path []string
}

func (n *methodNode) ref() { n.refs.Add(1) }

func (n *methodNode) unref() {
	if n.refs.Add(-1) == 0 {
		n.on.unref()
	}
}

func (n *methodNode) call(on via, path []string, args *payload) node {
	return n.on.call(on, expr.JoinPath(n.path, path), args)
}

func (n *methodNode) get(on via, path []string) node {
	if len(path) == 0 {
		n.ref()
		return n
	}
	return newValue(&payload{value: Undefined{}}) // a function has no properties of its own
}

func (n *methodNode) remap(on via, path []string, captures []node, m *mapProgram) node {
	v := &payload{value: any(Undefined{})}
	if len(path) == 0 {
		n.ref()
		v = stubPayload(n)
	}
	defer v.release()
	return m.apply(on, v.value, v, captures)
}

func (n *methodNode) pull(f func(*payload, error), _ *atomic.Bool) {
	f(&payload{value: &Stub{node: n, borrowed: true}}, nil)
}

func (n *methodNode) onBroken(f func(error)) { n.on.onBroken(f) }

func logOf(c *Conn) *slog.Logger {
	if c == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.log
}
