package wire

import (
	"os"
	"testing"
)

// Memory that is used again is poisoned in all tests.
func TestMain(m *testing.M) {
	PoisonFreed = true
	os.Exit(m.Run())
}

// A write to freed memory is found when the buffer leaves the ring.
func TestWritingToTheFreed(t *testing.T) {
	t.Parallel()
	var g freedBuffers
	dead := make([]byte, 8)
	Poison(dead)
	g.add(dead)
	dead[3] = 1
	defer func() {
		if recover() == nil {
			t.Error("the write was not noticed")
		}
	}()
	for range g.bytes {
		g.add(nil)
	}
}
