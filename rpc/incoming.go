// Incoming messages, dispatched by their type in rpc.capnp.

package rpc

import (
	"bytes"
	"encoding/binary"
	"runtime/debug"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
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
	said, plain := readPlain(frame, &co.limits)
	if plain || isCallOrReturn(frame) { // parameters and results outlive the read buffer
		in, frame = new(inMsg), bytes.Clone(frame)
	}
	if err := in.parse(frame, &co.limits); err != nil {
		return err
	}
	if plain {
		if err := in.readContent(frame, &said); err != nil { // cannot happen: readPlain has checked all that is read
			return framing.Error(err.Error())
		}
		return co.handlePlain(in, &said)
	}
	m, err := rpccp.ReadRootMessage(&in.msg)
	if err != nil {
		return framing.Error(err.Error())
	}
	if !m.IsValid() {
		return framing.Error("it has no root")
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

// traceIn passes a message that can be read to Trace before it is handled.
func (co *core) traceIn(frame []byte) {
	in, err := parseFrame(frame, &co.limits)
	if err != nil {
		return
	}
	if m, err := rpccp.ReadRootMessage(&in.msg); err == nil && m.IsValid() {
		co.trace("in", m)
	}
}

// isCallOrReturn reports from a frame's bytes whether it is a Call or a Return. It reports true for frames it cannot decide,
// as those of several segments.
func isCallOrReturn(frame []byte) bool {
	const header, unknown = 2 * wordBytes, true // the segment table of one segment, and the root pointer
	if len(frame) < header || binary.LittleEndian.Uint32(frame) != 0 {
		return unknown
	}
	root := binary.LittleEndian.Uint64(frame[wordBytes:])
	at := header + int64(int32(uint32(root))>>2)*wordBytes
	if root&3 != 0 || root>>32&0xffff == 0 || at < header || at+wordBytes > int64(len(frame)) {
		return unknown
	}
	which := rpccp.Message_Which(binary.LittleEndian.Uint16(frame[at:]))
	return which == rpccp.Message_Which_call || which == rpccp.Message_Which_return
}

// unimplemented echoes a message we do not implement, as level 1 vats do with those of levels 2 to 4. The content is
// copied unchanged, segment by segment, so the echo is hardly larger than the message.
func (co *core) unimplemented(in *inMsg) error {
	out, err := copyMessage(&in.msg, 64)
	if err != nil {
		return framing.Error(err.Error())
	}
	echoed := out.root
	if err := out.newEnvelope(); err != nil {
		return err
	}
	if err := out.root.SetUnimplemented(echoed); err != nil {
		return err
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
