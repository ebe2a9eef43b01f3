// promiseCap: a promise of this vat: of an object that a program will supply later (NewPromise), or of a result of a
// call that has not been sent to a peer. Calls on it wait in order.

package rpc

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/table"
)

// promiseCap holds calls back until it is resolved. They wait in lanes, one for each delivery goroutine they came on,
// and when the promise resolves each lane is flushed on its own goroutine, in its turn among the deliveries there:
// calls that come on it before then queue up behind, and only then is the peer notified (hooks), so that calls which it sends
// straight to the object come after both.
type promiseCap struct {
	refs    atomic.Int64
	target  atomic.Pointer[Ref]
	drained atomic.Bool // resolved, and no lane has anything waiting
	owner   *Promise    // the promise whose result it will be, of a call of this vat's,
	ans     *answer     // or of a peer's; nil both if a program made it

	mu        sync.Mutex
	lanes     map[*Conn]*lane // the nil key is for calls within the vat
	unflushed int             // lanes that are not flushed
}

// lane holds the calls that wait for a promise on one delivery goroutine.
type lane struct {
	queue    []*Call
	hooks    []hook
	flushed  bool
	keepOpen bool // stays although nothing waits in it: earlier calls may still wait elsewhere
}

// hook runs when the promise is resolved; export is the export it is for, if that may be released before.
type hook struct {
	run    func()
	export *export
}

func newPromiseCap() *promiseCap {
	p := new(promiseCap)
	p.refs.Store(1)
	return p
}

// newResultPromise makes the promise of a result of ans, which is not returned. The peer may have called that result before
// it passed us the promise; such calls wait for the answer itself and then for delivery, so the lane of the peer's connection
// exists from the beginning, for calls on the promise to come behind them. The connection's lock is held.
func (c *Conn) newResultPromise(ans *answer) *promiseCap {
	p := newPromiseCap()
	p.ans = ans
	p.lanes, p.unflushed = map[*Conn]*lane{c: {keepOpen: true}}, 1
	c.registerLaneLocked(p)
	return p
}

func (p *promiseCap) tryRef() bool { return tryInc(&p.refs) }

// tryRevive is tryRef for a promise whose last reference may be released: that does not matter until the promise has released
// its target.
func (p *promiseCap) tryRevive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refs.Load() == 0 && p.target.Load() != nil && p.unflushed == 0 {
		return false
	}
	p.refs.Add(1)
	return true
}

func (p *promiseCap) unref(c *Conn) {
	if p.refs.Add(-1) != 0 {
		return
	}
	if p.target.Load() != nil {
		p.releaseTarget(c)
	} else if p.owner != nil {
		p.owner.pipelinedDropped()
	} else if p.ans != nil {
		p.ans.call.conn.pipelinedDropped(p.ans)
	}
}

func (p *promiseCap) resolution() node {
	if t := p.target.Load(); t != nil {
		return t.node
	}
	return nil
}

