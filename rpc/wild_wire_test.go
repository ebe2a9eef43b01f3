// The wild peer's pen: it writes rpc.capnp's messages word by word, fast, so that every field, tag and pointer can be
// wrong on purpose. The layouts are those of rpc.capnp's compiler.

package rpc

import (
	"encoding/binary"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// pen writes one message of one segment, header first.
type pen struct{ b []byte }

const penHeader = 8

// begin starts a message and gives its body: a struct of so many data and pointer words.
func (p *pen) begin(tag rpccp.Message_Which, data, ptrs int) int {
	p.b = append(p.b[:0], make([]byte, penHeader)...)
	root := p.room(1)
	message := p.object(root, 1, 1)
	p.put16(message, 0, uint16(tag))
	return p.object(message+1, data, ptrs)
}

// end closes the message with its header.
func (p *pen) end() []byte {
	binary.LittleEndian.PutUint32(p.b, 0)
	binary.LittleEndian.PutUint32(p.b[4:], uint32(p.words()))
	return p.b
}

func (p *pen) words() int { return (len(p.b) - penHeader) / framing.WordBytes }

func (p *pen) room(words int) int {
	at := p.words()
	p.b = append(p.b, make([]byte, words*framing.WordBytes)...)
	return at
}

func (p *pen) word(i int) []byte { return p.b[penHeader+i*framing.WordBytes:] }

func (p *pen) put8(at, off int, v uint8)   { p.word(at)[off] = v }
func (p *pen) put16(at, off int, v uint16) { binary.LittleEndian.PutUint16(p.word(at)[off:], v) }
func (p *pen) put32(at, off int, v uint32) { binary.LittleEndian.PutUint32(p.word(at)[off:], v) }
func (p *pen) put64(at, off int, v uint64) { binary.LittleEndian.PutUint64(p.word(at)[off:], v) }

// object makes a struct and points to it from the word at.
func (p *pen) object(at, data, ptrs int) int {
	to := p.room(data + ptrs)
	p.put64(at, 0, uint64(uint32(int32(to-at-1)<<2))|uint64(data)<<32|uint64(ptrs)<<48)
	return to
}

// list makes a list of structs and gives the first.
func (p *pen) list(at, n, data, ptrs int) int {
	tag := p.room(1 + n*(data+ptrs))
	p.put64(at, 0, 1|uint64(uint32(int32(tag-at-1)<<2))|7<<32|uint64(n*(data+ptrs))<<35)
	p.put64(tag, 0, uint64(uint32(n)<<2)|uint64(data)<<32|uint64(ptrs)<<48)
	return tag + 1
}

func (p *pen) text(at int, s string) {
	to := p.room((len(s) + 1 + 7) / 8)
	p.put64(at, 0, 1|uint64(uint32(int32(to-at-1)<<2))|2<<32|uint64(len(s)+1)<<35)
	copy(p.word(to), s)
}

// capIndex makes the word at a capability pointer.
func (p *pen) capIndex(at int, i uint32) { p.put64(at, 0, 3|uint64(i)<<32) }

// wildCap is a descriptor: a tag, a number and, for answers, a path.
type wildCap struct {
	tag  uint16
	id   uint32
	path []uint16
}

func (p *pen) descriptor(at int, c wildCap) {
	p.put16(at, 0, c.tag)
	p.put32(at, 4, c.id)
	switch rpccp.CapDescriptor_Which(c.tag) {
	case rpccp.CapDescriptor_Which_receiverAnswer:
		p.promisedAnswer(at+1, c.id, c.path)
	case rpccp.CapDescriptor_Which_thirdPartyHosted:
		p.put32(p.object(at+1, 1, 1), 0, c.id)
	}
}

func (p *pen) promisedAnswer(at int, q uint32, path []uint16) {
	pa := p.object(at, 1, 1)
	p.put32(pa, 0, q)
	if len(path) == 0 {
		return
	}
	ops := p.list(pa+1, len(path), 1, 0)
	for i, f := range path {
		p.put16(ops+i, 0, uint16(rpccp.PromisedAnswer_Op_Which_getPointerField))
		p.put16(ops+i, 2, f)
	}
}

// wildTarget is a MessageTarget: an import, or a path of an answer.
type wildTarget struct {
	tag  uint16
	id   uint32
	path []uint16
}

func (p *pen) target(at int, t wildTarget) {
	to := p.object(at, 1, 1)
	p.put16(to, 4, t.tag)
	if rpccp.MessageTarget_Which(t.tag) == rpccp.MessageTarget_Which_promisedAnswer {
		p.promisedAnswer(to+1, t.id, t.path)
	} else {
		p.put32(to, 0, t.id)
	}
}

// payload writes the test struct: a number, a text, a capability, and a table.
func (p *pen) payload(at int, number uint64, text string, index uint32, caps []wildCap) {
	pay := p.object(at, 0, 2)
	content := p.object(pay, 1, 2)
	p.put64(content, 0, number)
	if text != "" {
		p.text(content+1, text)
	}
	if len(caps) == 0 {
		return
	}
	p.capIndex(content+2, index)
	list := p.list(pay+1, len(caps), 1, 1)
	for i, c := range caps {
		p.descriptor(list+2*i, c)
	}
}

// bootCap is the payload of a bootstrap's return.
func (p *pen) bootCap(at int, c wildCap) {
	pay := p.object(at, 0, 2)
	p.capIndex(pay, 0)
	p.descriptor(p.list(pay+1, 1, 1, 1), c)
}

func (p *pen) exception(at int, kind uint16, reason string) {
	e := p.object(at, 1, 3)
	p.put16(e, 4, kind)
	p.text(e+1, reason)
}
