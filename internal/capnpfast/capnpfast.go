// Package capnpfast reads and writes the structs of a message by hand, word by word, where the generated code, pointer by
// pointer, takes longer than all that is done with what they say. It knows messages of one segment and what is usual in
// them: structs, lists of structs, texts. All else is left to the generated code: code that reads by hand learns in the end
// whether there was something else (Message.Supported), and then starts over with that code. So no rule of the serialization
// is here alone, and what is read by hand is exactly what the generated code would have read, within the same limits. Without
// it, an op in a batch of 32 takes 1.08 to 1.18 times the CPU (docs/benchmarks.md, "Tricks on trial").
package capnpfast

import "encoding/binary"

// Bytes is the size of a word.
const Bytes = 8

// MaxDepth is how many pointers below a message's content may be followed: a message that is read by hand must be allowed
// to nest so deep. The readers follow as many as the schema has them follow, which are fewer.
const MaxDepth = 8

// Kinds of pointers and lists.
const (
	structKind    = 0
	listKind      = 1
	kindBits      = 3
	byteList      = 2
	compositeList = 7
	listBits      = 7
)

// Segment is the memory of a message's only segment, a whole number of words.
type Segment []byte

// Region is where a struct is in a segment, in words.
type Region struct{ At, Data, Pointers int }

// Follow finds the struct that the pointer at a word points to.
func (s Segment) Follow(at int) (r Region, ok bool) {
	p := s.word(at)
	r = structAt(at, p)
	return r, p != 0 && p&kindBits == structKind && r.At >= 0 && r.At+r.Data+r.Pointers <= len(s)/Bytes
}

func (s Segment) word(at int) uint64 { return binary.LittleEndian.Uint64(s[at*Bytes:]) }

// structAt is what a struct pointer at a word says.
func structAt(at int, p uint64) Region {
	return Region{At: target(at, p), Data: int(p >> 32 & 0xffff), Pointers: int(p >> 48)}
}

// target is the word that a pointer at a word points to, which may be anywhere.
func target(at int, p uint64) int { return at + 1 + int(int32(uint32(p))>>2) }

// Cost is what reading a struct counts.
func (r Region) Cost() uint64 { return uint64(r.Data+r.Pointers) * Bytes }

// Message is one reading of a message by hand. A copy is another reading, which counts for itself.
type Message struct {
	seg         Segment
	root        Region
	bytesLeft   uint64 // how many bytes may be read still, repeated reads counted
	unsupported bool   // something was not as usual, or too much
}

// NewMessage is a message whose content is at root, of which so many bytes may be read.
func NewMessage(seg Segment, root Region, limit uint64) Message {
	return Message{seg: seg, root: root, bytesLeft: limit}
}

// IsValid says that it is a message, as the zero Message is not.
func (m *Message) IsValid() bool { return m.seg != nil }

// Supported says that all that was read so far is what the generated code would have read. If it is not, what was read is to
// be thrown away.
func (m *Message) Supported() bool { return !m.unsupported }

// Size is the size of the segment.
func (m *Message) Size() int { return len(m.seg) }

// Root is the message's content.
func (m *Message) Root() Struct { return Struct{m, m.root} }

// spend counts bytes that are read.
func (m *Message) spend(n uint64) bool {
	if m.unsupported || n > m.bytesLeft {
		m.unsupported = true
		return false
	}
	m.bytesLeft -= n
	return true
}

// Struct is a struct in a message that is being read. What lies beyond its sections, as in a struct of an older peer,
// reads as 0 or null.
type Struct struct {
	m *Message
	Region
}

// Uint64 is the number at a byte of the data section, as are those that follow.
func (s Struct) Uint64(at int) uint64 {
	if at+8 > s.Data*Bytes {
		return 0
	}
	return binary.LittleEndian.Uint64(s.m.seg[s.At*Bytes+at:])
}

