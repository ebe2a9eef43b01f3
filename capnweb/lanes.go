// lanes: calls and reads that wait until it is known what a promise comes to, each connection's in their order.

package capnweb

import (
	"slices"
	"sync/atomic"
)

// lanes is what waits in a future, by the connection over which it came. The future's lock guards it.
type lanes struct {
	of      map[*Conn][]*queued // once the future is known, those that are at it
	waiting int                 // about how many are queued
	sweep   int                 // and how many have to be before they are looked through
}

// queued is something that waits in f. A call is done whether anybody holds what it will come to or not; a read is over
// when nobody does.
type queued struct {
	f, r  *future
	reads bool
	over  atomic.Bool
	do    func(f *future, on via) node // who sets over has it
}

// finish does it with what f is, or with an error in its place.
func (q *queued) finish(is *future, on via) {
	if !q.over.CompareAndSwap(false, true) {
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

// forgotten is told that nobody holds what is read any more.
func (q *queued) forgotten() {
	if q.over.CompareAndSwap(false, true) {
		q.do = nil
		q.r.resolve(nil, nil, errGivenUp)
		q.f.unref()
	}
}

// behind gives what do makes of the future: if that is not known, or known and something that came over the same
// connection still waits, a promise of what it will make of it, behind that, on the delivery goroutine.
func (f *future) behind(on via, reads bool, do func(f *future, on via) node) node {
	q := &queued{f: f, r: newFuture(), reads: reads, do: do}
	q.r.waits.Store(f)
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
func (f *future) enqueue(c *Conn, q *queued) *future {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, at := f.lanes.of[c]; f.is(known) && !at {
		return f
	}
	if !q.reads && c != nil && !c.waitIn(f) {
		return newError(c.brokenErr())
	}
	if f.lanes.waiting >= max(f.lanes.sweep, leastSwept) {
		f.lanes.dropOver(f.is(known))
	}
	if f.lanes.of == nil {
		f.lanes.of = make(map[*Conn][]*queued)
	}
	f.lanes.of[c] = append(f.lanes.of[c], q)
	f.lanes.waiting++
	return nil
}

// dropOver takes out what nobody waits for any more, so that there is as much as there is of others, about. The lanes
// themselves stay if the future is known: they are being worked off.
func (l *lanes) dropOver(known bool) {
	l.waiting = 0
	for c, lane := range l.of {
		lane = slices.DeleteFunc(lane, func(q *queued) bool { return q.over.Load() })
		if l.of[c] = lane; len(lane) == 0 && !known {
			delete(l.of, c)
		}
		l.waiting += len(lane)
	}
	l.sweep = 2 * l.waiting
}

// letGo does what waited and came over c, in order, on its delivery goroutine: what another connection's handlers do is
// nothing that it should wait for. Once the connection has ended its calls fail, as everything of it does; what reads,
// others may have been given.
func (f *future) letGo(c *Conn) {
	on := via{c: c, direct: true}
	for {
		f.mu.Lock()
		lane := f.lanes.of[c]
		if len(lane) == 0 {
			if delete(f.lanes.of, c); len(f.lanes.of) == 0 {
				f.state.Store(ready)
			}
			f.mu.Unlock()
			if c != nil {
				c.waitNoMore(f)
			}
			return
		}
		f.lanes.of[c] = nil // what comes meanwhile
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
	if f.is(known) { // letGo does it
		f.mu.Unlock()
		return
	}
	lane := f.lanes.of[c]
	delete(f.lanes.of, c)
	var calls []*queued
	for _, q := range lane {
		if q.reads {
			f.lanes.of[nil] = append(f.lanes.of[nil], q)
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

// waitIn notes that a call waits in f; false once the connection has ended.
func (c *Conn) waitIn(f *future) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.waitsIn[f] = struct{}{}
	}
	return c.ended == nil
}

// waitNoMore notes that none does.
func (c *Conn) waitNoMore(f *future) {
	c.mu.Lock()
	delete(c.waitsIn, f)
	c.mu.Unlock()
}
