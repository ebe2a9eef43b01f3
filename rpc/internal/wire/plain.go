// Plain messages, read without the generated code: a call on an export of ours, and results, neither with capabilities, in
// one segment, as nearly all messages are. Reading the five structs of an envelope through the generated code takes longer
// than acting on them. A message that is unusual in any way is not plain, and is read by the generated code: so no rule of
// the protocol is implemented here alone. Without it, 64 echoes in flight run at 0.73 of the speed
// (docs/benchmarks.md, "Tricks on trial").

package wire

import (
	"encoding/binary"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/capnpfast"
)

// Plain is the envelope of a plain Call or Return.
type Plain struct {
	Which rpccp.Message_Which
	ID    uint32 // of the question

	Target    uint32 // of a Call: our export
	Interface uint64
	Method    uint16

	ReleaseParams bool // of a Return
	NoFinish      bool

	content uint64           // the pointer to the content, as it would be at the root pointer's position
	root    capnpfast.Region // where the content is
	cost    uint64           // bytes the generated code would count as read, content aside
}

// plainDepth is how many pointers lead to the content, its own not counted.
const plainDepth = 3

// ReadPlain reads the envelope of a message; ok is false if it is not plain.
func ReadPlain(frame []byte, lim *Limits) (m Plain, ok bool) {
	if len(frame) < 2*wordBytes || binary.LittleEndian.Uint32(frame) != 0 ||
		uint64(binary.LittleEndian.Uint32(frame[4:])) != uint64(len(frame)/wordBytes-1) || len(frame)%wordBytes != 0 {
		return m, false
	}
	s := capnpfast.Segment(frame[wordBytes:])
	root, ok := s.Follow(0)
	if !ok || root.Data < 1 || root.Pointers < 1 {
		return m, false
	}
	body, ok := s.Follow(root.At + root.Data)
	if !ok {
		return m, false
	}
	m.Which = rpccp.Message_Which(binary.LittleEndian.Uint16(s[root.At*wordBytes:]))
	data, pointers := s[body.At*wordBytes:], body.At+body.Data
	m.cost = root.Cost() + body.Cost()
	switch m.Which {
	case rpccp.Message_Which_call:
		if body.Data < 2 || body.Pointers < 2 || binary.LittleEndian.Uint16(data[callResultsToAt:]) != 0 {
			return m, false
		}
		target, ok := s.Follow(pointers)
		if !ok || target.Data < 1 {
			return m, false
		}
		to := s[target.At*wordBytes:]
		if binary.LittleEndian.Uint16(to[targetWhichAt:]) != 0 {
			return m, false
		}
		m.ID = binary.LittleEndian.Uint32(data[callQuestionAt:])
		m.Target = binary.LittleEndian.Uint32(to[targetImportAt:])
		m.Interface = binary.LittleEndian.Uint64(data[callInterfaceAt:])
		m.Method = binary.LittleEndian.Uint16(data[callMethodAt:])
		m.cost += target.Cost()
		return m, m.readPayload(s, pointers+1, lim)
	case rpccp.Message_Which_return:
		if body.Data < 1 || body.Pointers < 1 || binary.LittleEndian.Uint16(data[returnWhichAt:]) != 0 {
			return m, false
		}
		m.ID = binary.LittleEndian.Uint32(data[returnAnswerAt:])
		m.ReleaseParams = data[returnHintsAt]&keepParamCaps == 0
		m.NoFinish = data[returnHintsAt]&noFinishNeeded != 0
		return m, m.readPayload(s, pointers, lim)
	}
	return m, false
}

// readPayload reads the Payload that the pointer at a word points to.
func (m *Plain) readPayload(s capnpfast.Segment, at int, lim *Limits) bool {
	payload, ok := s.Follow(at)
	if !ok || payload.Pointers < 1 {
		return false
	}
	at = payload.At + payload.Data
	if payload.Pointers > 1 && binary.LittleEndian.Uint64(s[(at+1)*wordBytes:]) != 0 { // it has a capTable
		return false
	}
	content, ok := s.Follow(at)
	if !ok {
		return false
	}
	const offset = 1<<32 - 1 // in the pointer's lower half
	m.content = binary.LittleEndian.Uint64(s[at*wordBytes:])&^offset | uint64(uint32(content.At-1)<<2)
	m.root = content
	m.cost += payload.Cost()
	return m.content != 0 && lim.Nesting > plainDepth && lim.Traversal > 0 &&
		m.cost+max(content.Cost(), 1) <= uint64(lim.Traversal)
}

// ReadContent finds the content of a plain message, parsed from the frame that m was read from: for the generated code,
// and for programs that read without it. The former reaches it through the root pointer only, which is changed for that and
// restored.
func (in *In) ReadContent(frame []byte, m *Plain) error {
	root := frame[wordBytes : 2*wordBytes]
	was := binary.LittleEndian.Uint64(root)
	binary.LittleEndian.PutUint64(root, m.content)
	in.msg.DepthLimit -= plainDepth
	in.msg.TraverseLimit -= m.cost
	var err error
	in.Content, err = in.msg.Root()
	if in.msg.DepthLimit > capnpfast.MaxDepth {
		in.PlainContent = capnpfast.NewMessage(frame[wordBytes:], m.root, in.msg.TraverseLimit-m.root.Cost())
	}
	in.msg.DepthLimit += plainDepth
	in.msg.TraverseLimit += m.cost
	binary.LittleEndian.PutUint64(root, was)
	return err
}
