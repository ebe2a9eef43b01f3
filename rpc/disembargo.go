// Disembargo: the message that follows calls around a loop, in both its directions.

package rpc

import (
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// echo is a Disembargo of the peer on its way through this vat: it goes through the same queues as the calls before it.
type echo struct {
	id uint32
	to node // counted: what it is targeted at
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
		if dst.wait != nil {
			return violation("disembargo of question %d, which has not returned", dst.wait.id)
		}
		if co.echoes >= co.lim.Answers {
			return overLimit{LimitAnswers, violation("%d disembargoes wait for what was called before", co.echoes)}
		}
		if !dst.ref.node.tryRef() {
			return violation("disembargo of something that is gone")
		}
		co.echoes++
		co.todo = append(co.todo, task{echo: &echo{ctx.SenderLoopback(), dst.ref.node}})
		return nil
	case rpccp.Disembargo_context_Which_receiverLoopback:
		return co.liftEmbargo(ctx.ReceiverLoopback())
	}
	return co.unimplemented(in) // accept, of level 3
}

// liftEmbargo delivers what waited, in order, to what the promise resolved to.
func (co *core) liftEmbargo(id uint32) error {
	r := co.embargoes.get(id)
	if r == nil {
		return violation("disembargo answers %d, which was not sent", id)
	}
	co.embargoes.remove(id)
	r.state = capResolved
	queue := r.queue
	r.queue = nil
	for _, t := range queue {
		if t.call != nil {
			co.queuedCalls--
			if !r.target.node.tryRef() {
				call := t.call
				co.after = append(co.after, func() { call.Fail(errReleased) })
				continue
			}
			t.call.bind(r.target.node, co.conn)
		}
		co.todo = append(co.todo, t)
	}
	if r.refs.Load() == 0 {
		co.dropRemote(r)
	}
	return nil
}

// sendEcho sends a peer's Disembargo back, after all calls of the peer before it have been sent on. What it is
// targeted at must lead back to the peer, as we have told it.
func (c *Conn) sendEcho(e *echo) {
	defer e.to.unref(c)
	c.mu.Lock()
	defer c.unlock()
	if c.ended != nil {
		return
	}
	n := e.to
	for range maxHops {
		if r, ok := n.(*remoteCap); ok && r.conn == c {
			if r.state == capEmbargoed { // the calls before it wait: so does it
				if r.tryRef() {
					r.queue = append(r.queue, task{echo: &echo{e.id, r}})
				}
				return
			}
			c.sendLoopback(e.id, r)
			return
		}
		next := c.follow(n)
		if next == nil {
			break
		}
		n = next
	}
	c.endLocked(abortEnding(violation("disembargo of something that does not lead back to the sender")))
}

// sendLoopback answers a Disembargo. The target is for reading only: the number says it all.
func (co *core) sendLoopback(id uint32, r *remoteCap) {
	co.say(func(m rpccp.Message) error {
		d, err := newDisembargo(m, r)
		if err == nil {
			d.Context().SetReceiverLoopback(id)
		}
		return err
	})
	co.echoes--
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
