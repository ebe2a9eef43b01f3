// Package capnpfasttest has what tests share that hold messages read and written by hand to the generated code.
package capnpfasttest

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"capnproto.org/go/capnp/v3"
)

// Rand gives random numbers, whose seed a test that fails tells.
func Rand(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// Text is of any bytes, at most so many.
func Text(rnd *rand.Rand, most int) string {
	b := make([]byte, rnd.IntN(most+1))
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return string(b)
}

// Segment is the memory of a message whose root struct place has filled in.
func Segment(t testing.TB, size capnp.ObjectSize, place func(capnp.Struct) error) []byte {
	t.Helper()
	_, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err != nil {
		t.Fatal(err)
	}
	root, err := capnp.NewRootStruct(seg, size)
	if err == nil {
		err = place(root)
	}
	if err != nil {
		t.Fatal(err)
	}
	return seg.Data()
}

// Corrupt overwrites a few words of a segment with such as matter: pointers above all.
func Corrupt(rnd *rand.Rand, seg []byte) {
	for range 1 + rnd.IntN(3) {
		at := 8 * rnd.IntN(len(seg)/8)
		word := binary.LittleEndian.Uint64(seg[at:])
		switch rnd.IntN(7) {
		case 0:
			word ^= 1 << rnd.IntN(64)
		case 1: // to another place
			word = word&^(1<<32-4) | uint64(uint32(rnd.IntN(40)-20)<<2)
		case 2: // another struct
			word = uint64(uint32(rnd.IntN(40)-20)<<2) | uint64(rnd.IntN(4))<<32 | uint64(rnd.IntN(4))<<48
		case 3: // another list, of any kind
			word = uint64(uint32(rnd.IntN(40)-20)<<2) | 1 | uint64(rnd.IntN(8))<<32 | uint64(rnd.IntN(40))<<35
		case 4:
			word = rnd.Uint64()
		case 5: // what stands elsewhere
			word = binary.LittleEndian.Uint64(seg[8*rnd.IntN(len(seg)/8):])
		case 6:
			word = 0
		}
		binary.LittleEndian.PutUint64(seg[at:], word)
	}
}
