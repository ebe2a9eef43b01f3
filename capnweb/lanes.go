// lanes: calls and reads that wait until it is known what a promise comes to, each connection's in their order.

package capnweb

import (
	"slices"
	"sync/atomic"
)

// lanes is what waits in a future, by the connection over which it came. The future's lock guards it.
type lanes struct {
	of      map[*Conn][]queued // once the future is known, those that are at it
	waiting int                // how many are queued until then
	sweep   int                // and how many have to be before they are looked through
}

// queued is something that waits in a future.
type queued struct {
	do   func(f *future, on via) node
	r    *future // what it will come to
	read *read   // nil for what does more than read, a call: that is done whether anybody holds r or not
}

// read is a read of a property of f, which nobody waits for any more when nobody holds what it will come to.
type read struct {
	f, r *future
	over atomic.Bool
}

func (g *read) forgotten() {
	if g.over.CompareAndSwap(false, true) {
		g.r.resolve(nil, nil, errGivenUp)
		g.f.unref()
	}
}

// behind gives what do makes of the future: if that is not known, or known and something that came over the same
// connection still waits, a promise of what it will make of it, behind that, on the delivery goroutine.
func (f *future) behind(on via, reads bool, do func(f *future, on via) node) node {
	q := queued{do: do, r: newFuture()}
	q.r.waits.Store(f)
	f.ref()
	if reads {
		q.read = &read{f: f, r: q.r}
		q.r.owner = q.read
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
func (f *future) enqueue(c *Conn, q queued) *future {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, at := f.lanes.of[c]; f.is(known) && !at {
		return f
	}
	if q.read == nil && c != nil && !c.waitIn(f) {
		return newError(c.brokenErr())
	}
	if f.lanes.waiting >= max(f.lanes.sweep, leastSwept) && !f.is(known) {
		f.lanes.dropReads()
	}
	if f.lanes.of == nil {
		f.lanes.of = make(map[*Conn][]queued)
	}
	f.lanes.of[c] = append(f.lanes.of[c], q)
	f.lanes.waiting++
	return nil
}

// dropReads takes out what nobody waits for any more, so that there is as much as there is of others, about.
func (l *lanes) dropReads() {
	l.waiting = 0
	for c, lane := range l.of {
		lane = slices.DeleteFunc(lane, func(q queued) bool { return q.read != nil && q.read.over.Load() })
		if l.of[c] = lane; len(lane) == 0 {
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
			case ended && q.read != nil:
				f.finish(q, f, via{})
			case ended:
				f.finish(q, newError(c.brokenErr()), on)
			default:
				f.finish(q, f, on)
			}
		}
	}
}

// finish does what waited with what f is, or with an error in its place.
func (f *future) finish(q queued, is *future, on via) {
	if q.read == nil {
		defer q.r.unref()
	} else if !q.read.over.CompareAndSwap(false, true) {
		return
	}
	q.r.resolve(nil, q.do(is, on), nil)
	f.unref()
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
	var calls []queued
	for _, q := range lane {
		if q.read == nil {
			calls = append(calls, q)
		} else {
			f.lanes.of[nil] = append(f.lanes.of[nil], q)
		}
	}
	f.lanes.waiting -= len(calls)
	f.mu.Unlock()
	for _, q := range calls {
		f.finish(q, newError(why), via{})
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
