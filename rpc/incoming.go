// Incoming messages, dispatched by their type in rpc.capnp, and their target: an export, or something in the results of one of
// the peer's questions.

package rpc

import (
	"bytes"
	"runtime/debug"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// handle handles one framed message. An error means that the peer broke the protocol and the connection must be
// aborted with it. The frame is not kept.
func (co *core) handle(frame []byte) (err error) {
	defer func() {
		if r := recover(); r != nil { // a defect of ours or of the serialization: it ends this connection only
			stack := string(debug.Stack())
			co.afterUnlock = append(co.afterUnlock, func() { // nothing is logged under the lock
				co.conn.log.Error("message handler panicked", "peer", co.conn.RemoteAddr(), "panic", r, "stack", stack)
			})
			err = violation("the message could not be processed")
		}
	}()
	co.counters.MessagesIn++
	co.counters.BytesIn += uint64(len(frame))
	if co.trace != nil {
		co.traceIn(frame)
	}
	in := &co.scratch
	said, plain := wire.ReadPlain(frame, &co.reading)
	if plain || wire.IsCallOrReturn(frame) { // parameters and results outlive the read buffer
		in, frame = new(wire.In), bytes.Clone(frame)
	}
	if err := in.Parse(frame, &co.reading); err != nil {
		return err
	}
	if plain {
		if err := in.ReadContent(frame, &said); err != nil { // cannot happen: ReadPlain has checked all that is read
			return framing.Error(err.Error())
		}
		return co.handlePlain(in, &said)
	}
	m, err := in.Root()
	if err != nil {
		return err
	}
	switch m.Which() {
	case rpccp.Message_Which_unimplemented:
		return co.handleUnimplemented(m)
	case rpccp.Message_Which_abort:
		return co.handleAbort(m)
	case rpccp.Message_Which_bootstrap:
		return co.handleBootstrap(m)
	case rpccp.Message_Which_call:
		return co.handleCall(in, m)
	case rpccp.Message_Which_return:
		return co.handleReturn(in, m)
	case rpccp.Message_Which_finish:
		return co.handleFinish(m)
	case rpccp.Message_Which_resolve:
		return co.handleResolve(m)
	case rpccp.Message_Which_release:
		return co.handleRelease(m)
	case rpccp.Message_Which_disembargo:
		return co.handleDisembargo(in, m)
	}
	// obsoleteSave, obsoleteDelete, provide, accept, thirdPartyAnswer, join, and future variants
	return co.unimplemented(in)
}

// handlePlain handles a plain message.
func (co *core) handlePlain(in *wire.In, m *wire.Plain) error {
	if m.Which == rpccp.Message_Which_return {
		return co.acceptReturn(in, &incomingReturn{
			id: m.ID, releaseParams: m.ReleaseParams, noFinish: m.NoFinish, plain: true,
		})
	}
	dst, err := co.importedCap(m.Target, "call")
	if err != nil {
		return err
	}
	return co.acceptCall(in, &incomingCall{id: m.ID, method: Method{Interface: m.Interface, ID: m.Method}, dst: dst})
}

// traceIn passes a message that can be read to Trace before it is handled.
func (co *core) traceIn(frame []byte) {
	var in wire.In
	if in.Parse(frame, &co.reading) != nil {
		return
	}
	if m, err := in.Root(); err == nil {
		co.trace("in", m)
	}
}

// unimplemented echoes a message we do not implement, as level 1 vats do with those of levels 2 to 4.
func (co *core) unimplemented(in *wire.In) error {
	out := new(outMsg)
	if err := out.CopyUnimplemented(in); err != nil {
		return framing.Error(err.Error())
	}
	if err := co.emitReusable(out); err != nil {
		return violation("a message that is not implemented cannot be sent back: %v", err)
	}
	return nil
}

// handleUnimplemented handles the peer's echo of a message of ours that it does not implement.
func (co *core) handleUnimplemented(m rpccp.Message) error {
	m, err := m.Unimplemented()
	if err != nil {
		return framing.Error(err.Error())
	}
	if !m.IsValid() {
		return violation("unimplemented carries no message")
	}
	switch m.Which() {
	case rpccp.Message_Which_bootstrap:
		b, err := m.Bootstrap()
		if err != nil {
			return framing.Error(err.Error())
		}
		return co.questionUnimplemented(b.QuestionId())
	case rpccp.Message_Which_call:
		call, err := m.Call()
		if err != nil {
			return framing.Error(err.Error())
		}
		return co.questionUnimplemented(call.QuestionId())
	case rpccp.Message_Which_resolve:
		// It has released the promise's target.
		r, err := m.Resolve()
		if err != nil {
			return framing.Error(err.Error())
		}
		if r.Which() != rpccp.Resolve_Which_cap {
			return nil
		}
		d, err := r.Cap()
		if err != nil {
			return framing.Error(err.Error())
		}
		switch d.Which() {
		case rpccp.CapDescriptor_Which_senderHosted:
			return co.releaseExport(d.SenderHosted(), 1)
		case rpccp.CapDescriptor_Which_senderPromise:
			return co.releaseExport(d.SenderPromise(), 1)
		}
		return nil
	}
	return violation("the peer does not implement %v, which we cannot do without", m.Which())
}

// handleAbort handles the peer's abort, which ends the connection because of something we did.
func (co *core) handleAbort(m rpccp.Message) error {
	e, err := m.Abort()
	if err != nil {
		return framing.Error(err.Error())
	}
	ex := readException(e)
	if ex.Reason == "" {
		ex.Reason = "no reason given"
	}
	ex.Reason = "the peer aborted the connection: " + ex.Reason
	co.conn.loop.EndLocked(peerconn.Ending{Err: ex, Code: peerconn.CloseNormal})
	return nil
}

// destination is the target of a message of the peer: a reference, or a path of a pending answer. The reference is borrowed:
// code that keeps it takes its own count while the lock is held.
type destination struct {
	ref     *Ref
	pending *answer
	path    []uint16
}

func (co *core) destination(t rpccp.MessageTarget, what string) (destination, error) {
	if !t.IsValid() {
		return destination{}, violation("%s has no target", what)
	}
	switch t.Which() {
	case rpccp.MessageTarget_Which_importedCap:
		return co.importedCap(t.ImportedCap(), what)
	case rpccp.MessageTarget_Which_promisedAnswer:
		pa, err := t.PromisedAnswer()
		if err != nil {
			return destination{}, framing.Error(err.Error())
		}
		return co.promisedAnswer(pa, what)
	}
	return destination{}, violation("%s is targeted at a kind of thing that is not known", what)
}

// importedCap returns the destination of a message that is targeted at an import of the peer's.
func (co *core) importedCap(id uint32, what string) (destination, error) {
	exp := co.exports.Get(id)
	if exp == nil {
		return destination{}, violation("%s is targeted at export %d, which does not exist", what, id)
	}
	return destination{ref: exp.ref}, nil
}

// promisedAnswer returns the destination in the results of a question of the peer, returned or not.
func (co *core) promisedAnswer(pa rpccp.PromisedAnswer, what string) (destination, error) {
	if !pa.IsValid() {
		return destination{}, violation("%s names no question", what)
	}
	ans := co.openAnswer(pa.QuestionId())
	if ans == nil { // a question's own number is not in the table yet when it is targeted at itself
		return destination{}, violation("%s names question %d, which is not open", what, pa.QuestionId())
	}
	path, bad, err := co.readTransform(pa)
	switch {
	case err != nil:
		return destination{}, err
	case bad != nil:
		return destination{ref: brokenRef(bad)}, nil
	case !ans.returned:
		return destination{pending: ans, path: path}, nil
	}
	return destination{ref: co.resultOf(ans, path)}, nil
}

// openAnswer finds the answer to a question that the peer may name, or nil. One that needed no Finish can be named until
// the peer sends it or reuses the number: until then it is an answer whose results hold no capabilities.
func (co *core) openAnswer(id uint32) *answer {
	if co.finishOptional.Has(id) {
		return &answer{id: id, returned: true}
	}
	if ans := co.answers[id]; ans != nil && !ans.finished {
		return ans
	}
	return nil
}

// resultOf returns the capability at a path of a returned answer, borrowed from it or broken.
func (co *core) resultOf(ans *answer, path []uint16) *Ref {
	if ans.ex != nil {
		return brokenRef(ans.ex)
	}
	r := capAt(ans.content, &ans.caps, path)
	co.drops = append(co.drops, r.node) // released when the lock is free; until then it lives
	return r
}

// readTransform reads a pipeline's path. bad says that it cannot be followed, with which that one call fails.
func (co *core) readTransform(pa rpccp.PromisedAnswer) (path []uint16, bad *Exception, err error) {
	ops, err := pa.Transform()
	if err != nil {
		return nil, nil, framing.Error(err.Error())
	}
	if ops.Len() > co.limits.Nesting {
		co.countHit(LimitNesting)
		return nil, Failedf("a pipelined path of %d steps, the limit is %d", ops.Len(), co.limits.Nesting), nil
	}
	if ops.Len() == 0 {
		return nil, nil, nil
	}
	path = make([]uint16, 0, ops.Len())
	for i := range ops.Len() {
		switch op := ops.At(i); op.Which() {
		case rpccp.PromisedAnswer_Op_Which_noop:
		case rpccp.PromisedAnswer_Op_Which_getPointerField:
			path = append(path, op.GetPointerField())
		default:
			return nil, Unimplementedf("a pipelined path has a step that is not known"), nil
		}
	}
	return path, nil, nil
}
