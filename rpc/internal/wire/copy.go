// Copies of a peer's messages, to be sent on with another envelope, while their contents, capability indexes included, stay
// unchanged.

package wire

import (
	"errors"
	"math"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// CopyCall makes m a copy of the message that holds a call of a peer, with room for the descriptors of caps capabilities.
func (m *Out) CopyCall(in *In, iface uint64, method uint16, caps int) error {
	if err := m.copyMessage(&in.msg, envelopeBytes(caps)); err != nil {
		return err
	}
	old, err := m.root.Call()
	if err != nil {
		return err
	}
	params, err := old.Params()
	if err != nil {
		return err
	}
	content, err := params.Content()
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
	if m.root.Which() != rpccp.Message_Which_return {
		return errors.New("not a return")
	}
	old, err := m.root.Return()
	if err != nil {
		return err
	}
	if old.Which() != rpccp.Return_Which_results {
		return errors.New("not results")
	}
	results, err := old.Results()
	if err != nil {
		return err
	}
	if content, err = results.Content(); err != nil {
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
