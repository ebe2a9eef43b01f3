// Laying out by hand: memory at the end of a segment, and pointers in it.

package capnpfast

import (
	"encoding/binary"

	"capnproto.org/go/capnp/v3"
)

// Builder is the end of a segment, reserved at once to be laid out by hand: pointers are put where there is room for them
// already, and what they point to is put behind all that was put before, as the generated code would have it.
type Builder struct {
	seg  []byte
	next int // the first free word
}

// maxReserve is how many words one reservation may have: so few that no text in it is too long for its pointer.
const maxReserve = 1<<26 - 1

// Reserve adds so many words to the end of a segment. ok is false if it cannot be done there, and then nothing refers to
// what was reserved elsewhere.
func Reserve(seg *capnp.Segment, size int) (p Builder, ok bool) {
	if size < 0 || size > maxReserve {
		return p, false
	}
	before := len(seg.Data())
	if _, err := capnp.NewUInt64List(seg, int32(size)); err != nil {
		return p, false // and the generated code says what is wrong
	}
	p = Builder{seg: seg.Data(), next: before / Bytes}
	return p, len(p.seg) == before+size*Bytes
}

// PutUint64 writes a number, so many bytes behind a word, as do those that follow.
func (p *Builder) PutUint64(word, at int, v uint64) {
	binary.LittleEndian.PutUint64(p.seg[word*Bytes+at:], v)
}

func (p *Builder) PutUint16(word, at int, v uint16) {
	binary.LittleEndian.PutUint16(p.seg[word*Bytes+at:], v)
}

func (p *Builder) PutUint8(word, at int, v uint8) { p.seg[word*Bytes+at] = v }

// TextSize is how many words a text of n bytes takes: none if it is empty, for then it is null.
func TextSize(n int) int {
	if n == 0 {
		return 0
	}
	return n/Bytes + 1 // it ends with a NUL
}

// PutText writes a text for the pointer at a word.
func (p *Builder) PutText(pointer int, s string) {
	if len(s) > 0 {
		copy(p.text(pointer, len(s)), s)
	}
}

// PutTextBytes is PutText of bytes.
func (p *Builder) PutTextBytes(pointer int, s []byte) {
	if len(s) > 0 {
		copy(p.text(pointer, len(s)), s)
	}
}

// text makes room for a text of n bytes.
func (p *Builder) text(pointer, n int) []byte {
	start := p.next
	p.next += TextSize(n)
	p.PutUint64(pointer, 0, pointerOffset(pointer, start)|listKind|byteList<<32|uint64(n+1)<<35)
	return p.seg[start*Bytes : start*Bytes+n]
}

// ListSize is how many words a list of n structs takes, besides what they point to.
func ListSize(n int, each Size) int { return 1 + n*each.Words() }

// Size is the size of a struct, in words.
type Size struct{ Data, Pointers int }

// Words is how many words it has in all.
func (s Size) Words() int { return s.Data + s.Pointers }

// Bytes is how many bytes these are.
func (s Size) Bytes() int { return s.Words() * Bytes }

// PutList makes room for a list of n structs for the pointer at a word, and says at which word the first of them begins.
func (p *Builder) PutList(pointer, n int, each Size) (first int) {
	tag := p.next
	p.next += ListSize(n, each)
	p.PutUint64(pointer, 0, pointerOffset(pointer, tag)|listKind|compositeList<<32|uint64(n*each.Words())<<35)
	p.PutUint64(tag, 0, uint64(uint32(n)<<2)|uint64(each.Data)<<32|uint64(each.Pointers)<<48)
	return tag + 1
}

// pointerOffset is the offset in a pointer at one word to another.
func pointerOffset(from, to int) uint64 { return uint64(uint32(to-from-1) << 2) }
