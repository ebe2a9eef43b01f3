// Nodes: what stubs and promises point at. They are counted; a reference in a table, a queue or a value is a count of
// its own.

package capnweb

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/internal/serialqueue"
)

// node is an object of this process, a thing of a peer, or what will be one. Its methods may be called from any
// goroutine, but never with a connection's lock held, for they may take one, and run code of the program.
type node interface {
	ref()
	unref()
	// call calls what path leads to. It takes args over, and gives the result: a reference for the caller.
	call(on via, path []string, args *payload) node
	// get reads what path leads to.
	get(on via, path []string) node
	// remap runs a program for each element of what path leads to. It takes captures over.
	remap(on via, path []string, captures []node, m *mapProgram) node
	// pull has f called when it is known what the node is: at once if it is, or on the goroutine that learns of it. The
	// payload is the node's: who pulls holds a reference for as long as it is used. Once over is set, if it is given,
	// f need not be called.
	pull(f func(p *payload, err error), over *atomic.Bool)
	// onBroken has f called when the node cannot be reached any more.
	onBroken(f func(error))
}

// via says which connection something came over, nil for the program itself, and when code of the program may run.
type via struct {
	c      *Conn
	direct bool       // at once: this goroutine is the one that delivers
	tasks  *taskBatch // soon: it will be when the message at hand is in the tables
}

// task is one thing to do on the delivery goroutine.
type task struct {
	call *Call // deliver it,
	f    func()
}

func (t task) run() {
	if t.call != nil {
		t.call.deliver()
	} else {
		t.f()
	}
}

// taskBatch is what comes of one message.
type taskBatch struct{ tasks []task }

// run has t run on the delivery goroutine.
func (v via) run(t task) {
	switch {
	case v.direct:
		t.run()
	case v.tasks != nil:
		v.tasks.tasks = append(v.tasks.tasks, t)
	default:
		v.enqueue(t)
		v.c.wakeDelivery()
	}
}

// enqueue has t run on the delivery goroutine, behind what is to be done there already, once Conn.wakeDelivery is called. It may be
// called with a future's lock held.
func (v via) enqueue(t task) {
	switch {
	case v.c == nil:
		detached.Post(t.run)
	case !v.c.enqueueTask(t):
		detached.Post(func() { v.c.runTask(t) })
	}
}

// detached runs calls that the program makes on its own objects, and what is left to do for connections that are gone.
var detached serialqueue.Queue

// shortcut follows what is known of where a node leads, without taking references.
func shortcut(n node) node { return followTo(n, stateResolved) }

// followTo goes on from futures that have come as far as that.
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
