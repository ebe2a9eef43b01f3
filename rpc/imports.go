// The import table: objects and promises of the peer that we may name, and the capabilities that come with messages.

package rpc

import (
	"slices"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/table"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// receiveCaps makes references of a payload's descriptors. On an error the table has those made so far.
func (co *core) receiveCaps(in *wire.In, payload rpccp.Payload) (CapTable, error) {
	var t CapTable
	if !payload.HasCapTable() {
		return t, nil
	}
	list, err := payload.CapTable()
	if err != nil {
		return t, framing.Error(err.Error())
	}
	if list.Len() > co.limits.Imports {
		return t, peerconn.OverLimit(LimitImports, violation("%d capabilities in one message, the limit is %d", list.Len(), co.limits.Imports))
	}
	if list.Len() > in.Size/framing.WordBytes { // descriptors of no bytes are legal, but many of them are an attack
		return t, violation("%d capabilities in a message of %d bytes", list.Len(), in.Size)
	}
	if list.Len() == 0 {
		return t, nil
	}
	t.refs = make([]*Ref, 0, list.Len())
	for i := range list.Len() {
		r, err := co.receiveCap(list.At(i))
		if err != nil {
			return t, err
		}
		t.refs = append(t.refs, r)
	}
	return t, nil
}

// receiveCap makes a reference of one descriptor; nil for none.
func (co *core) receiveCap(d rpccp.CapDescriptor) (*Ref, error) {
	switch d.Which() {
	case rpccp.CapDescriptor_Which_none:
		return nil, nil
	case rpccp.CapDescriptor_Which_senderHosted:
		return co.importCap(d.SenderHosted(), false)
	case rpccp.CapDescriptor_Which_senderPromise:
		return co.importCap(d.SenderPromise(), true)
	case rpccp.CapDescriptor_Which_receiverHosted:
		exp := co.exports.Get(d.ReceiverHosted())
		if exp == nil {
			return nil, violation("a capability is named as export %d, which does not exist", d.ReceiverHosted())
		}
		exp.ref.node.tryRef()
		return &Ref{node: exp.ref.node, via: co.conn}, nil
	case rpccp.CapDescriptor_Which_receiverAnswer:
		pa, err := d.ReceiverAnswer()
		if err != nil {
			return nil, framing.Error(err.Error())
		}
		dst, err := co.promisedAnswer(pa, "a capability")
		if err != nil {
			return nil, err
		}
		if dst.pending != nil {
			return co.promiseOf(dst.pending, dst.path)
		}
		r := dst.ref.AddRef()
		r.via, r.peerHosted = co.conn, false
		return r, nil
	case rpccp.CapDescriptor_Which_thirdPartyHosted:
		tp, err := d.ThirdPartyHosted()
		if err != nil {
			return nil, framing.Error(err.Error())
		}
		return co.importCap(tp.VineId(), false) // calls go through the sender
	}
	return brokenRef(Unimplementedf("a capability of a kind that is not known")), nil
}

// importCap counts one more reference to an object or promise of the peer.
func (co *core) importCap(id uint32, promise bool) (*Ref, error) {
	r := co.imports[id]
	if r == nil {
		if len(co.imports) >= co.limits.Imports {
			return nil, peerconn.OverLimit(LimitImports, violation("%d capabilities are held, the limit is %d", len(co.imports), co.limits.Imports))
		}
		r = &remoteCap{conn: co.conn, id: id, promise: promise}
		co.imports[id] = r
	}
	if r.wireRefs++; r.wireRefs > maxWireRefs { // return most of them before the count overflows
		co.emitRelease(id, r.wireRefs-1)
		r.wireRefs = 1
	}
	r.refs.Add(1)
	return &Ref{node: r, via: co.conn, peerHosted: true}, nil
}

// maxWireRefs is how many references to one import accumulate before all but one are returned.
const maxWireRefs = 1 << 30

// promiseOf returns a promise of the capability at a path of an answer that is not returned yet.
func (co *core) promiseOf(ans *answer, path []uint16) (*Ref, error) {
	for _, lp := range ans.pipelined[:min(len(ans.pipelined), 16)] { // more is not worth the search
		if slices.Equal(lp.path, path) && lp.cap.tryRef() {
			return &Ref{node: lp.cap, via: co.conn}, nil
		}
	}
	if len(ans.pipelined) >= co.limits.QueuedCalls || co.pipelinedPromises >= co.limits.Answers {
		co.countHit(LimitQueuedCalls)
		return brokenRef(Overloadedf("%d promises wait for question %d", len(ans.pipelined), ans.id)), nil
	}
	p := co.conn.newResultPromise(ans)
	ans.pipelined = append(ans.pipelined, pipelinedPromise{path, p})
	co.pipelinedPromises++
	return &Ref{node: p, via: co.conn}, nil
}

// dropCaps releases a message's capabilities when the lock is free. The table's entries stay.
func (co *core) dropCaps(t CapTable) {
	for _, r := range t.refs {
		if r != nil && r.released.CompareAndSwap(false, true) {
			co.drops = append(co.drops, r.node)
		}
	}
}

// handleResolve handles the resolution of a promise of the peer.
func (co *core) handleResolve(msg rpccp.Message) error {
	m, err := msg.Resolve()
	if err != nil {
		return framing.Error(err.Error())
	}
	var to *Ref
	switch m.Which() {
	case rpccp.Resolve_Which_cap:
		d, err := m.Cap()
		if err != nil {
			return framing.Error(err.Error())
		}
		if to, err = co.receiveCap(d); err != nil {
			return err
		}
		if to == nil {
			to = brokenRef(errNullCall)
		}
	case rpccp.Resolve_Which_exception:
		e, err := m.Exception()
		if err != nil {
			return framing.Error(err.Error())
		}
		to = brokenRef(readException(e))
	default:
		return violation("resolve to a kind of thing that is not known")
	}
	r := co.imports[m.PromiseId()]
	if r == nil { // released while the message was on its way
		co.drops = append(co.drops, to.node)
		return nil
	}
	if !r.promise {
		co.drops = append(co.drops, to.node)
		return violation("resolve of import %d, which is no promise", r.id)
	}
	if co.resolvedImports >= co.limits.Imports {
		co.drops = append(co.drops, to.node)
		return peerconn.OverLimit(LimitImports, violation("%d promises that have resolved are held, the limit is %d", co.resolvedImports, co.limits.Imports))
	}
	co.resolveRemote(r, to)
	co.sendRelease(r)
	return nil
}

// sendRelease returns all references to an import and frees its number.
func (co *core) sendRelease(r *remoteCap) {
	if co.imports[r.id] != r {
		return
	}
	table.Delete(&co.imports, r.id, &co.peakSizes.imports)
	co.emitRelease(r.id, r.wireRefs)
}

func (co *core) emitRelease(id, n uint32) {
	co.sendLazily(func(m rpccp.Message) error {
		r, err := m.NewRelease()
		if err == nil {
			r.SetId(id)
			r.SetReferenceCount(n)
		}
		return err
	})
}
