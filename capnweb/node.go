// Nodes: what stubs and promises point at. They are counted; a reference in a table, a queue or a value is a count of
// its own.

package capnweb

import (
	"sync/atomic"

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
