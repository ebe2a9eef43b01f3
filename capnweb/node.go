// Nodes: what stubs and promises point at, and the links between them. They are counted; a reference in a table, a queue or a value is
// a count of its own. A promise may resolve to another promise, but never, however indirectly, to itself.

package capnweb

import (
	"sync"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/serialqueue"
)

// node is an object of this process, an import, or a future. Its methods may be called from any goroutine, but never with a
// connection's lock held, for they may take one, and run code of the program.
type node interface {
	ref()
	unref()
	// call calls the target of path. It takes args over, and returns the result: a reference for the caller.
	call(on via, path []string, args *payload) node
	// get reads the target of path.
	get(on via, path []string) node
	// remap runs a program for each element of the target of path. It takes captures over.
	remap(on via, path []string, captures []node, m *mapProgram) node
	// pull calls f when the node is resolved: at once if it is, or on the goroutine that resolves it. The payload is the
	// node's: the caller keeps a reference for as long as it is used. Once over is set, if it is given, f need not be called.
	pull(f func(p *payload, err error), over *atomic.Bool)
	// onBroken registers f to be called when the node cannot be reached any more.
	onBroken(f func(error))
}

// via says which connection an operation came over, nil for the program itself, and when code of the program may run.
type via struct {
	c      *Conn
	direct bool             // at once: this goroutine is the delivery goroutine
	tasks  *[]peerconn.Task // soon: when the present message is in the tables
}

// callTask delivers a call.
type callTask Call

func (t *callTask) Run() { (*Call)(t).deliver() }

// run runs t on the delivery goroutine.
func (v via) run(t peerconn.Task) {
	switch {
	case v.direct:
		t.Run()
	case v.tasks != nil:
		*v.tasks = append(*v.tasks, t)
	default:
		v.enqueue(t)
		v.c.wakeDelivery()
	}
}

// enqueue queues t for the delivery goroutine; Conn.wakeDelivery starts it. It may be called with a future's lock held.
func (v via) enqueue(t peerconn.Task) {
	switch {
	case v.c == nil:
		detached.Post(t.Run)
	case !v.c.enqueueTask(t):
		detached.Post(func() { v.c.loop.RunTask(t) })
	}
}

// detached runs calls that the program makes on its own objects, and remaining work for connections that have ended.
var detached serialqueue.Queue

// shortcut follows resolved futures from a node, without taking references.
func shortcut(n node) node { return followTo(n, stateResolved) }

// followTo follows futures that have reached the state.
func followTo(n node, state uint32) node {
	for range 100 {
		f := futureOf(n)
		if f == nil || !f.reached(state) {
			return n
		}
		switch {
		case f.err != nil:
			return n
		case f.next != nil:
			n = f.next
		default:
			s, ok := f.val.value.(*Stub)
			if !ok {
				return n
			}
			n = s.node
		}
	}
	return n
}

func releaseNodes(nodes []node) {
	for _, n := range nodes {
		n.unref()
	}
}

type pathNode struct {
	refs    atomic.Int32
	on      node
	path    []string
	fetched atomic.Pointer[fetchedNode]
}

// newPath returns a pathNode, taking the reference to n over.
func newPath(n node, path []string) *pathNode {
	p := &pathNode{on: n, path: path}
	p.refs.Store(1)
	return p
}

func (n *pathNode) ref() { n.refs.Add(1) }

func (n *pathNode) unref() {
	if n.refs.Add(-1) == 0 {
		n.on.unref()
		if g := n.fetched.Load(); g != nil {
			g.n.unref()
		}
	}
}

// target asks for the property once.
func (n *pathNode) target(on via) node {
	if g := n.fetched.Load(); g != nil {
		return g.n
	}
	g := &fetchedNode{n.on.get(on, n.path)}
	if !n.fetched.CompareAndSwap(nil, g) {
		g.n.unref()
		return n.fetched.Load().n
	}
	return g.n
}

func (n *pathNode) call(on via, path []string, args *payload) node {
	return n.on.call(on, expr.JoinPath(n.path, path), args)
}

func (n *pathNode) get(on via, path []string) node { return n.on.get(on, expr.JoinPath(n.path, path)) }

