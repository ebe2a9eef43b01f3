// outMsg: an rpc.capnp message of ours under construction, in pooled memory.

package rpc

import (
	"math"
	"strings"
	"sync"
	"unicode/utf8"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/rpc/internal/transport"
)

// outMsg is a message to be sent, or one that stays in the vat. Its owner may free it once, when nothing points
// into it any more; a message that was passed to program code beyond a place function is left to the garbage collector.
type outMsg struct {
	msg  capnp.Message
	root rpccp.Message  // set by the generated code, or
	seg  *capnp.Segment // the segment of a plain message written from a template
	caps CapTable       // set by place; taken before the message is freed
}

var outMsgs = sync.Pool{New: func() any {
	m := new(outMsg)
	m.msg.TraverseLimit = math.MaxInt64 // we may read what we wrote
	return m
}}

// emptyMsg returns an empty message and its segment.
func emptyMsg() (*outMsg, *capnp.Segment, error) {
	m := outMsgs.Get().(*outMsg)
	m.msg.Arena = capnp.SingleSegment(nil)
	seg, err := m.msg.Segment(0)
	return m, seg, err
}

// newOutMsg returns an empty message with its root set.
func newOutMsg() (*outMsg, error) {
	m, seg, err := emptyMsg()
	if err != nil {
		return nil, err
	}
	m.root, err = rpccp.NewRootMessage(seg)
	return m, err
}

// free returns the memory to the pool. Nothing may point into the message any more.
func (m *outMsg) free() {
	if m == nil {
		return
	}
	m.root, m.seg, m.caps = rpccp.Message{}, nil, CapTable{}
	if poisonFreed {
		poisonMessage(&m.msg)
		return
	}
	if m.msg.CapTable().Len() > 0 { // not used by Mooring, but available to place functions
		m.msg.CapTable().Reset()
	}
	// Message.Reset would do, but clears all of it; nothing else in it belongs to the previous message.
	m.msg.Arena.Release()
	m.msg.Arena = nil
	outMsgs.Put(m)
}

// takeCaps returns the capabilities that place has put in, for the caller to release.
func (m *outMsg) takeCaps() CapTable {
	if m == nil {
		return CapTable{}
	}
	caps := m.caps
	m.caps = CapTable{}
	return caps
}

// newCall returns a message with a call whose parameters place has filled in. If place fails, or panics, the message is
// freed.
func newCall(m Method, sz capnp.ObjectSize, place func(capnp.Struct, *CapTable) error) (*outMsg, error) {
	out, params, err := callTemplate.newContent(sz)
	if err != nil {
		return nil, err
	}
	out.setMethod(m)
	if place == nil {
		return out, nil
	}
	placed := false
	defer func() {
		if !placed {
			caps := out.takeCaps()
			caps.release(nil)
			out.free()
		}
	}()
	if err := place(params, &out.caps); err != nil {
		return nil, err
	}
	placed = true
	return out, nil
}

// envelope returns the message as the generated code reads it.
func (m *outMsg) envelope() (rpccp.Message, error) {
	if m.root.IsValid() {
		return m.root, nil
	}
	return rpccp.ReadRootMessage(&m.msg)
}

// params returns the parameters of a message with a call of ours.
func (m *outMsg) params() (rpccp.Call, rpccp.Payload, error) {
	root, err := m.envelope()
	if err != nil {
		return rpccp.Call{}, rpccp.Payload{}, err
	}
	call, err := root.Call()
	if err != nil {
		return rpccp.Call{}, rpccp.Payload{}, err
	}
	payload, err := call.Params()
	return call, payload, err
}

// results returns the results of a message with a return of ours.
func (m *outMsg) results() (rpccp.Return, rpccp.Payload, error) {
	root, err := m.envelope()
	if err != nil {
		return rpccp.Return{}, rpccp.Payload{}, err
	}
	ret, err := root.Return()
	if err != nil {
		return rpccp.Return{}, rpccp.Payload{}, err
	}
	payload, err := ret.Results()
	return ret, payload, err
}

