// Poison: a mode for tests, in which memory that is given back to be used again is overwritten with a pattern first: who
// uses it still sees garbage, and not what happened to be there.

package rpc

import (
	"sync"

	"capnproto.org/go/capnp/v3"
)

// poisonFreed is set by tests, before anything runs.
var poisonFreed bool

// poisonByte makes numbers that stand out and pointers that cannot be followed.
const poisonByte = 0xa7

// poison overwrites bytes that nobody may use any more.
func poison(b []byte) {
	if !poisonFreed {
		return
	}
	for i := range b {
		b[i] = poisonByte
	}
}

// poisonMessage overwrites a message that is freed, which then goes to no pool: that would clear it, or have it used
// again, and nobody would see the poison.
func poisonMessage(m *capnp.Message) {
	for i := range m.NumSegments() {
		if seg, err := m.Segment(capnp.SegmentID(i)); err == nil {
			poison(seg.Data())
			freedRing.add(seg.Data())
		}
	}
}

// freedRing keeps what was freed last, to see whether somebody writes to it.
var freedRing freedBuffers

type freedBuffers struct {
	mu    sync.Mutex
	bytes [256][]byte
	next  int
}

// add takes poisoned bytes in for the oldest, which must be poison still.
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
