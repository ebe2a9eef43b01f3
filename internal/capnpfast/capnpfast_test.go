// That what is read and written by hand is what the generated code reads and writes.

package capnpfast

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/internal/capnpfasttest"
)

// compare follows a path by hand and by way of go-capnp, from the struct that a segment's first word points to, with so
// many bytes to be read in each. Each step is a pointer's number and what is asked of it. It says whether all was usual.
func compare(t *testing.T, seg []byte, limit uint64, path []byte) bool {
	t.Helper()
	seg = bytes.Clone(seg[:len(seg)&^(Bytes-1)])
	if len(seg) == 0 {
		return false
	}
	root, ok := Segment(seg).Follow(0)
	if !ok || root.Cost() > limit {
		return false
	}
	m := NewMessage(seg, root, limit-root.Cost())
	msg := &capnp.Message{Arena: capnp.SingleSegment(seg)}
	msg.ResetReadLimit(limit)
	ptr, err := msg.Root()
	if err != nil {
		t.Fatalf("the root is read by hand, but: %v", err)
	}
	was := bytes.Clone(seg)
	got, want := m.Root(), ptr.Struct()
	for step := 0; ; step++ {
		sameData(t, got, want)
		if step+1 >= len(path) || step/2 > MaxDepth {
			break
		}
		i := int(path[step] % 5)
		if got.Null(i) == want.HasPtr(uint16(i)) {
			t.Fatalf("pointer %d is null by hand: %v", i, got.Null(i))
		}
		step++
		switch path[step] % 3 {
		case 0:
			text := got.Text(i)
			p, err := want.Ptr(uint16(i))
			if m.Supported() && (err != nil || !bytes.Equal(text, p.TextBytes())) {
				t.Fatalf("a text is %q by hand, but %q, %v", text, p.TextBytes(), err)
			}
		case 1:
			inner := got.Struct(i)
			p, err := want.Ptr(uint16(i))
			if m.Supported() && (err != nil || !p.Struct().IsValid()) {
				t.Fatalf("there is a struct by hand, but none: %v", err)
			}
			got, want = inner, p.Struct()
		case 2:
			list := got.List(i)
			p, err := want.Ptr(uint16(i))
			if m.Supported() && (err != nil || list.Len() != p.List().Len()) {
				t.Fatalf("a list has %d elements by hand, but %d, %v", list.Len(), p.List().Len(), err)
			}
			if m.Supported() && list.Len() > 0 {
				at := int(path[step]) % list.Len()
				got, want = list.At(at), p.List().Struct(at)
			}
		}
		if !m.Supported() {
			return false
		}
	}
	if !bytes.Equal(seg, was) {
		t.Fatal("reading has changed the message")
	}
	if m.bytesLeft > 0 && !compare(t, seg, limit-m.bytesLeft, path) { // both count the same
		t.Fatalf("%d bytes of %d were left, and without them it is not usual", m.bytesLeft, limit)
	}
	return true
}

func sameData(t *testing.T, got Struct, want capnp.Struct) {
	t.Helper()
	for at := 0; at < 4*Bytes; at++ {
		off := capnp.DataOffset(at)
		if got.Uint64(at) != want.Uint64(off) || got.Uint16(at) != want.Uint16(off) || got.Uint8(at) != want.Uint8(off) ||
			got.Bit(8*at+5) != want.Bit(capnp.BitOffset(8*at+5)) {
			t.Fatalf("at byte %d there is %x by hand, but %x", at, got.Uint64(at), want.Uint64(off))
		}
	}
}

// tree is a message of structs, lists and texts, a few deep.
func tree(rnd *rand.Rand) []byte {
	_, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err != nil {
		panic(err)
	}
	size := func() capnp.ObjectSize {
		return capnp.ObjectSize{DataSize: capnp.Size(rnd.IntN(4)) * Bytes, PointerCount: uint16(rnd.IntN(5))}
	}
	var fill func(s capnp.Struct, deep int)
	fill = func(s capnp.Struct, deep int) {
		for i := range s.Size().DataSize {
			s.SetUint8(capnp.DataOffset(i), uint8(rnd.Uint32()))
		}
		for i := range s.Size().PointerCount {
			var err error
			switch kind := rnd.IntN(5); {
			case kind == 0:
			case kind == 1 || deep == 0:
				err = s.SetNewText(i, fmt.Sprint(rnd.Uint64())[:rnd.IntN(10)])
			case kind == 2:
				var inner capnp.Struct
				if inner, err = capnp.NewStruct(seg, size()); err == nil {
					err = s.SetPtr(i, inner.ToPtr())
					fill(inner, deep-1)
				}
			default:
				var list capnp.List
				if list, err = capnp.NewCompositeList(seg, size(), int32(rnd.IntN(4))); err == nil {
					err = s.SetPtr(i, list.ToPtr())
					for j := range list.Len() {
						fill(list.Struct(j), deep-1)
					}
				}
			}
			if err != nil {
				panic(err)
			}
		}
	}
	root, err := capnp.NewRootStruct(seg, size())
	if err != nil {
		panic(err)
	}
	fill(root, 3)
	return seg.Data()
}