// newReturn makes m a return, using the generated code.
func newReturn(m rpccp.Message) (rpccp.Return, error) {
	ret, err := m.NewReturn()
	if err == nil {
		ret.SetReleaseParamCaps(false)
	}
	return ret, err
}

// newResults makes a return with results, likewise.
func (m *outMsg) newResults() (rpccp.Payload, error) {
	ret, err := newReturn(m.root)
	if err != nil {
		return rpccp.Payload{}, err
	}
	return ret.NewResults()
}

// newBootstrapResults returns a message with a return that carries one capability and nothing else.
func newBootstrapResults() (*outMsg, error) {
	out, err := newOutMsg()
	if err != nil {
		return nil, err
	}
	payload, err := out.newResults()
	if err != nil {
		return nil, err
	}
	return out, payload.SetContent(capnp.NewInterface(payload.Segment(), 0).ToPtr())
}

// maxReasonBytes bounds the bytes of a reason that are sent and kept.
const maxReasonBytes = 4096

// writeException writes an exception, shortened to fit into a message.
func (co *core) writeException(e rpccp.Exception, ex *Exception) error {
	return writeException(e, ex, co.maxReason())
}

// maxReason is how long a reason may be for its exception to fit into SendBytes: the rest takes less than 100.
func (co *core) maxReason() int { return min(maxReasonBytes, co.limits.SendBytes/3) }

func writeException(e rpccp.Exception, ex *Exception, most int) error {
	e.SetType(rpccp.Exception_Type(ex.Type))
	return e.SetReason(transport.Clip(ex.Reason, most))
}

func readException(e rpccp.Exception) *Exception {
	reason, err := e.ReasonBytes()
	if err != nil {
		reason = []byte("an exception that cannot be read")
	}
	t := ExceptionType(e.Type())
	if t > Unimplemented {
		t = Failed
	}
	text := strings.ToValidUTF8(string(reason[:min(len(reason), maxReasonBytes+utf8.UTFMax)]), "?")
	return &Exception{Type: t, Reason: transport.Clip(text, maxReasonBytes), Remote: true}
}

// envelopeBytes bounds the envelope of a message with caps capabilities.
func envelopeBytes(caps int) int { return 256 + (1+caps)*(16+transformBytes) }

// transformBytes bounds a pipeline's path in a message.
const transformBytes = 32 + 8*maxHops

// newEnvelope gives a copied message a new root, behind the copied bytes. The old one is a peer's and must not be
// written to: its parts may overlap, so that writing to one changes another.
func (m *outMsg) newEnvelope() error {
	seg, err := m.msg.Segment(0)
	if err != nil {
		return err
	}
	root, err := capnp.NewStruct(seg, capnp.ObjectSize{DataSize: 8, PointerCount: 1})
	if err != nil {
		return err
	}
	m.root = rpccp.Message(root)
	return m.msg.SetRoot(root.ToPtr())
}

// copyMessage copies a message segment by segment, with room for slack more bytes, so that it can be sent on with
// another envelope while its content, capability indexes included, stays unchanged.
func copyMessage(src *capnp.Message, slack int) (*outMsg, error) {
	segs := make([][]byte, src.NumSegments())
	for i := range segs {
		seg, err := src.Segment(capnp.SegmentID(i))
		if err != nil {
			return nil, err
		}
		data := seg.Data()
		room := 0
		if i == len(segs)-1 {
			room = slack
		}
		segs[i] = append(make([]byte, 0, len(data)+room), data...)
	}
	m := new(outMsg)
	m.msg.TraverseLimit = math.MaxInt64
	if _, err := m.msg.Reset(capnp.MultiSegment(segs)); err != nil {
		return nil, err
	}
	root, err := rpccp.ReadRootMessage(&m.msg)
	m.root = root
	return m, err
}
