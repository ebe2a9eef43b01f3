//go:build crash

package e2e

// The same as pipelining_test.go, at every single message of the wire, with the
// server armed at one step of the corridor after the other.

import (
	"testing"

	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

func TestGraphsKilledAtEveryMessage(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		r := newRand(t)
		srv := startServer(t, serverConfig{URL: db.url(t)})
		outboxes := []string{""}
		if db.name == onPostgres.name {
			outboxes = append(outboxes, pgtest.URL(t))
		}
		points := []string{crashpoint.ServerApplyQueued, crashpoint.ServerCommitBefore, crashpoint.ServerCommitAfter, crashpoint.ServerAckAfter}
		died := map[string]int{}
		seeds := []uint64{r.Uint64(), r.Uint64(), r.Uint64()}
		for message := 1; ; message++ {
			run := graphRun{
				seed: seeds[message%len(seeds)], size: 12, outboxURL: outboxes[message%len(outboxes)],
				message: message, point: points[message%len(points)], hit: 1 + r.IntN(4),
			}
			agentDied, serverDied := run.do(t, srv)
			if serverDied {
				died[run.point]++
			}
			if !agentDied {
				t.Logf("%d messages; the server died %v", message-1, died)
				if message < 15 {
					t.Errorf("the agent ended without dying at message %d: is anything pipelined?", message)
				}
				break
			}
		}
		for _, point := range points {
			if died[point] == 0 {
				t.Errorf("the server never died at %s", point)
			}
		}
	})
}