func TestReading(t *testing.T) {
	t.Parallel()
	rnd := capnpfasttest.Rand(t)
	rounds, usual, spoilt := 30_000, 0, 0
	if testing.Short() {
		rounds /= 10
	}
	for n := range rounds {
		seg := tree(rnd)
		if n%2 == 1 {
			capnpfasttest.Corrupt(rnd, seg)
		}
		path := make([]byte, 2*rnd.IntN(8))
		for i := range path {
			path[i] = byte(rnd.Uint32())
		}
		if !compare(t, seg, uint64(rnd.IntN(1000)), path) {
			continue
		}
		if usual++; n%2 == 1 {
			spoilt++
		}
	}
	if usual < rounds/10 || spoilt < rounds/50 {
		t.Errorf("of %d messages %d were usual, %d of them spoilt", rounds, usual, spoilt)
	}
}

func FuzzReading(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		f.Add(tree(rnd), uint16(1000), []byte{0, 1, 1, 2, 2, 0, 0, 2, 1, 0})
	}
	f.Fuzz(func(t *testing.T, seg []byte, limit uint16, path []byte) { compare(t, seg, uint64(limit), path) })
}

// pointers as they stand in a message.
func listPointer(offset, kind, n int) uint64 {
	return uint64(uint32(offset)<<2) | listKind | uint64(kind)<<32 | uint64(n)<<35
}

func structPointer(offset, data, pointers int) uint64 {
	return uint64(uint32(offset)<<2) | uint64(data)<<32 | uint64(pointers)<<48
}

// TestUnusual reads by hand only what is in the message and as it should be. Each message is a root with one pointer, and
// what follows.
func TestUnusual(t *testing.T) {
	t.Parallel()
	const text, inner, list = 0, 1, 2
	hello := binary.LittleEndian.Uint64([]byte("hello\x00\x00\x00"))
	for _, c := range []struct {
		name  string
		read  byte
		usual bool
		words []uint64
	}{
		{"a text", text, true, []uint64{listPointer(0, byteList, 6), hello}},
		{"a null text", text, true, []uint64{0}},
		{"an empty text", text, true, []uint64{listPointer(0, byteList, 1), 0}},
		{"a text without its NUL", text, false, []uint64{listPointer(0, byteList, 5), hello}},
		{"a text of no bytes", text, false, []uint64{listPointer(0, byteList, 0), hello}},
		{"a text up to the end", text, true, []uint64{listPointer(0, byteList, 8), hello}},
		{"a text beyond the end", text, false, []uint64{listPointer(0, byteList, 9), hello}},
		{"a text of all that can be", text, false, []uint64{listPointer(0, byteList, 1<<29-1), hello}},
		{"a text far behind", text, false, []uint64{listPointer(1<<29-1, byteList, 6), hello}},
		{"a text far before", text, false, []uint64{listPointer(-1<<29, byteList, 6), hello}},
		{"a text before the segment", text, false, []uint64{listPointer(-3, byteList, 6), hello}},
		{"a text on the root pointer", text, true, []uint64{listPointer(-2, byteList, 1), hello}},
		{"a list of words as a text", text, false, []uint64{listPointer(0, 5, 1), hello}},
		{"a struct as a text", text, false, []uint64{structPointer(0, 1, 0), hello}},
		{"a far pointer", text, false, []uint64{2, hello}},
		{"a capability", text, false, []uint64{3, hello}},
		{"a struct", inner, true, []uint64{structPointer(0, 1, 0), hello}},
		{"a struct of nothing", inner, true, []uint64{structPointer(-1, 0, 0)}},
		{"a null struct", inner, false, []uint64{0}},
		{"a struct beyond the end", inner, false, []uint64{structPointer(0, 2, 0), hello}},
		{"a struct of the most", inner, false, []uint64{structPointer(0, 0xffff, 0xffff), hello}},
		{"a struct before the segment", inner, false, []uint64{structPointer(-3, 1, 0), hello}},
		{"the root itself", inner, true, []uint64{structPointer(-1, 0, 1)}},
		{"a list", list, true, []uint64{listPointer(0, compositeList, 2), structPointer(2, 1, 0), 1, 2}},
		{"a null list", list, true, []uint64{0}},
		{"an empty list", list, true, []uint64{listPointer(0, compositeList, 0), structPointer(0, 3, 3)}},
		{"a list without its tag", list, false, []uint64{listPointer(0, compositeList, 0)}},
		{"a list beyond the end", list, false, []uint64{listPointer(0, compositeList, 3), structPointer(2, 1, 0), 1, 2}},
		{"a tag beyond the end", list, false, []uint64{listPointer(0, compositeList, 2), structPointer(3, 1, 0), 1, 2}},
		{"a tag of the most", list, false, []uint64{listPointer(0, compositeList, 2), structPointer(1<<29-1, 0xffff, 0xffff), 1, 2}},
		{"a tag below 0", list, false, []uint64{listPointer(0, compositeList, 2), structPointer(-1, 1, 0), 1, 2}},
		{"a tag of nothing below 0", list, false, []uint64{listPointer(0, compositeList, 0), structPointer(-1, 0, 0)}},
		{"a tag that is no struct's", list, false, []uint64{listPointer(0, compositeList, 2), listPointer(2, 1, 0), 1, 2}},
		{"structs of nothing", list, true, []uint64{listPointer(0, compositeList, 0), structPointer(10, 0, 0)}},
		{"very many of nothing", list, false, []uint64{listPointer(0, compositeList, 0), structPointer(1<<29-1, 0, 0)}},
		{"a list of words", list, false, []uint64{listPointer(0, 5, 1), hello}},
		{"a list of pointers", list, false, []uint64{listPointer(0, 6, 1), 0}},
		{"a list before the segment", list, false, []uint64{listPointer(-3, compositeList, 0), 0}},
		{"a list far before", list, false, []uint64{listPointer(-1<<29, compositeList, 1<<29-1), 0}},
		{"a list far behind", list, false, []uint64{listPointer(1<<29-1, compositeList, 1<<29-1), 0}},
	} {
		seg := binary.LittleEndian.AppendUint64(nil, structPointer(0, 0, 1))
		for _, w := range c.words {
			seg = binary.LittleEndian.AppendUint64(seg, w)
		}
		if got := compare(t, seg, 1000, []byte{0, c.read}); got != c.usual {
			t.Errorf("%s: usual is %v", c.name, got)
		}
	}
}

