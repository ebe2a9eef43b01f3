//go:build crash && linux

package e2e

import (
	"testing"
	"time"
)

// TestManyStrangers has sixty-four strangers at each attack alone with a small budget, and hundreds at all of them at once
// with the usual one.
func TestManyStrangers(t *testing.T) {
	t.Parallel()
	b := newAttackedServer(t, 16<<20, 8<<20)
	for _, a := range attacks {
		b.measureUnder(a.name, []attack{a}, 64, 300*time.Millisecond)
	}
	b.healthy()
	b = newAttackedServer(t, 256<<20, 16<<20)
	b.measureUnder("all at once", attacks, 16, 10*time.Second)
	b.healthy()
}
