// Out: a message of ours under construction.

package wire

import (
	"math"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// Out is a message to be sent, or one that stays in the vat. The methods named Init make a message of one that is new or has
// been Reset, those named Copy of one that is new.
type Out struct {
	msg  capnp.Message
	root rpccp.Message  // set by the generated code, or
	seg  *capnp.Segment // the segment of a plain message written from a template
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
	m.root, m.seg = rpccp.Message{}, nil
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
func (m *Out) Size() int { return framing.MessageSize(&m.msg) }

// Append appends the message to b, with framing.
func (m *Out) Append(b []byte) ([]byte, error) { return framing.Append(b, &m.msg) }

// Root returns the message as the generated code reads it.
func (m *Out) Root() (rpccp.Message, error) {
	if m.root.IsValid() {
		return m.root, nil
	}
	return rpccp.ReadRootMessage(&m.msg)
}

// Params returns the parameters of a message with a call of ours.
func (m *Out) Params() (rpccp.Call, rpccp.Payload, error) {
	root, err := m.Root()
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

// Results returns the results of a message with a return of ours.
func (m *Out) Results() (rpccp.Return, rpccp.Payload, error) {
	root, err := m.Root()
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

// NewReturn makes m a return, using the generated code.
func NewReturn(m rpccp.Message) (rpccp.Return, error) {
	ret, err := m.NewReturn()
	if err == nil {
		ret.SetReleaseParamCaps(false)
	}
	return ret, err
}

// newResults makes a return with results, likewise.
func (m *Out) newResults() (rpccp.Payload, error) {
	ret, err := NewReturn(m.root)
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
