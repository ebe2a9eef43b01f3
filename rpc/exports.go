// The export table: objects of this vat, or promises it made, that the peer may name.

package rpc

import (
	"math"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/table"
)

// export is one entry. It holds one count on its node, however often it was sent to the peer.
type export struct {
	id       uint32
	ref      *Ref
	wireRefs uint32 // references the peer has
	promise  bool   // announced as a promise and not resolved yet
}

// writeCaps writes the descriptors of a payload's capabilities and returns the exports they name: references that the peer
// has once the message is sent. There must be room.
func (co *core) writeCaps(payload rpccp.Payload, caps *CapTable) (exports []uint32, err error) {
	if caps.Len() == 0 {
		return nil, payload.SetCapTable(rpccp.CapDescriptor_List{})
	}
	list, err := payload.NewCapTable(int32(caps.Len()))
	if err != nil {
		return nil, err
	}
	for i, r := range caps.refs {
		id, exported, err := co.writeCap(list.At(i), r)
		if err != nil {
			co.undoExports(exports)
			return nil, err
		}
		if exported {
			exports = append(exports, id)
		}
	}
	return exports, nil
}

// writeCap describes one capability to the peer.
func (co *core) writeCap(d rpccp.CapDescriptor, r *Ref) (id uint32, exported bool, err error) {
	if r == nil {
		d.SetNone()
		return 0, false, nil
	}
	return co.writeNode(d, co.resolvedNode(r))
}

// writeNode describes the node a reference finally points at: an import from this peer by its own number, anything else as
// an export.
func (co *core) writeNode(d rpccp.CapDescriptor, n node) (id uint32, exported bool, err error) {
	switch t := n.(type) {
	case *remoteCap:
		if t.conn == co.conn && t.state == capEmbargoed {
			id = co.export(t, true) // calls that wait for it come before the peer's
			d.SetSenderPromise(id)
			break
		}
		if t.conn == co.conn {
			if t.p == nil {
				d.SetReceiverHosted(t.id)
				return 0, false, nil
			}
			pa, err := d.NewReceiverAnswer()
			if err != nil {
				return 0, false, err
			}
			return 0, false, t.writePromisedAnswer(pa)
		}
		id = co.export(t, false) // of another peer: calls are forwarded through this vat
		d.SetSenderHosted(id)
	case *localCap:
		id = co.export(t, false)
		d.SetSenderHosted(id)
	case *promiseCap:
		id = co.export(t, true)
		d.SetSenderPromise(id)
	case *brokenCap:
		id = co.export(t, false)
		d.SetSenderPromise(id)
		co.brokenExports = append(co.brokenExports, brokenExport{id, t.err})
	}
	return id, true, nil
}

// resolvedNode follows resolved promises to the node a reference finally points at.
func (co *core) resolvedNode(r *Ref) node {
	n := r.node
	for range maxHops {
		next := co.followPromise(n)
		if next == nil {
			return n
		}
		n = next
	}
	return &brokenCap{err: errTooManyHops}
}

// followPromise returns a promise's target, or nil. As long as something waits that calls of this peer might overtake, it
// counts as unresolved. Promises of other connections are not followed: their state is behind another lock.
func (co *core) followPromise(n node) node {
	switch t := n.(type) {
	case *promiseCap:
		if to := t.resolvedFor(co.conn); to != nil {
			return to.node
		}
	case *remoteCap:
		if t.conn == co.conn && t.state == capResolved {
			return t.target.node
		}
	}
	return nil
}

// roomForExports returns an error if the capabilities of a message may not be exported. Those that the peer references
// already, or hosts itself, need no room.
func (co *core) roomForExports(caps *CapTable) *Exception {
	if co.exports.Len()+caps.Len() <= co.limits.Exports {
		return nil
	}
	more := 0
	for _, r := range caps.refs {
		if r != nil && co.needsExport(co.resolvedNode(r)) {
			more++
		}
	}
	if more > 0 && co.exports.Len()+more > co.limits.Exports {
		co.countHit(LimitExports)
		return Overloadedf("the peer holds %d capabilities, the limit is %d", co.exports.Len(), co.limits.Exports)
	}
	return nil
}

// needsExport reports whether n cannot be described to the peer without a new export.
func (co *core) needsExport(n node) bool {
	if r, ok := n.(*remoteCap); ok && r.conn == co.conn && r.state != capEmbargoed {
		return false
	}
	_, known := co.exportIDs[n]
	return !known
}

// export returns the number under which the peer knows n, counting one more reference.
func (co *core) export(n node, promise bool) uint32 {
	if id, ok := co.exportIDs[n]; ok {
		exp := co.exports.Get(id)
		if exp.wireRefs++; exp.wireRefs == math.MaxUint32 {
			co.endOnUnlock(abortEnding(violation("export %d was never released", id)))
		}
		return id
	}
	n.tryRef() // the message that names it holds a count, so this cannot fail
	exp := &export{ref: &Ref{node: n}, wireRefs: 1, promise: promise}
	exp.id = co.exports.Add(exp)
	if _, broken := n.(*brokenCap); !broken {
		co.exportIDs[n] = exp.id
	}
	if p, ok := n.(*promiseCap); ok && promise {
		co.afterUnlock = append(co.afterUnlock, func() { co.conn.watchExport(exp, p) })
	}
	return exp.id
}