func (s Struct) Uint32(at int) uint32 {
	if at+4 > s.Data*Bytes {
		return 0
	}
	return binary.LittleEndian.Uint32(s.m.seg[s.At*Bytes+at:])
}

func (s Struct) Uint16(at int) uint16 {
	if at+2 > s.Data*Bytes {
		return 0
	}
	return binary.LittleEndian.Uint16(s.m.seg[s.At*Bytes+at:])
}

func (s Struct) Uint8(at int) uint8 {
	if at >= s.Data*Bytes {
		return 0
	}
	return s.m.seg[s.At*Bytes+at]
}

// Bit is the bit so many bits from the start of the data section.
func (s Struct) Bit(n int) bool { return s.Uint8(n/8)>>(n%8)&1 != 0 }

// pointer is the i'th pointer and where it is; 0 is null.
func (s Struct) pointer(i int) (at int, p uint64) {
	if i >= s.Pointers {
		return 0, 0
	}
	at = s.At + s.Data + i
	return at, s.m.seg.word(at)
}

// Null says that the i'th pointer is null.
func (s Struct) Null(i int) bool {
	_, p := s.pointer(i)
	return p == 0
}

// Text is what the i'th pointer points to, in the message's memory; nil for null.
func (s Struct) Text(i int) []byte {
	b := s.Bytes(i)
	if b == nil {
		return nil
	}
	n := len(b) - 1
	if n < 0 || b[n] != 0 {
		s.m.unsupported = true
		return nil
	}
	return b[:n:n]
}

// Bytes is the data that the i'th pointer points to, in the message's memory; nil for null.
func (s Struct) Bytes(i int) []byte {
	at, p := s.pointer(i)
	if p == 0 {
		return nil
	}
	m := s.m
	start, n := target(at, p), int(p>>35)
	if p&kindBits != listKind || p>>32&listBits != byteList || start < 0 || start > len(m.seg)/Bytes || n > len(m.seg)-start*Bytes || !m.spend(uint64(n)) {
		m.unsupported = true
		return nil
	}
	start *= Bytes
	return m.seg[start : start+n : start+n]
}

// Struct is the struct that the i'th pointer points to; one that is null is not usual.
func (s Struct) Struct(i int) Struct {
	m := s.m
	if i < s.Pointers {
		if r, ok := m.seg.Follow(s.At + s.Data + i); ok && m.spend(r.Cost()) {
			return Struct{m, r}
		}
	}
	m.unsupported = true
	return Struct{m: m}
}

// List is the list of structs that the i'th pointer points to; empty for null.
func (s Struct) List(i int) List {
	at, p := s.pointer(i)
	m := s.m
	if p == 0 {
		return List{m: m}
	}
	tag, size, end := target(at, p), int(p>>35), len(m.seg)/Bytes
	if p&kindBits != listKind || p>>32&listBits != compositeList || tag < 0 || tag >= end || size > end-tag-1 {
		m.unsupported = true
		return List{m: m}
	}
	w := m.seg.word(tag)
	l := List{m: m, at: tag + 1, n: int(int32(uint32(w)) >> 2), data: int(w >> 32 & 0xffff), pointers: int(w >> 48)}
	each := uint64(l.data + l.pointers)
	// Without a size they count as a word each.
	if w&kindBits != structKind || l.n < 0 || uint64(l.n)*each > uint64(end-l.at) || !m.spend(uint64(l.n)*max(each, 1)*Bytes) {
		m.unsupported = true
		return List{m: m}
	}
	return l
}

// List is a list of structs in a message that is being read.
type List struct {
	m                 *Message
	at                int
	n, data, pointers int
}

// Len is how many structs there are.
func (l List) Len() int { return l.n }

// At is the i'th struct, of those that there are.
func (l List) At(i int) Struct {
	return Struct{l.m, Region{At: l.at + i*(l.data+l.pointers), Data: l.data, Pointers: l.pointers}}
}