func (n *pathNode) remap(on via, path []string, captures []node, m *mapProgram) node {
	return n.on.remap(on, expr.JoinPath(n.path, path), captures, m)
}

func (n *pathNode) pull(f func(*payload, error), over *atomic.Bool) { n.target(via{}).pull(f, over) }

func (n *pathNode) onBroken(f func(error)) { n.target(via{}).onBroken(f) }

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

// linkMu is held while a future is resolved to something that leads or refers to others, so that no two of them close a
// cycle together. Resolutions never change, so nothing else needs it.
var linkMu sync.Mutex

var errCycle = &Error{Name: "TypeError", Message: "a promise would be resolved with itself"}

// linkOf returns the node that a future leads to if it is resolved this way; nil for a value or an error.
func linkOf(p *payload, next node) node {
	if next != nil {
		return next
	}
	if p != nil {
		if s, ok := p.value.(*Stub); ok {
			return s.node
		}
	}
	return nil
}

// futureOf returns the future that a node is; nil if it is none.
func futureOf(n node) *future {
	switch t := n.(type) {
	case *future:
		return t
	case *importNode:
		return &t.future
	}
	return nil
}

// parentOf returns the node whose path or method a node is; nil if it is neither.
func parentOf(n node) node {
	switch t := n.(type) {
	case *pathNode:
		return t.on
	case *methodNode:
		return t.on
	}
	return nil
}

// nextLink returns the node that a node leads to next, or waits for; nil at the end.
func nextLink(n node) node {
	f := futureOf(n)
	switch {
	case f == nil:
		return parentOf(n)
	case !f.reached(stateBound):
		if on := f.waitsOn.Load(); on != nil {
			return on
		}
		return nil
	case f.err != nil:
		return nil
	}
	return linkOf(&f.val, f.next)
}

// leadsTo reports whether n leads to f, or waits for it. It reports true if the chain is too long to check. linkMu is held.
func leadsTo(n node, f *future) bool {
	for far := 0; n != nil; n = nextLink(n) {
		if far++; far > maxLinkedNodes {
			return true
		}
		if futureOf(n) == f {
			return true
		}
	}
	return false
}

const (
	// maxLinkedNodes is how many nodes are checked for a cycle.
	maxLinkedNodes = 10_000
	// maxLinkedReferences is how many references among them are: linkMu is held meanwhile, and blocks all other resolutions.
	maxLinkedReferences = 50_000
)

// refersBackTo reports whether the references of p, or next, lead by references in resolved values to f: then none of it
// would ever be released. It reports true if there are too many to check.
func refersBackTo(p *payload, next node, f *future) bool {
	seen := map[node]bool{}
	var todo []node
	if next != nil {
		todo = append(todo, next)
	}
	left := maxLinkedReferences
	if p != nil {
		todo = p.appendNodes(todo, &left)
	}
	for len(todo) > 0 && left > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[n] {
			continue
		}
		if seen[n] = true; len(seen) > maxLinkedNodes {
			return true
		}
		g := futureOf(n)
		switch {
		case g == f:
			return true
		case g == nil:
			if on := parentOf(n); on != nil {
				todo = append(todo, on)
			}
		case !g.reached(stateBound) || g.err != nil:
		case g.next != nil:
			todo = append(todo, g.next)
		default:
			todo = g.val.appendNodes(todo, &left)
		}
	}
	return left <= 0
}

// appendNodes appends the nodes of a payload's references, and counts them down from left. It appends nothing when they are
// too many.
func (p *payload) appendNodes(to []node, left *int) []node {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *left -= len(p.refs); *left <= 0 {
		return to
	}
	for _, r := range p.refs {
		if n := r.refersTo(); n != nil {
			to = append(to, n)
		}
	}
	return to
}

// markCaptured records that a value refers to n while it is pending.
func markCaptured(n node) {
	for n = followTo(n, stateBound); ; {
		f := futureOf(n)
		if f == nil {
			return
		}
		if f.captured.Store(true); !f.reached(stateBound) {
			return
		}
		// It was bound meanwhile, and the goroutine that did may not have seen it.
		if m := followTo(n, stateBound); m != n {
			n = m
		} else {
			return
		}
	}
}
