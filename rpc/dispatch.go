// How a call finds its object: through resolved promises, over connections, into delivery queues. No lock is held on
// the way but for single steps, and handlers run on delivery goroutines only.

package rpc

import "context"

// dispatch sends the call towards n. via is the connection on whose delivery goroutine it is to run; inline says that
// this is that goroutine, so that an object may be called right here. At a limit the call waits for as long as ctx
// allows; then it is answered overloaded, having gone nowhere, and the error is ctx's.
//
// Order is kept thus: a promise of this vat holds calls back in its lanes until all before them have been sent on, so
// behind it the object may be called at once. So does a thing of a peer that has turned out to be something else, until what
// waited for that is handed over on the connection's delivery goroutine. If it is an object of this vat, that is where all
// that comes later is delivered too; if it is a thing of another peer, what comes later leaves behind what was handed over.
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
	if via != nil && via.post(task{call: c}) {
		return
	}
	c.bind(n, nil)
	if l, ok := n.(*localCap); ok {
		l.deliveries.Post(c.deliver)
	} else {
		detached.Post(c.deliver)
	}
}

// retainTarget makes sure that the call has a count on the object it is about to be served by on via's delivery goroutine, until it
// is answered.
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

// bind notes where the call is bound for; the count on n goes over to the call.
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
		c.dst = nil // a stop on the way only
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

// noWaitCtx is the context of those who cannot wait at a limit: delivery goroutines.
var noWaitCtx = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

var (
	errCanceled = Failedf("the call was cancelled")
	errEnded    = Disconnectedf("the connection has ended")
)
