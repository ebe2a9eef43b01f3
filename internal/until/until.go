// Package until has tests wait for what other goroutines, or other programs, bring about, where nothing tells of it.
package until

import (
	"testing"
	"time"
)

// patience is how long is waited: for megabytes under the race detector too.
const patience = time.Minute

// True waits until so gives true. If it never does, that ends the test.
func True(t testing.TB, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !so(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
