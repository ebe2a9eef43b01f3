// pathNode: a property that is read when its value is used.

package capnweb

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
)

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
