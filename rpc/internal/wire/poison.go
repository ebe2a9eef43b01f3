// Poison: a mode for tests, in which memory is overwritten with a pattern before it is reused, so that a use after free
// reads garbage rather than whatever happened to be there.

package wire

import (
	"sync"

	"capnproto.org/go/capnp/v3"
)

// PoisonFreed is set by tests, before anything runs.
var PoisonFreed bool

// poisonByte makes conspicuous numbers and pointers that cannot be followed.
const poisonByte = 0xa7

// Poison overwrites bytes that must not be used any more.
func Poison(b []byte) {
	if !PoisonFreed {
		return
	}
	for i := range b {
		b[i] = poisonByte
	}
}

// poisonMessage overwrites a message that is freed, which then goes to no pool: the pool would clear or reuse it and hide
// the poison.
func poisonMessage(m *capnp.Message) {
	for i := range m.NumSegments() {
		if seg, err := m.Segment(capnp.SegmentID(i)); err == nil {
			Poison(seg.Data())
			freedRing.add(seg.Data())
		}
	}
}

// freedRing keeps the buffers freed last, to detect writes to them.
var freedRing freedBuffers

type freedBuffers struct {
	mu    sync.Mutex
	bytes [256][]byte
	next  int
}

// add adds a poisoned buffer in place of the oldest, which must still be poisoned.
func (g *freedBuffers) add(b []byte) {
	g.mu.Lock()
	old := g.bytes[g.next]
	g.bytes[g.next] = b
	g.next = (g.next + 1) % len(g.bytes)
	g.mu.Unlock()
	for _, c := range old {
		if c != poisonByte {
			panic("rpc: memory was written to after it was freed")
		}
	}
}