// TestCounting reads one text again and again, until it has been read too often.
func TestCounting(t *testing.T) {
	t.Parallel()
	seg := Segment(binary.LittleEndian.AppendUint64(nil, structPointer(0, 0, 1)))
	seg = binary.LittleEndian.AppendUint64(seg, listPointer(0, byteList, 6))
	seg = append(seg, "hello\x00\x00\x00"...)
	root, _ := seg.Follow(0)
	m := NewMessage(seg, root, 13)
	again := m // counts for itself
	for i, want := range []string{"hello", "hello", "", ""} {
		if got := m.Root().Text(0); string(got) != want || m.Supported() != (want != "") {
			t.Errorf("text %d is %q, usual is %v", i, got, m.Supported())
		}
	}
	if got := again.Root().Text(0); string(got) != "hello" || !again.Supported() {
		t.Errorf("another reading gives %q", got)
	}
}

// TestReserved reserves at the end of a segment, or not at all.
func TestReserved(t *testing.T) {
	t.Parallel()
	_, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := capnp.NewRootStruct(seg, capnp.ObjectSize{PointerCount: 2}); err != nil {
		t.Fatal(err)
	}
	p, ok := Reserve(seg, 1000)
	if !ok || len(seg.Data()) != 1003*Bytes {
		t.Fatalf("reserved: %v, the segment has %d bytes", ok, len(seg.Data()))
	}
	p.PutText(1, string(make([]byte, 1000*Bytes-1)))
	if p.next != 1003 {
		t.Errorf("it is not full but %d words", p.next)
	}
	for _, size := range []int{-1, maxReserve + 1} {
		if _, ok := Reserve(seg, size); ok || len(seg.Data()) != 1003*Bytes {
			t.Errorf("%d words were reserved", size)
		}
	}
	_, small, err := capnp.NewMessage(capnp.MultiSegment(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := Reserve(small, 1<<20); ok { // the first segment has no room for it: another has
		t.Error("reserved in another segment")
	}
	for n := range 20 {
		if got, want := TextSize(n), (n+1+7)/8; n > 0 && got != want || n == 0 && got != 0 {
			t.Errorf("a text of %d bytes takes %d words", n, got)
		}
	}
}
