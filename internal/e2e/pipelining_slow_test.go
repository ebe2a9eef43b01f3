//go:build crash

package e2e

// The same as pipelining_test.go, at every single message of the wire.

import (
	"math/rand/v2"
	"testing"
)

func TestGraphsKilledAtEveryMessage(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		srv := startServer(t, serverConfig{URL: db.url(t)})
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		for message := 1; ; message++ {
			if !runGraph(t, srv, seed, "", 12, message) {
				t.Logf("%d messages", message-1)
				if message < 15 {
					t.Errorf("the agent ended without dying at message %d: is anything pipelined?", message)
				}
				return
			}
		}
	})
}
