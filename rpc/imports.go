// The import table: things of the peer that we may name, and the capabilities that come with messages.

package rpc

import (
	"slices"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// receiveCaps makes references of a payload's descriptors. On an error what was made so far is in the table.
func (co *core) receiveCaps(in *inMsg, payload rpccp.Payload) (CapTable, error) {
	var t CapTable
	if !payload.HasCapTable() {
		return t, nil
	}
	list, err := payload.CapTable()
	if err != nil {
		return t, frameError(err.Error())
	}
	if list.Len() > co.lim.Imports {
		return t, overLimit{LimitImports, violation("%d capabilities in one message, the limit is %d", list.Len(), co.lim.Imports)}
	}
	if list.Len() > in.size/wordBytes { // descriptors of no bytes are legal, but a peer that sends many means us ill
		return t, violation("%d capabilities in a message of %d bytes", list.Len(), in.size)
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
		exp := co.exports.get(d.ReceiverHosted())
		if exp == nil {
			return nil, violation("a capability is named as export %d, which does not exist", d.ReceiverHosted())
		}
		exp.ref.node.tryRef()
		return &Ref{node: exp.ref.node, via: co.conn}, nil
	case rpccp.CapDescriptor_Which_receiverAnswer:
		pa, err := d.ReceiverAnswer()
		if err != nil {
			return nil, frameError(err.Error())
		}
		dst, err := co.promisedAnswer(pa, "a capability")
		if err != nil {
			return nil, err
		}
		if dst.wait != nil {
			return co.promiseOf(dst.wait, dst.path)
		}
		r := dst.ref.AddRef()
		r.via, r.hosted = co.conn, false
		return r, nil
	case rpccp.CapDescriptor_Which_thirdPartyHosted:
		tp, err := d.ThirdPartyHosted()
		if err != nil {
			return nil, frameError(err.Error())
		}
		return co.importCap(tp.VineId(), false) // calls go through the sender
	}
	return brokenRef(Unimplementedf("a capability of a kind that is not known")), nil
}

// importCap counts one more reference to a thing of the peer.
func (co *core) importCap(id uint32, promise bool) (*Ref, error) {
	r := co.imports[id]
	if r == nil {
		if len(co.imports) >= co.lim.Imports {
			return nil, overLimit{LimitImports, violation("%d capabilities are held, the limit is %d", len(co.imports), co.lim.Imports)}
		}
		r = &remoteCap{conn: co.conn, id: id, promise: promise}
		co.imports[id] = r
	}
	if r.wire++; r.wire > maxWire { // give most of them back before the count overflows
		co.emitRelease(id, r.wire-1)
		r.wire = 1
	}
	r.refs.Add(1)
	return &Ref{node: r, via: co.conn, hosted: true}, nil
}

// maxWire is how many references to one import are let run up before all but one are given back.
const maxWire = 1 << 30

// promiseOf gives a promise of the capability at a path of an answer that is not returned yet.
func (co *core) promiseOf(ans *answer, path []uint16) (*Ref, error) {
	for _, lp := range ans.pipes[:min(len(ans.pipes), 16)] { // more is not worth the search
		if slices.Equal(lp.path, path) && lp.cap.tryRef() {
			return &Ref{node: lp.cap, via: co.conn}, nil
		}
	}
	if len(ans.pipes) >= co.lim.QueuedCalls || co.promised >= co.lim.Answers {
		co.hit(LimitQueuedCalls)
		return brokenRef(Overloadedf("%d promises wait for question %d", len(ans.pipes), ans.id)), nil
	}
	p := co.conn.newResultPromise(ans)
	ans.pipes = append(ans.pipes, localPipe{path, p})
	co.promised++
	return &Ref{node: p, via: co.conn}, nil
}

// dropCaps lets go of a message's capabilities when the lock is free. The table stays, its references are released.
func (co *core) dropCaps(t CapTable) {
	for _, r := range t.refs {
		if r != nil && r.released.CompareAndSwap(false, true) {
			co.drops = append(co.drops, r.node)
		}
	}
}

// handleResolve: a promise of the peer has become something.
func (co *core) handleResolve(msg rpccp.Message) error {
	m, err := msg.Resolve()
	if err != nil {
		return frameError(err.Error())
	}
	var to *Ref
	switch m.Which() {
	case rpccp.Resolve_Which_cap:
		d, err := m.Cap()
		if err != nil {
			return frameError(err.Error())
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
			return frameError(err.Error())
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
	if co.resolved >= co.lim.Imports {
		co.drops = append(co.drops, to.node)
		return overLimit{LimitImports, violation("%d promises that have resolved are held, the limit is %d", co.resolved, co.lim.Imports)}
	}
	co.resolveRemote(r, to)
	co.sendRelease(r)
	return nil
}

// sendRelease gives back all references to an import and forgets its number.
func (co *core) sendRelease(r *remoteCap) {
	if co.imports[r.id] != r {
		return
	}
	remove(&co.imports, r.id, &co.most.imports)
	co.emitRelease(r.id, r.wire)
}

func (co *core) emitRelease(id, n uint32) {
	co.sayLater(func(m rpccp.Message) error {
		r, err := m.NewRelease()
		if err == nil {
			r.SetId(id)
			r.SetReferenceCount(n)
		}
		return err
	})
}