// exportOf returns the export of n, if the peer knows it.
func (co *core) exportOf(n node) *export {
	id, ok := co.exportIDs[n]
	if !ok {
		return nil
	}
	return co.exports.Get(id)
}

// releaseExport releases references that the peer had.
func (co *core) releaseExport(id uint32, n uint32) error {
	exp := co.exports.Get(id)
	if exp == nil {
		return violation("release of export %d, which does not exist", id)
	}
	if n > exp.wireRefs {
		return violation("release of %d references to export %d, which has %d", n, id, exp.wireRefs)
	}
	exp.wireRefs -= n
	if exp.wireRefs > 0 {
		return nil
	}
	co.exports.Remove(id)
	if p, ok := exp.ref.node.(*promiseCap); ok && exp.promise {
		co.afterUnlock = append(co.afterUnlock, func() { p.abandon(co.conn, exp) })
	}
	if at, ok := co.exportIDs[exp.ref.node]; ok && at == id {
		table.Delete(&co.exportIDs, exp.ref.node, &co.peakSizes.exported)
	}
	co.drops = append(co.drops, exp.ref.node)
	return nil
}

// checkSize returns an error if a message is too large to be sent, and takes back the references that it would have given.
func (co *core) checkSize(what string, out *outMsg, exports []uint32) *Exception {
	size := out.Size()
	if size <= co.limits.SendBytes {
		return nil
	}
	co.undoExports(exports)
	return Failedf("%s too large: %d bytes, the limit is %d", what, size, co.limits.SendBytes)
}

// undoExports takes back the references of a message that is not sent.
func (co *core) undoExports(exports []uint32) {
	_ = co.releaseExports(exports) // they are there
	co.brokenExports = nil
}

// releaseExports releases one reference of each.
func (co *core) releaseExports(ids []uint32) error {
	for _, id := range ids {
		if err := co.releaseExport(id, 1); err != nil {
			return err
		}
	}
	return nil
}

// handleRelease handles the peer's release of references.
func (co *core) handleRelease(msg rpccp.Message) error {
	m, err := msg.Release()
	if err != nil {
		return framing.Error(err.Error())
	}
	return co.releaseExport(m.Id(), m.ReferenceCount())
}

// watchExport announces to the peer what the promise of an export resolves to.
func (c *Conn) watchExport(exp *export, p *promiseCap) {
	p.onResolve(c, hook{export: exp, run: func() {
		c.mu.Lock()
		defer c.unlockAndRun()
		c.resolveExport(exp, p.target.Load())
	}})
	c.mu.Lock()
	gone := c.ended != nil || c.exports.Get(exp.id) != exp
	c.mu.Unlock()
	if gone { // released or ended in the meantime
		p.abandon(c, exp)
	}
}

// resolveExport announces the target of a promise to the peer. The calls that waited for the promise have been sent on.
func (co *core) resolveExport(exp *export, target *Ref) {
	if co.ended != nil || co.exports.Get(exp.id) != exp || !exp.promise {
		return
	}
	exp.promise = false
	table.Delete(&co.exportIDs, exp.ref.node, &co.peakSizes.exported) // from now on its target is exported instead
	to := co.resolvedNode(target)                                     // read once: it may resolve further at any moment
	if b, ok := to.(*brokenCap); ok {
		co.sendResolveException(exp.id, b.err)
		return
	}
	if co.exports.Len() >= co.limits.Exports && co.needsExport(to) {
		co.countHit(LimitExports)
		co.sendResolveException(exp.id, Overloadedf("the peer holds %d capabilities", co.exports.Len()))
		return
	}
	co.send(func(m rpccp.Message) error {
		r, err := m.NewResolve()
		if err != nil {
			return err
		}
		r.SetPromiseId(exp.id)
		d, err := r.NewCap()
		if err != nil {
			return err
		}
		_, _, err = co.writeNode(d, to)
		return err
	})
}

// resolveBrokenExports follows a message that named errors as capabilities: each was announced as a promise.
func (co *core) resolveBrokenExports() {
	for _, b := range co.brokenExports {
		co.sendResolveException(b.id, b.ex)
	}
	co.brokenExports = nil
}

func (co *core) sendResolveException(id uint32, ex *Exception) {
	co.send(func(m rpccp.Message) error {
		r, err := m.NewResolve()
		if err != nil {
			return err
		}
		r.SetPromiseId(id)
		e, err := r.NewException()
		if err != nil {
			return err
		}
		return writeException(e, ex, co.maxReason())
	})
}
