// promiseCap: a promise of this vat: of an object that a program will name later (NewPromise), or of a result of a
// call that has not been sent to a peer. Calls on it wait in order.

package rpc

import (
	"sync"
	"sync/atomic"
)

// promiseCap is unresolved, then resolving (what waits is being sent on, what comes queues up behind it), then
// resolved: only then is target set and do the hooks run.
type promiseCap struct {
	refs   atomic.Int64
	target atomic.Pointer[Ref]
	owner  *Promise // whose result it will be, or nil

	mu        sync.Mutex
	resolving bool
	queue     []*Call
	hooks     []func()
}

func newPromiseCap() *promiseCap {
	p := new(promiseCap)
	p.refs.Store(1)
	return p
}

func (p *promiseCap) tryRef() bool { return tryInc(&p.refs) }

func (p *promiseCap) unref(c *Conn) {
	if p.refs.Add(-1) != 0 {
		return
	}
	if t := p.target.Load(); t != nil {
		t.releaseOn(c)
	} else if p.owner != nil {
		p.owner.pipeDropped()
	}
}

// resolution is what the promise has resolved to; nil before.
func (p *promiseCap) resolution() node {
	if t := p.target.Load(); t != nil {
		return t.node
	}
	return nil
}

// send queues a call while the promise is not resolved; else it gives where the call must go.
func (p *promiseCap) send(call *Call, via *Conn) (next *Ref) {
	if t := p.target.Load(); t != nil {
		return t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.target.Load(); t != nil {
		return t
	}
	if len(p.queue) >= promiseQueueLimit {
		return &Ref{node: &brokenCap{err: Overloadedf("%d calls wait for the promise to resolve", len(p.queue))}}
	}
	call.via = via
	p.queue = append(p.queue, call)
	return nil
}

// promiseQueueLimit bounds the calls that wait on a promise that belongs to no connection.
const promiseQueueLimit = 4096

// resolve takes over the reference to and sends on what waits, in order. Only the first resolution counts.
func (p *promiseCap) resolve(to *Ref) {
	if leadsTo(to.node, p) {
		to.Release()
		to = &Ref{node: &brokenCap{err: Failedf("the promise was resolved to itself")}}
	}
	p.mu.Lock()
	if p.resolving {
		p.mu.Unlock()
		to.Release()
		return
	}
	p.resolving = true
	for len(p.queue) > 0 {
		waiting := p.queue
		p.queue = nil
		p.mu.Unlock()
		for _, call := range waiting {
			via := call.via
			if via == nil {
				via = to.via
			}
			call.dispatch(nil, to.node, via, false)
		}
		p.mu.Lock()
	}
	p.target.Store(to)
	hooks := p.hooks
	p.hooks = nil
	p.mu.Unlock()
	for _, f := range hooks {
		f()
	}
	if p.refs.Load() == 0 {
		to.Release() // nobody was left to do it; Release is idempotent, should unref have seen the target too
	}
}

// onResolve has f run once the promise is resolved, at once if it is. No lock may be held.
func (p *promiseCap) onResolve(f func()) {
	p.mu.Lock()
	if p.target.Load() == nil {
		p.hooks = append(p.hooks, f)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	f()
}

// leadsTo reports whether from is the promise p, or resolved promises lead from it to p.
func leadsTo(from node, p *promiseCap) bool {
	for range maxHops {
		if from == node(p) {
			return true
		}
		var next node
		switch t := from.(type) {
		case *promiseCap:
			next = t.resolution()
		case *remoteCap:
			next = t.resolution()
		}
		if next == nil {
			return false
		}
		from = next
	}
	return true
}
