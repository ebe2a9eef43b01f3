// Out: a message of ours under construction, or a copy of a peer's that is sent on with another envelope, while its content,
// capability indexes included, stays unchanged.

package wire

import (
	"math"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// Out is a message to be sent, or one that stays in the vat. The methods named Init make a message of one that is new or has
// been Reset, those named Copy of one that is new.
type Out struct {
	msg  capnp.Message
	root rpccp.Message  // set by the generated code, or
	seg  *capnp.Segment // the segment of a plain message written from a template
	tail []byte         // what follows it in the message, and is shared with others; joined before it is read
}

// init makes m empty, and returns its segment.
func (m *Out) init() (*capnp.Segment, error) {
	m.msg.Arena = capnp.SingleSegment(nil)
	m.msg.TraverseLimit = math.MaxInt64 // we may read what we wrote
	return m.msg.Segment(0)
}

// Init makes m a message with nothing but its root.
func (m *Out) Init() (rpccp.Message, error) {
	seg, err := m.init()
	if err == nil {
		m.root, err = rpccp.NewRootMessage(seg)
	}
	return m.root, err
}

// Reset releases the message's memory: nothing may point into it any more. It reports whether m may be used again.
func (m *Out) Reset() bool {
	m.root, m.seg, m.tail = rpccp.Message{}, nil, nil
	if PoisonFreed {
		poisonMessage(&m.msg)
		return false
	}
	if m.msg.CapTable().Len() > 0 { // not used by Mooring, but available to place functions
		m.msg.CapTable().Reset()
	}
	// Message.Reset would do, but clears all of it; nothing else in it belongs to the previous message.
	m.msg.Arena.Release()
	m.msg.Arena = nil
	return true
}

// Size returns the size of the message with framing, in bytes.
func (m *Out) Size() int { return framing.MessageSize(&m.msg) + len(m.tail) }

// Append appends the message to b, with framing.
func (m *Out) Append(b []byte) ([]byte, error) {
	if m.tail != nil {
		return framing.AppendSegment(b, m.seg.Data(), m.tail), nil
	}
	return framing.Append(b, &m.msg)
}

// Join copies the tail into the segment, for the generated code to find it.
func (m *Out) Join() error {
	if m.tail == nil {
		return nil
	}
	at := len(m.seg.Data())
	if _, ok := capnpfast.Reserve(m.seg, len(m.tail)/wordBytes); !ok {
		return framing.Error("there is no room for the parameters in one segment")
	}
	copy(m.seg.Data()[at:], m.tail)
	m.tail = nil
	return nil
}

// Root returns the message as the generated code reads it.
func (m *Out) Root() (rpccp.Message, error) {
	if err := m.Join(); err != nil {
		return rpccp.Message{}, err
	}
	if m.root.IsValid() {
		return m.root, nil
	}
	return rpccp.ReadRootMessage(&m.msg)
}

// Params returns a call, its parameters, and the content of these.
func (m *Out) Params() (call rpccp.Call, params rpccp.Payload, content capnp.Ptr, err error) {
	root, err := m.Root()
	if err == nil {
		call, err = root.Call()
	}
	if err == nil {
		params, err = call.Params()
	}
	if err == nil {
		content, err = params.Content()
	}
	return call, params, content, err
}

// Results returns a return with results, these, and their content.
func (m *Out) Results() (ret rpccp.Return, results rpccp.Payload, content capnp.Ptr, err error) {
	root, err := m.Root()
	if err == nil {
		ret, err = root.Return()
	}
	if err == nil {
		results, err = ret.Results()
	}
	if err == nil {
		content, err = results.Content()
	}
	return ret, results, content, err
}

// NewReturn makes m a return, using the generated code.
func NewReturn(m rpccp.Message, answer uint32) (rpccp.Return, error) {
	ret, err := m.NewReturn()
	if err == nil {
		ret.SetAnswerId(answer)
		ret.SetReleaseParamCaps(false)
	}
	return ret, err
}

// newResults makes a return with results, likewise, whose answer is set when it is sent.
func (m *Out) newResults() (rpccp.Payload, error) {
	ret, err := NewReturn(m.root, 0)
	if err != nil {
		return rpccp.Payload{}, err
	}
	return ret.NewResults()
}

// InitCapability makes m a return that carries one capability and nothing else.
func (m *Out) InitCapability() error {
	if _, err := m.Init(); err != nil {
		return err
	}
	payload, err := m.newResults()
	if err != nil {
		return err
	}
	return payload.SetContent(capnp.NewInterface(payload.Segment(), 0).ToPtr())
}

// CopyCall makes m a copy of the message that holds a call of a peer, with room for the descriptors of caps capabilities.
func (m *Out) CopyCall(in *In, iface uint64, method uint16, caps int) error {
	if err := m.copyMessage(&in.msg, envelopeBytes(caps)); err != nil {
		return err
	}
	_, _, content, err := m.Params()
	if err != nil {
		return err
	}
	if err := m.newEnvelope(); err != nil {
		return err
	}
	call, err := m.root.NewCall()
	if err != nil {
		return err
	}
	call.SetInterfaceId(iface)
	call.SetMethodId(method)
	payload, err := call.NewParams()
	if err != nil {
		return err
	}
	return payload.SetContent(content)
}

// CopyResults makes m a copy of the message that holds content, the results of a Return, likewise.
func (m *Out) CopyResults(content capnp.Ptr, caps int) error {
	if !content.IsValid() {
		_, err := m.InitResults(capnp.ObjectSize{})
		return err
	}
	if err := m.copyMessage(content.Message(), envelopeBytes(caps)); err != nil {
		return err
	}
	_, _, content, err := m.Results()
	if err != nil {
		return err
	}
	if err := m.newEnvelope(); err != nil {
		return err
	}
	payload, err := m.newResults()
	if err != nil {
		return err
	}
	return payload.SetContent(content)
}

// CopyUnimplemented makes m an Unimplemented with a copy of a message: hardly larger than that, since it is copied segment by
// segment.
func (m *Out) CopyUnimplemented(in *In) error {
	if err := m.copyMessage(&in.msg, 64); err != nil {
		return err
	}
	echoed := m.root
	if err := m.newEnvelope(); err != nil {
		return err
	}
	return m.root.SetUnimplemented(echoed)
}

// envelopeBytes bounds the envelope of a message with caps capabilities.
func envelopeBytes(caps int) int { return 256 + (1+caps)*(16+transformBytes) }

// transformBytes bounds a pipeline's path in a message, of at most 64 steps.
const transformBytes = 32 + 8*64

// newEnvelope gives a copied message a new root, behind the copied bytes. The old one is a peer's and must not be
// written to: its parts may overlap, so that writing to one changes another.
func (m *Out) newEnvelope() error {
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

// copyMessage makes m a copy of a message, segment by segment, with room for slack more bytes.
func (m *Out) copyMessage(src *capnp.Message, slack int) error {
	segs := make([][]byte, src.NumSegments())
	for i := range segs {
		seg, err := src.Segment(capnp.SegmentID(i))
		if err != nil {
			return err
		}
		data := seg.Data()
		room := 0
		if i == len(segs)-1 {
			room = slack
		}
		segs[i] = append(make([]byte, 0, len(data)+room), data...)
	}
	m.msg.TraverseLimit = math.MaxInt64
	if _, err := m.msg.Reset(capnp.MultiSegment(segs)); err != nil {
		return err
	}
	var err error
	m.root, err = rpccp.ReadRootMessage(&m.msg)
	return err
}
