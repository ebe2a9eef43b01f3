// Disembargo: the message that follows calls around a loop, in both its directions.

package rpc

import (
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// disembargo is a Disembargo of the peer on its way through this vat: it goes through the same queues as the calls before it.
type disembargo struct {
	id   uint32
	to   node // counted: what it is targeted at
	hops int  // where it has waited
}

// handleDisembargo: the peer wants to know when its calls on a promise have come back to it, or we did.
func (co *core) handleDisembargo(in *inMsg, msg rpccp.Message) error {
	m, err := msg.Disembargo()
	if err != nil {
		return frameError(err.Error())
	}
	switch ctx := m.Context(); ctx.Which() {
	case rpccp.Disembargo_context_Which_senderLoopback:
		target, err := m.Target()
		if err != nil {
			return frameError(err.Error())
		}
		dst, err := co.destination(target, "disembargo")
		if err != nil {
			return err
		}
		if dst.pending != nil {
			return violation("disembargo of question %d, which has not returned", dst.pending.id)
		}
		if co.disembargoesIn >= co.limits.Answers {
			return limitError{LimitAnswers, violation("%d disembargoes wait for what was called before", co.disembargoesIn)}
		}
		if !dst.ref.node.tryRef() {
			return violation("disembargo of something that is gone")
		}
		co.disembargoesIn++
		co.tasks = append(co.tasks, task{disembargo: &disembargo{id: ctx.SenderLoopback(), to: dst.ref.node}})
		return nil
	case rpccp.Disembargo_context_Which_receiverLoopback:
		return co.liftEmbargo(ctx.ReceiverLoopback())
	}
	return co.unimplemented(in) // accept, of level 3
}

// liftEmbargo has what waited handed over, behind what has come round.
func (co *core) liftEmbargo(id uint32) error {
	r := co.disembargoesOut.get(id)
	if r == nil {
		return violation("disembargo answers %d, which was not sent", id)
	}
	co.disembargoesOut.remove(id)
	co.tasks = append(co.tasks, task{run: func() { co.conn.drainEmbargoed(r) }})
	return nil
}

// drainEmbargoed sends on what waited for an embargo that is lifted, and what comes meanwhile, in order, to what r has resolved to.
// Only when nothing is left has r resolved for anybody else: a call of another connection, or of the program, that went
// straight on before would overtake what is handed over here. It runs on the delivery goroutine.
func (c *Conn) drainEmbargoed(r *remoteCap) {
	for {
		c.mu.Lock()
		queue := r.queue
		r.queue = nil
		if len(queue) == 0 {
			c.embargoDrained(r)
			c.unlockAndRun()
			return
		}
		if c.ended == nil {
			for _, t := range queue {
				if t.call != nil {
					c.queuedCalls--
				}
			}
		}
		to := r.target.node
		held := to.tryRef()
		c.unlockAndRun()
		for _, t := range queue {
			switch {
			case t.disembargo != nil:
				c.passDisembargo(t.disembargo, to, r)
			case !held:
				t.call.Fail(errReleased)
			case t.call.isCanceled():
				t.call.Fail(errCanceled)
			default:
				t.call.dispatch(noWaitCtx, to, c, true)
			}
		}
		if held {
			to.unref(c)
		}
	}
}

// embargoDrained: nothing waits for r any more. Who was given it meanwhile is told what it is.
func (co *core) embargoDrained(r *remoteCap) {
	if r.state != capEmbargoed { // broken meanwhile
		return
	}
	r.state = capResolved
	if exp := co.exportOf(r); exp != nil {
		co.resolveExport(exp, r.target)
	}
	if r.refs.Load() == 0 {
		co.dropRemote(r)
	}
}

// returnDisembargo sends a peer's Disembargo back, after all calls of the peer before it have been sent on. What it is targeted at is
// a promise that led back to the peer when we told it so. It may have gone further since: to what the peer's thing turned
// out to be, even an object of this vat, which the calls before it have gone to as well, and the peer's next calls will.
func (c *Conn) returnDisembargo(e *disembargo) { c.passDisembargo(e, e.to, nil) }

// passDisembargo sends a peer's Disembargo back that has come as far as n, back being the thing of the peer's by way of which it has.
func (c *Conn) passDisembargo(e *disembargo, n node, back *remoteCap) {
	defer e.to.unref(c)
	c.mu.Lock()
	defer c.unlockAndRun()
	if c.ended != nil {
		return
	}
	for range maxHops {
		if r, ok := n.(*remoteCap); ok && r.conn == c {
			if back == nil {
				back = r
			}
			if r.state == capEmbargoed && e.hops < maxHops { // the calls before it wait: so does it
				if r.tryRef() {
					r.queue = append(r.queue, task{disembargo: &disembargo{e.id, r, e.hops + 1}})
				}
				return
			}
		}
		next := c.followPromise(n)
		if next == nil {
			break
		}
		n = next
	}
	if p, ok := n.(*promiseCap); ok && back != nil && p.ans != nil && p.ans.call.conn == c && e.hops < maxHops && p.tryRef() {
		// The calls before it wait there, and what the peer calls next may wait for the answer itself, before which these
		// must be sent on.
		on := &disembargo{e.id, p, e.hops + 1}
		c.afterUnlock = append(c.afterUnlock, func() {
			p.onResolve(c, hook{run: func() { c.passDisembargo(on, p.target.Load().node, back) }})
		})
		return
	}
	if back == nil {
		c.endLocked(abortEnding(violation("disembargo of something that does not lead back to the sender")))
		return
	}
	c.sendLoopback(e.id, back)
}

// sendLoopback answers a Disembargo. The target is for reading only: the number says it all.
func (co *core) sendLoopback(id uint32, r *remoteCap) {
	co.send(func(m rpccp.Message) error {
		d, err := newDisembargo(m, r)
		if err == nil {
			d.Context().SetReceiverLoopback(id)
		}
		return err
	})
	co.disembargoesIn--
}

// newDisembargo begins a Disembargo that is targeted at r.
func newDisembargo(m rpccp.Message, r *remoteCap) (rpccp.Disembargo, error) {
	d, err := m.NewDisembargo()
	if err != nil {
		return d, err
	}
	target, err := d.NewTarget()
	if err != nil {
		return d, err
	}
	return d, r.writeTarget(target)
}