// resolvedFor returns the target of the promise once nothing waits for that on a connection any more, else nil.
func (p *promiseCap) resolvedFor(via *Conn) *Ref {
	to := p.target.Load()
	if to == nil || p.drained.Load() {
		return to
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lanes[via]; l != nil && !l.flushed {
		return nil
	}
	return to
}

// send queues a call while the promise holds calls back; else it returns where the call must go.
func (p *promiseCap) send(call *Call, via *Conn) (next *Ref) {
	if p.drained.Load() {
		return p.target.Load()
	}
	p.mu.Lock()
	l, opened := p.laneFor(via)
	switch {
	case l == nil:
		next = p.target.Load()
	case len(l.queue) >= promiseQueueLimit:
		next = brokenRef(Overloadedf("%d calls wait for the promise to resolve", len(l.queue)))
	default:
		l.queue = append(l.queue, call)
	}
	p.mu.Unlock()
	if opened {
		via.registerLane(p)
	}
	if next != nil {
		return next
	}
	if !call.markWaiting(p) {
		p.failWaiting(call, errCanceled)
	} else if p.dependsOn(call) {
		p.failWaiting(call, errOwnResult)
	}
	return nil
}

var errOwnResult = Failedf("the call waits for its own result")

// dependsOn reports whether p is a result of call, or of a call that waits for it, directly or not: then neither could ever
// be answered. Of calls that begin to wait for one another at the same moment at least one detects it.
func (p *promiseCap) dependsOn(call *Call) bool {
	for range maxHops {
		by := p.resultOf()
		if by == nil || by == call {
			return by != nil
		}
		by.mu.Lock()
		p = by.waitsFor
		by.mu.Unlock()
		if p == nil {
			return false
		}
	}
	return false
}

// resultOf returns the call whose result p will be, while it is in this vat; nil if there is none.
func (p *promiseCap) resultOf() *Call {
	switch {
	case p.owner != nil:
		p.owner.mu.Lock()
		defer p.owner.mu.Unlock()
		return p.owner.call
	case p.ans != nil:
		return &p.ans.call
	}
	return nil
}

// failWaiting fails a call, if it waits here.
func (p *promiseCap) failWaiting(call *Call, why error) {
	waited := false
	p.mu.Lock()
	for _, l := range p.lanes {
		if i := slices.Index(l.queue, call); i >= 0 {
			l.queue, waited = slices.Delete(l.queue, i, i+1), true
		}
	}
	p.mu.Unlock()
	if waited {
		call.Fail(why)
	}
}

// laneFor returns the lane to queue in; nil if nothing waits on it any more. If opened is true the caller must register the
// lane with the connection.
func (p *promiseCap) laneFor(via *Conn) (l *lane, opened bool) {
	l = p.lanes[via]
	if l == nil && p.target.Load() == nil {
		opened = via != nil
		l = new(lane)
		if p.lanes == nil {
			p.lanes = make(map[*Conn]*lane, 1)
		}
		p.lanes[via] = l
		p.unflushed++
	}
	if l == nil || l.flushed {
		return nil, false
	}
	return l, opened
}

// promiseQueueLimit bounds the calls that wait on a promise that belongs to no connection.
const promiseQueueLimit = 4096

// resolve takes over the reference to and sends on the waiting calls, in order. Only the first resolution counts.
func (p *promiseCap) resolve(to *Ref) {
	if leadsTo(to.node, p) {
		to.Release()
		to = brokenRef(Failedf("the promise was resolved to itself"))
	}
	p.mu.Lock()
	if p.target.Load() != nil {
		p.mu.Unlock()
		to.Release()
		return
	}
	p.target.Store(to)
	p.drained.Store(p.unflushed == 0)
	lanes := maps.Clone(p.lanes)
	p.mu.Unlock()
	if own := lanes[nil]; own != nil {
		p.flush(own, nil, false)
	}
	for via, l := range lanes {
		if via != nil && !via.post(peerconn.Func(func() { p.flush(l, via, true) })) {
			p.flush(l, via, false)
		}
	}
	if p.refs.Load() == 0 {
		p.releaseTarget(nil)
	}
}

// releaseTarget releases the promise's target, unless calls still have to go there or the promise was referenced again.
func (p *promiseCap) releaseTarget(c *Conn) {
	p.mu.Lock()
	to := p.target.Load()
	if p.unflushed > 0 || p.refs.Load() > 0 {
		to = nil // flush will do it, or the holder of the new reference
	}
	p.mu.Unlock()
	to.releaseOn(c)
}

// flush sends on the calls that wait in a lane, and those that come in meanwhile.
func (p *promiseCap) flush(l *lane, via *Conn, inline bool) {
	to := p.target.Load()
	p.mu.Lock()
	for len(l.queue) > 0 {
		queue := l.queue
		l.queue = nil
		p.mu.Unlock()
		for _, call := range queue {
			if call.isCanceled() {
				call.Fail(errCanceled)
				continue
			}
			at := via
			if at == nil {
				at = to.via
			}
			call.dispatch(noWaitCtx, to.node, at, inline)
		}
		p.mu.Lock()
	}
	l.flushed = true
	p.unflushed--
	last := p.unflushed == 0
	p.drained.Store(last)
	hooks := l.hooks
	l.hooks = nil
	p.mu.Unlock()
	for _, h := range hooks {
		h.run()
	}
	if via != nil {
		via.unregisterLane(p)
	}
	if last && p.refs.Load() == 0 {
		to.releaseOn(via)
	}
}

// onResolve runs f once the promise is resolved and the calls that waited for it on via have been sent on; at once if they
// have. No lock may be held.
func (p *promiseCap) onResolve(via *Conn, h hook) {
	p.mu.Lock()
	l, opened := p.laneFor(via)
	if l != nil {
		l.hooks = append(l.hooks, h)
	}
	p.mu.Unlock()
	switch {
	case l == nil:
		h.run()
	case opened:
		via.registerLane(p)
	}
}

// abandon drops the hook of an export that the peer has released or, if exp is nil, all hooks and calls of via, whose
// connection has ended. A promise may outlive both by far.
func (p *promiseCap) abandon(via *Conn, exp *export) {
	p.mu.Lock()
	l := p.lanes[via]
	if l == nil || p.target.Load() != nil { // nothing waits, or it is being sent on
		p.mu.Unlock()
		return
	}
	l.hooks = slices.DeleteFunc(l.hooks, func(h hook) bool {
		return h.export != nil && (exp == nil || h.export == exp)
	})
	if exp == nil {
		l.queue = slices.DeleteFunc(l.queue, func(call *Call) bool { return call.conn == via })
	}
	empty := len(l.hooks)+len(l.queue) == 0 && (exp == nil || !l.keepOpen)
	if empty {
		delete(p.lanes, via)
		p.unflushed--
	}
	p.mu.Unlock()
	if !empty {
		return
	}
	via.unregisterLane(p)
	p.mu.Lock()
	_, again := p.lanes[via]
	p.mu.Unlock()
	if again { // opened in the meantime
		via.registerLane(p)
	}
}

// registerLane records that p has a lane for c's delivery goroutine.
func (c *Conn) registerLane(p *promiseCap) {
	c.mu.Lock()
	ended := c.ended != nil
	if !ended {
		c.registerLaneLocked(p)
	}
	c.mu.Unlock()
	if ended {
		p.abandon(c, nil)
	}
}

// registerLaneLocked is registerLane with the connection's lock held.
func (c *Conn) registerLaneLocked(p *promiseCap) {
	if c.lanes == nil {
		c.lanes = make(map[*promiseCap]struct{})
	}
	c.lanes[p] = struct{}{}
}

func (c *Conn) unregisterLane(p *promiseCap) {
	c.mu.Lock()
	table.Delete(&c.lanes, p, &c.peakSizes.lanes)
	c.mu.Unlock()
}

// abandonLanes removes a connection that has ended from the promises of this vat.
func (c *Conn) abandonLanes() {
	c.mu.Lock()
	lanes := c.lanes
	c.lanes = nil
	c.mu.Unlock()
	for p := range lanes {
		p.abandon(c, nil)
	}
}

// leadsTo reports whether from is the promise p, or resolved promises lead from it to p.
func leadsTo(from node, p *promiseCap) bool {
	for range maxHops {
		if from == node(p) {
			return true
		}
		if r, ok := from.(*remoteCap); ok {
			from = r.resolutionOrEmbargoed()
		} else {
			from = from.resolution()
		}
		if from == nil {
			return false
		}
	}
	return true
}
