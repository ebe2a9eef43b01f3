// Disembargo: the message that follows calls around a loop, in both its directions.

package rpc

import (
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// disembargo is a Disembargo of the peer on its way through this vat: it goes through the same queues as the calls before it.
type disembargo struct {
	id   uint32
	to   node // counted: its target
	hops int  // how often it has waited
}

// embargoed is what waits for an embargo: a call or a disembargo.
type embargoed struct {
	call       *Call
	disembargo *disembargo
}

// handleDisembargo handles both directions: the peer asks when its calls on a promise have come back to it, or answers ours.
func (co *core) handleDisembargo(in *wire.In, msg rpccp.Message) error {
	m, err := msg.Disembargo()
	if err != nil {
		return framing.Error(err.Error())
	}
	switch ctx := m.Context(); ctx.Which() {
	case rpccp.Disembargo_context_Which_senderLoopback:
		target, err := m.Target()
		if err != nil {
			return framing.Error(err.Error())
		}
		dst, err := co.destination(target, "disembargo")
		if err != nil {
			return err
		}
		if dst.pending != nil {
			return violation("disembargo of question %d, which has not returned", dst.pending.id)
		}
		if co.disembargoesIn >= co.limits.Answers {
			return peerconn.OverLimit(LimitAnswers, violation("%d disembargoes wait for what was called before", co.disembargoesIn))
		}
		if !dst.ref.node.tryRef() {
			return violation("disembargo of something that is gone")
		}
		co.disembargoesIn++
		e := &disembargo{id: ctx.SenderLoopback(), to: dst.ref.node}
		co.out.Tasks = append(co.out.Tasks, peerconn.Func(func() { co.conn.passDisembargo(e, e.to, nil) }))
		return nil
	case rpccp.Disembargo_context_Which_receiverLoopback:
		return co.liftEmbargo(ctx.ReceiverLoopback())
	}
	return co.unimplemented(in) // accept, of level 3
}

// liftEmbargo hands over the calls held back, behind those that have come round.
func (co *core) liftEmbargo(id uint32) error {
	r := co.disembargoesOut.Get(id)
	if r == nil {
		return violation("disembargo answers %d, which was not sent", id)
	}
	co.disembargoesOut.Remove(id)
	co.out.Tasks = append(co.out.Tasks, peerconn.Func(func() { co.conn.drainEmbargoed(r) }))
	return nil
}

// drainEmbargoed sends on the calls that waited for a lifted embargo, and those that come meanwhile, in order, to r's target.
// Only when none is left is r resolved for other callers: a call of another connection, or of the program, that went
// straight on before would overtake the calls handed over here. It runs on the delivery goroutine.
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

// embargoDrained marks r resolved, as nothing waits for it any more, and announces the resolution to peers that were given
// it meanwhile.
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

// passDisembargo sends a peer's Disembargo back that has come as far as n, after all calls of the peer before it have been sent
// on; back is the import from the peer by way of which it came, if it came by one. Its target is a promise that led back to the
// peer when we announced it. It may have gone further since: to what the peer's import resolved to, even an object of this vat,
// where the calls before it have gone as well, and the peer's next calls will.
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
					r.queue = append(r.queue, embargoed{disembargo: &disembargo{e.id, r, e.hops + 1}})
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
		// The calls before it wait there, and the peer's next calls may wait for the answer itself, before which these
		// must be sent on.
		on := &disembargo{e.id, p, e.hops + 1}
		c.afterUnlock = append(c.afterUnlock, func() {
			p.onResolve(c, hook{run: func() { c.passDisembargo(on, p.target.Load().node, back) }})
		})
		return
	}
	if back == nil {
		c.loop.EndLocked(abortEnding(violation("disembargo of something that does not lead back to the sender")))
		return
	}
	c.sendLoopback(e.id, back)
}

// sendLoopback answers a Disembargo. The target is informational: the number identifies it.
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

// newDisembargo makes a Disembargo that is targeted at r.
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
