// promiseCap: a promise of this vat: of an object that a program will name later (NewPromise), or of a result of a
// call that has not been sent to a peer. Calls on it wait in order.

package rpc

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// promiseCap holds calls back until it is resolved. They wait in lanes, one for each delivery goroutine they came on,
// and when the promise resolves each lane is emptied on its own goroutine, in its turn among what is delivered there:
// calls that come on it before then queue up behind, and only then is the peer told (hooks), so that what it sends
// straight to the object comes behind both.
type promiseCap struct {
	refs    atomic.Int64
	target  atomic.Pointer[Ref]
	drained atomic.Bool // resolved, and no lane has anything waiting
	owner   *Promise    // whose result it will be, of a call of this vat's,
	ans     *answer     // or of a peer's; nil both if a program made it

	mu        sync.Mutex
	lanes     map[*Conn]*lane // the nil lane is for calls within the vat
	unflushed int             // lanes that are not flushed
}

// lane is what waits for a promise on one delivery goroutine.
type lane struct {
	queue    []*Call
	hooks    []hook
	flushed  bool
	keepOpen bool // also while nothing waits in it: what came before may still wait elsewhere
}

// hook is to run when the promise is resolved; export is for whom, if that may lose interest.
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
// it gave us the promise; such calls wait for the answer itself and then, delivered, on their way, so that the lane of its
// connection is there from the beginning, for calls on the promise to come behind them. The connection's lock is held.
func (c *Conn) newResultPromise(ans *answer) *promiseCap {
	p := newPromiseCap()
	p.ans = ans
	p.lanes, p.unflushed = map[*Conn]*lane{c: {keepOpen: true}}, 1
	c.registerLaneLocked(p)
	return p
}

func (p *promiseCap) tryRef() bool { return tryInc(&p.refs) }

// tryRevive is tryRef where the last reference may be gone: that does not matter until the promise has let go of what it has
// resolved to.
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

// resolvedFor gives what the promise has resolved to once nothing waits for that on a connection any more, else nil.
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

// send queues a call while the promise holds it back; else it gives where the call must go.
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

// dependsOn reports whether p is a result of call, or of one that waits for it, through others perhaps: then neither would
// ever come. Of calls that come to wait for one another at the same moment at least one sees it.
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

// resultOf is the call whose result p will be, while that is in this vat; nil if there is none.
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

// laneFor gives the lane to queue in; nil if there is no more waiting on it. If opened is true the connection must be told.
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

// resolve takes over the reference to and has what waits sent on, in order. Only the first resolution counts.
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
		if via != nil && !via.post(task{run: func() { p.flush(l, via, true) }}) {
			p.flush(l, via, false)
		}
	}
	if p.refs.Load() == 0 {
		p.releaseTarget(nil)
	}
}

// releaseTarget lets go of what the promise resolved to, unless calls still have to go there, or it was asked for again.
func (p *promiseCap) releaseTarget(c *Conn) {
	p.mu.Lock()
	to := p.target.Load()
	if p.unflushed > 0 || p.refs.Load() > 0 {
		to = nil // flush will do it, or whoever has asked
	}
	p.mu.Unlock()
	to.releaseOn(c)
}

// flush sends on what waits in a lane, and what comes in meanwhile.
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

// onResolve has f run once the promise is resolved and what waited for it on via has been sent on; at once if so it
// is. No lock may be held.
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

// abandon drops what waits on a lane for a peer that has lost interest: the hook of an export it has released or, if
// that is nil, all its hooks and calls, since its connection has ended. A promise may outlive both by far.
func (p *promiseCap) abandon(via *Conn, exp *export) {
	p.mu.Lock()
	l := p.lanes[via]
	if l == nil || p.target.Load() != nil { // nothing waits, or it is on its way
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

// registerLane notes that something waits for p on c's delivery goroutine.
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
	remove(&c.lanes, p, &c.peakSizes.lanes)
	c.mu.Unlock()
}

// abandonLanes has promises of this vat forget a connection that has ended.
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
