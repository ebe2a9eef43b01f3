// Forwarding: a call of one peer that is bound for another, or the same, and its answer on the way back. Messages are
// copied unchanged, so that the capability indexes in their contents stay valid.

package rpc

import (
	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

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
	out, err := copyCall(in, call.method, call.caps.Len())
	if err != nil {
		return nil, nil, Failedf("a call cannot be passed on: %v", err)
	}
	p := newPromise()
	if !call.markForwarded(p) {
		return nil, nil, errCanceled
	}
	p.Notify(func() { call.forwardAnswer(p) }) // the call owns p: it releases p when it is answered or cancelled
	return p, out, nil
}

// copyCall copies the message that holds a call of a peer.
func copyCall(in *inMsg, method Method, caps int) (*outMsg, error) {
	out, err := copyMessage(&in.msg, envelopeBytes(caps))
	if err != nil {
		return nil, err
	}
	old, err := out.root.Call()
	if err != nil {
		return nil, err
	}
	params, err := old.Params()
	if err != nil {
		return nil, err
	}
	content, err := params.Content()
	if err != nil {
		return nil, err
	}
	if err := out.newEnvelope(); err != nil {
		return nil, err
	}
	m, err := out.root.NewCall()
	if err != nil {
		return nil, err
	}
	m.SetInterfaceId(method.Interface)
	m.SetMethodId(method.ID)
	payload, err := m.NewParams()
	if err != nil {
		return nil, err
	}
	return out, payload.SetContent(content)
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
	out, err := copyResults(content, caps.Len())
	if err != nil {
		caps.release(c.via)
		c.fail(Failedf("results cannot be passed on: %v", err))
		return
	}
	c.sendResults(out, caps)
}

// copyResults copies the message that holds content, the results of a Return.
func copyResults(content capnp.Ptr, caps int) (*outMsg, error) {
	if !content.IsValid() {
		out, _, err := returnTemplate.newContent(capnp.ObjectSize{})
		return out, err
	}
	out, err := copyMessage(content.Message(), envelopeBytes(caps))
	if err != nil {
		return nil, err
	}
	if out.root.Which() != rpccp.Message_Which_return {
		return nil, Failedf("not a return")
	}
	old, err := out.root.Return()
	if err != nil {
		return nil, err
	}
	if old.Which() != rpccp.Return_Which_results {
		return nil, Failedf("not results")
	}
	results, err := old.Results()
	if err != nil {
		return nil, err
	}
	if content, err = results.Content(); err != nil {
		return nil, err
	}
	if err := out.newEnvelope(); err != nil {
		return nil, err
	}
	payload, err := out.newResults()
	if err != nil {
		return nil, err
	}
	return out, payload.SetContent(content)
}
