// Order: calls and reads that wait for a pending future, each connection's in their order, and calls of an Orderer that wait for
// one before them.

package capnweb

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// lanes holds the operations that wait in a future, by the connection over which they came. The future's lock guards it.
type lanes struct {
	byConn  map[*Conn][]*waitingOp // once the future is resolved, those being drained
	waiting int                    // about how many are queued
	sweepAt int                    // how many make enqueue sweep abandoned ones
}

// waitingOp is an operation that waits in f. A call is made whether its result is referenced or not; a read is dropped when
// its result is not referenced any more.
type waitingOp struct {
	f, r  *future
	reads bool
	done  atomic.Bool
	do    func(f *future, on via) node // the goroutine that sets done runs it
}

// finish runs the operation on f's resolution, or on an error in its place.
func (q *waitingOp) finish(is *future, on via) {
	if !q.done.CompareAndSwap(false, true) {
		return
	}
	do := q.do
	q.do = nil
	q.r.resolve(nil, do(is, on), nil)
	if !q.reads {
		q.r.unref()
	}
	q.f.unref()
}

// onAbandoned is called when a read's result is not referenced any more.
func (q *waitingOp) onAbandoned() {
	if q.done.CompareAndSwap(false, true) {
		q.do = nil
		q.r.resolve(nil, nil, errReleased)
		q.f.unref()
	}
}

// enqueueBehind returns do's result for the future: if that is pending, or an earlier operation of the same connection still
// waits, a promise of the result, behind that, on the delivery goroutine.
func (f *future) enqueueBehind(on via, reads bool, do func(f *future, on via) node) node {
	q := &waitingOp{f: f, r: newFuture(), reads: reads, do: do}
	q.r.waitsOn.Store(f)
	f.ref()
	if reads {
		q.r.owner = q
	} else {
		q.r.ref()
	}
	if is := f.enqueue(on.c, q); is != nil {
		n := do(is, on)
		f.unref()
		return n
	}
	return q.r
}

// enqueue queues q, or returns the node for which it need not wait: the future, or an error.
func (f *future) enqueue(c *Conn, q *waitingOp) *future {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, at := f.lanes.byConn[c]; f.reached(stateResolved) && !at {
		return f
	}
	if !q.reads && c != nil && !c.trackWaiting(f) {
		return newError(c.brokenErr())
	}
	if f.lanes.waiting >= max(f.lanes.sweepAt, minSweep) {
		f.lanes.dropDone(f.reached(stateResolved))
	}
	if f.lanes.byConn == nil {
		f.lanes.byConn = make(map[*Conn][]*waitingOp)
	}
	f.lanes.byConn[c] = append(f.lanes.byConn[c], q)
	f.lanes.waiting++
	return nil
}

// dropDone removes operations that are done, so that they are about as many as the others at most. The lanes themselves stay
// if the future is resolved: they are being drained.
func (l *lanes) dropDone(known bool) {
	l.waiting = 0
	for c, lane := range l.byConn {
		lane = slices.DeleteFunc(lane, func(q *waitingOp) bool { return q.done.Load() })
		if l.byConn[c] = lane; len(lane) == 0 && !known {
			delete(l.byConn, c)
		}
		l.waiting += len(lane)
	}
	l.sweepAt = 2 * l.waiting
}

// drainLane runs the operations that came over c, in order, on its delivery goroutine: they must not wait for another
// connection's handlers. Once the connection has ended its calls fail; reads go on, since their results may have been passed
// to others.
func (f *future) drainLane(c *Conn) {
	on := via{c: c, direct: true}
	for {
		f.mu.Lock()
		lane := f.lanes.byConn[c]
		if len(lane) == 0 {
			if delete(f.lanes.byConn, c); len(f.lanes.byConn) == 0 {
				f.state.Store(stateDrained)
			}
			f.mu.Unlock()
			if c != nil {
				c.untrackWaiting(f)
			}
			return
		}
		f.lanes.byConn[c] = nil // those that come meanwhile
		f.mu.Unlock()
		for _, q := range lane {
			switch ended := c != nil && c.isDone(); {
			case ended && q.reads:
				q.finish(f, via{})
			case ended:
				q.finish(newError(c.brokenErr()), on)
			default:
				q.finish(f, on)
			}
		}
	}
}

// failCalls is called when a connection has ended.
func (f *future) failCalls(c *Conn, why error) {
	f.mu.Lock()
	if f.reached(stateResolved) { // drainLane does that
		f.mu.Unlock()
		return
	}
	lane := f.lanes.byConn[c]
	delete(f.lanes.byConn, c)
	var calls []*waitingOp
	for _, q := range lane {
		if q.reads {
			f.lanes.byConn[nil] = append(f.lanes.byConn[nil], q)
		} else {
			calls = append(calls, q)
		}
	}
	f.lanes.waiting -= len(calls)
	f.mu.Unlock()
	for _, q := range calls {
		q.finish(newError(why), via{})
	}
}

// trackWaiting records that a call waits in f; false once the connection has ended.
func (c *Conn) trackWaiting(f *future) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.waitingFutures[f] = struct{}{}
	}
	return c.ended == nil
}

// untrackWaiting records that no call waits in f.
func (c *Conn) untrackWaiting(f *future) {
	c.mu.Lock()
	delete(c.waitingFutures, f)
	c.mu.Unlock()
}

// waiters is a list of functions to be called later, each unless it is cancelled: cancelled ones are swept out as the list
// grows, so that about half of it at most is cancelled. The zero value is an empty list; the user guards it with a lock.
type waiters[F any] struct {
	list    []waiter[F]
	sweepAt int // length at which the list is swept next
}

type waiter[F any] struct {
	f        F
	canceled *atomic.Bool // nil: cannot be cancelled
}

// minSweep is the length below which a list is not swept.
const minSweep = 16

func (w *waiters[F]) add(f F, over *atomic.Bool) {
	if len(w.list) >= max(w.sweepAt, minSweep) {
		w.list = slices.DeleteFunc(w.list, func(one waiter[F]) bool { return one.canceled != nil && one.canceled.Load() })
		w.sweepAt = 2 * len(w.list)
	}
	w.list = append(w.list, waiter[F]{f, over})
}

// drain returns the list and empties it.
func (w *waiters[F]) drain() []waiter[F] {
	list := w.list
	w.list = nil
	return list
}

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
