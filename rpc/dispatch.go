// Dispatch: how a call reaches its object: through resolved promises, over connections, into delivery queues. No lock is
// held on the way except for single steps, and handlers run on delivery goroutines only. A call of one peer that is bound for
// another, or the same, is forwarded, and so is its answer.

package rpc

import "context"

// dispatch sends the call to n. via is the connection on whose delivery goroutine it is to run; inline says that
// this is that goroutine, so that an object may be called right here. At a limit the call waits for as long as ctx
// allows; then it is answered overloaded, undelivered, and the error is ctx's.
//
// Order is kept as follows: a promise of this vat holds calls back in its lanes until all earlier ones have been sent on, so
// after it the object may be called at once. So does an import that has turned out to be something else, until the calls held
// back are handed over on the connection's delivery goroutine. If it is an object of this vat, all later calls are
// delivered there too; if it is an import from another peer, later calls leave after those handed over.
func (c *Call) dispatch(ctx context.Context, n node, via *Conn, inline bool) (gaveUp error) {
	for c.hops < maxHops {
		c.hops++
		switch t := n.(type) {
		case *localCap:
			switch {
			case !inline:
				c.post(n, via)
			case !c.retainTarget(n, via):
				c.Fail(errReleased)
			default:
				c.serve(t.object)
			}
			return nil
		case *remoteCap:
			next, err := t.conn.sendVia(ctx, t, c)
			if err != nil {
				c.Fail(errTooManyCalls)
				return err
			}
			if next == nil {
				return nil
			}
			n, via, inline = next.node, t.conn, inline && via == t.conn
			switch n.(type) {
			case *localCap, *promiseCap:
				if !inline {
					c.post(n, via)
					return nil
				}
			}
		case *promiseCap:
			next := t.send(c, via)
			if next == nil {
				return nil
			}
			n = next.node
			if via == nil {
				via = next.via
			}
		case *brokenCap:
			c.Fail(t.err)
			return nil
		}
	}
	c.Fail(errTooManyHops)
	return nil
}

// post queues the call for delivery to n on via's delivery goroutine, or the object's own.
func (c *Call) post(n node, via *Conn) {
	if !n.tryRef() {
		c.Fail(errReleased)
		return
	}
	c.bind(n, via)
	if via != nil && via.post((*callTask)(c)) {
		return
	}
	c.bind(n, nil)
	if l, ok := n.(*localCap); ok {
		l.deliveries.Post(c.deliver)
	} else {
		detached.Post(c.deliver)
	}
}

// retainTarget ensures that the call has a count on the object that is about to serve it on via's delivery goroutine, until
// it is answered.
func (c *Call) retainTarget(n node, via *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dst == n {
		return true
	}
	if !n.tryRef() {
		return false
	}
	c.dst, c.via = n, via
	return true
}

// bind sets the call's destination; the count on n passes to the call.
func (c *Call) bind(n node, via *Conn) {
	c.mu.Lock()
	c.dst, c.via = n, via
	c.mu.Unlock()
}

// deliver runs on the delivery goroutine the call was queued for.
func (c *Call) deliver() {
	c.mu.Lock()
	dst, via, canceled := c.dst, c.via, c.canceledLocked()
	_, object := dst.(*localCap)
	if !object {
		c.dst = nil // an intermediate stop only
	}
	c.delivered = true
	c.mu.Unlock()
	switch {
	case dst == nil: // answered while it was queued
		return
	case canceled:
		c.Fail(errCanceled)
	default:
		c.dispatch(noWaitCtx, dst, via, true)
	}
	if !object {
		dst.unref(via)
	}
	c.mu.Lock()
	late := c.cancelOnceDelivered
	c.mu.Unlock()
	if late {
		c.cancel()
	}
}

// transmitCall puts a call on the wire: a call of this vat unchanged, a peer's as a copy whose answer is forwarded.
func (co *core) transmitCall(r *remoteCap, call *Call) *Exception {
	if call.ans != nil {
		p, out, ex := co.forward(call)
		if ex != nil {
			return ex
		}
		return co.sendCall(r, p, out, &call.caps, true)
	}
	if call.isCanceled() {
		return errCanceled
	}
	ex := co.sendCall(r, call.p, call.out, &call.caps, false)
	if ex == nil {
		call.out = nil
	}
	return ex
}

// forward makes a question of a call that came over a connection and is bound for the peer of this one (which may be
// the same): a copy of the message, so that capability indexes stay valid.
func (co *core) forward(call *Call) (*Promise, *outMsg, *Exception) {
	in := call.in.Load()
	if in == nil { // answered
		return nil, nil, errCanceled
	}
	out := new(outMsg)
	if err := out.CopyCall(in, call.method.Interface, call.method.ID, call.caps.Len()); err != nil {
		return nil, nil, Failedf("a call cannot be passed on: %v", err)
	}
	p := new(Promise)
	if !call.markForwarded(p) {
		return nil, nil, errCanceled
	}
	p.Notify(func() { call.forwardAnswer(p) }) // the call owns p: it releases p when it is answered or cancelled
	return p, out, nil
}

// forwardAnswer answers the call with the answer of p, which has arrived.
func (c *Call) forwardAnswer(p *Promise) {
	if !c.answered.CompareAndSwap(false, true) {
		return
	}
	p.mu.Lock()
	ex, content, caps := p.err, p.content, p.caps.clone()
	p.mu.Unlock()
	if ex != nil {
		caps.release(c.via)
		c.fail(ex)
		return
	}
	out := new(outMsg)
	if err := out.CopyResults(content, caps.Len()); err != nil {
		caps.release(c.via)
		c.fail(Failedf("results cannot be passed on: %v", err))
		return
	}
	c.sendResults(out, caps, false)
}

// noWaitCtx is the context of callers that cannot wait at a limit: delivery goroutines.
var noWaitCtx = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

var (
	errCanceled = Failedf("the call was cancelled")
	errEnded    = Disconnectedf("the connection has ended")
)
