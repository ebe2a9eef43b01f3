// lanes: calls and reads that wait until it is known what a promise comes to, each connection's in their order.

package capnweb

import (
	"slices"
	"sync/atomic"
)

// lanes is what waits in a future, by the connection over which it came. The future's lock guards it.
type lanes struct {
	byConn  map[*Conn][]*waitingOp // once the future is known, those that are at it
	waiting int                    // about how many are queued
	sweepAt int                    // and how many have to be before they are looked through
}

// waitingOp is something that waits in f. A call is done whether anybody holds what it will come to or not; a read is over
// when nobody does.
type waitingOp struct {
	f, r  *future
	reads bool
	done  atomic.Bool
	do    func(f *future, on via) node // who sets over has it
}

// finish does it with what f is, or with an error in its place.
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

// onAbandoned is told that nobody holds what is read any more.
func (q *waitingOp) onAbandoned() {
	if q.done.CompareAndSwap(false, true) {
		q.do = nil
		q.r.resolve(nil, nil, errReleased)
		q.f.unref()
	}
}

// enqueueBehind gives what do makes of the future: if that is not known, or known and something that came over the same
// connection still waits, a promise of what it will make of it, behind that, on the delivery goroutine.
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

// enqueue has q wait, or gives what it need not wait for: the future, or an error.
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

// dropDone takes out what nobody waits for any more, so that there is as much as there is of others, about. The lanes
// themselves stay if the future is known: they are being worked off.
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

// drainLane does what waited and came over c, in order, on its delivery goroutine: what another connection's handlers do is
// nothing that it should wait for. Once the connection has ended its calls fail, as everything of it does; what reads,
// others may have been given.
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
		f.lanes.byConn[c] = nil // what comes meanwhile
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

// failCalls is told that a connection has ended.
func (f *future) failCalls(c *Conn, why error) {
	f.mu.Lock()
	if f.reached(stateResolved) { // drainLane does it
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

// trackWaiting notes that a call waits in f; false once the connection has ended.
func (c *Conn) trackWaiting(f *future) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.waitingFutures[f] = struct{}{}
	}
	return c.ended == nil
}

// untrackWaiting notes that none does.
func (c *Conn) untrackWaiting(f *future) {
	c.mu.Lock()
	delete(c.waitingFutures, f)
	c.mu.Unlock()
}
