// Plain messages, read by hand: a call on an export of ours, and results, neither with capabilities, in one segment, as
// nearly all messages are. To read the five structs of an envelope through the generated code takes longer than all that
// is done with what they say. What is unusual in any way at all is not plain, and the generated code reads it: so no rule
// of the protocol is here alone.

package rpc

import (
	"encoding/binary"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// plain is what a plain Call or Return says.
type plain struct {
	which rpccp.Message_Which
	id    uint32 // of the question

	target uint32 // of a Call: our export
	method Method

	releaseParams bool // of a Return
	noFinish      bool

	content uint64 // the pointer to the content, as it would be in the root pointer's place
	cost    uint64 // what the generated code would count as read, content aside
}

// plainDepth is how many pointers lead to the content, its own aside.
const plainDepth = 3

// region is where a struct is in a segment, in words.
type region struct{ at, data, pointers int }

// segment is the memory of one, a whole number of words.
type segment []byte

// follow finds the struct that the pointer at a word points to.
func (s segment) follow(at int) (r region, ok bool) {
	p := binary.LittleEndian.Uint64(s[at*wordBytes:])
	r.at = at + 1 + int(int32(uint32(p))>>2)
	r.data, r.pointers = int(p>>32&0xffff), int(p>>48)
	return r, p != 0 && p&3 == 0 && r.at >= 0 && r.at+r.data+r.pointers <= len(s)/wordBytes
}

// cost is what reading a struct counts.
func (r region) cost() uint64 { return uint64(r.data+r.pointers) * wordBytes }

// readPlain tells a plain message and reads its envelope.
func readPlain(frame []byte, lim *Limits) (m plain, ok bool) {
	if len(frame) < 2*wordBytes || binary.LittleEndian.Uint32(frame) != 0 ||
		uint64(binary.LittleEndian.Uint32(frame[4:])) != uint64(len(frame)/wordBytes-1) || len(frame)%wordBytes != 0 {
		return m, false
	}
	s := segment(frame[wordBytes:])
	root, ok := s.follow(0)
	if !ok || root.data < 1 || root.pointers < 1 {
		return m, false
	}
	body, ok := s.follow(root.at + root.data)
	if !ok {
		return m, false
	}
	m.which = rpccp.Message_Which(binary.LittleEndian.Uint16(s[root.at*wordBytes:]))
	data, pointers := s[body.at*wordBytes:], body.at+body.data
	m.cost = root.cost() + body.cost()
	switch m.which {
	case rpccp.Message_Which_call:
		if body.data < 2 || body.pointers < 2 || binary.LittleEndian.Uint16(data[callResultsToAt:]) != 0 {
			return m, false
		}
		target, ok := s.follow(pointers)
		if !ok || target.data < 1 {
			return m, false
		}
		to := s[target.at*wordBytes:]
		if binary.LittleEndian.Uint16(to[targetWhichAt:]) != 0 {
			return m, false
		}
		m.id = binary.LittleEndian.Uint32(data[callQuestionAt:])
		m.target = binary.LittleEndian.Uint32(to[targetImportAt:])
		m.method.Interface = binary.LittleEndian.Uint64(data[callInterfaceAt:])
		m.method.ID = binary.LittleEndian.Uint16(data[callMethodAt:])
		m.cost += target.cost()
		return m, m.readPayload(s, pointers+1, lim)
	case rpccp.Message_Which_return:
		if body.data < 1 || body.pointers < 1 || binary.LittleEndian.Uint16(data[returnWhichAt:]) != 0 {
			return m, false
		}
		m.id = binary.LittleEndian.Uint32(data[returnAnswerAt:])
		m.releaseParams = data[returnHintsAt]&keepParamCaps == 0
		m.noFinish = data[returnHintsAt]&noFinishNeeded != 0
		return m, m.readPayload(s, pointers, lim)
	}
	return m, false
}

// readPayload reads the Payload that the pointer at a word points to.
func (m *plain) readPayload(s segment, at int, lim *Limits) bool {
	payload, ok := s.follow(at)
	if !ok || payload.pointers < 1 {
		return false
	}
	at = payload.at + payload.data
	if payload.pointers > 1 && binary.LittleEndian.Uint64(s[(at+1)*wordBytes:]) != 0 { // it has a capTable
		return false
	}
	content, ok := s.follow(at)
	if !ok {
		return false
	}
	const offset = 1<<32 - 1 // in the pointer's lower half
	m.content = binary.LittleEndian.Uint64(s[at*wordBytes:])&^offset | uint64(uint32(content.at-1)<<2)
	m.cost += payload.cost()
	return m.content != 0 && lim.Nesting > plainDepth && lim.Traversal > 0 &&
		m.cost+max(content.cost(), 1) <= uint64(lim.Traversal)
}

// readContent finds the content of a plain message, parsed from the frame that m was read from. There is no way to have
// it but through the root pointer, which is changed for that and put back.
func (in *inMsg) readContent(frame []byte, m *plain) error {
	root := frame[wordBytes : 2*wordBytes]
	was := binary.LittleEndian.Uint64(root)
	binary.LittleEndian.PutUint64(root, m.content)
	in.msg.DepthLimit -= plainDepth
	in.msg.TraverseLimit -= m.cost
	var err error
	in.content, err = in.msg.Root()
	in.msg.DepthLimit += plainDepth
	in.msg.TraverseLimit += m.cost
	binary.LittleEndian.PutUint64(root, was)
	return err
}

// handlePlain takes in a plain message.
func (co *core) handlePlain(in *inMsg, m *plain) error {
	if m.which == rpccp.Message_Which_return {
		return co.takeReturn(in, &incomingReturn{
			id: m.id, releaseParams: m.releaseParams, noFinish: m.noFinish, plain: true,
		})
	}
	dst, err := co.importedCap(m.target, "call")
	if err != nil {
		return err
	}
	return co.takeCall(in, &incomingCall{id: m.id, method: m.method, dst: dst})
}
