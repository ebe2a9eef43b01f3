// Orderer: objects whose calls keep their order even where one waits for promises in its arguments.

package capnweb

import (
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// Orderer is an Object to which calls are delivered in the order of their arrival also where one of them waits for
// promises in its arguments: later ones wait too. For any other object calls are delivered when they are complete. KeepsOrder
// is called for each call and must always return the same.
type Orderer interface{ KeepsOrder() bool }

func keepsOrder(obj Object) bool {
	o, ok := obj.(Orderer)
	return ok && o.KeepsOrder()
}

// callQueue holds the calls of an object that wait for one before them, or for their own arguments.
type callQueue struct {
	mu         sync.Mutex
	calls      []*queuedCall
	dispatched int // queued for delivery, and not delivered yet
}

// queuedCall is a call in a callQueue.
type queuedCall struct {
	c     *Call
	err   error // the error of an argument
	ready bool
}

// enqueue appends a call if others wait. It is false for a call that need not wait, and is delivered like any other.
func (l *callQueue) enqueue(c *Call) bool {
	l.mu.Lock()
	waits := len(c.args.promises) > 0
	if !waits && len(l.calls)+l.dispatched == 0 {
		l.mu.Unlock()
		return false
	}
	c.queued.Store(true)
	l.calls = append(l.calls, &queuedCall{c: c, ready: !waits})
	enlisted := l.advance()
	l.mu.Unlock()
	wakeConns(enlisted)
	return true
}

// remove removes a call that was answered before its turn: its connection has ended.
func (l *callQueue) remove(c *Call) {
	l.mu.Lock()
	l.calls = slices.DeleteFunc(l.calls, func(one *queuedCall) bool { return one.c == c })
	enlisted := l.advance()
	l.mu.Unlock()
	wakeConns(enlisted)
}

// argsSettled records that a call's arguments are resolved, or the error of one.
func (l *callQueue) argsSettled(c *Call, err error) {
	l.mu.Lock()
	for _, one := range l.calls {
		if one.c == c {
			one.err, one.ready = err, true
		}
	}
	enlisted := l.advance()
	l.mu.Unlock()
	wakeConns(enlisted)
}

// advance queues calls for delivery that need not wait any more, and returns their connections. mu is held, so that two
// callers do not reorder them.
func (l *callQueue) advance() (enlisted []*Conn) {
	for len(l.calls) > 0 && l.calls[0].ready {
		next := l.calls[0]
		l.calls = l.calls[1:]
		l.dispatched++
		next.c.queued.Store(false)
		enlisted = append(enlisted, next.c.via)
		via{c: next.c.via}.enqueue(peerconn.Func(func() {
			if next.err != nil {
				next.c.answer(nil, next.err)
			} else {
				next.c.deliver()
			}
			l.mu.Lock()
			l.dispatched--
			l.mu.Unlock()
		}))
	}
	return enlisted
}

// wakeConns starts delivery over the connections for which calls were queued.
func wakeConns(conns []*Conn) {
	for _, c := range conns {
		c.wakeDelivery()
	}
}
