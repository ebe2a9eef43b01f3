//go:build crash

package e2e

// Every crash point, random moments, and a link that is cut fifty times.

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// atStart are the points of a server's first start.
var atStart = map[string]bool{crashpoint.ServerStartBefore: true, crashpoint.ServerStartAfter: true}

func TestCrashesAtEveryPoint(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		for _, point := range crashpoint.All() {
			t.Run(point, func(t *testing.T) {
				if atStart[point] {
					crashFirstStart(t, db, point)
					return
				}
				crashAt(t, startServer(t, serverConfig{URL: db.url(t)}), point, 1)
			})
		}
	})
}

// crashFirstStart kills a server while it makes its space; the next start must
// leave a good owner's ref.
func crashFirstStart(t *testing.T, db database, point string) {
	srv := newServer(t, serverConfig{URL: db.url(t)})
	if err := srv.tryStart(point); err == nil || !srv.current().killed() {
		t.Errorf("the server did not die at %s: %v", point, err)
	}
	srv.start("")
	c := newCrashed(t, srv, "d-revert-unshare-1.18.33", "", 50)
	c.agent.start("")
	c.check(c.agent.finish())
}

// Forty times either process is killed at a random moment of one long run.
func TestCrashesAtRandomMoments(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 3))
		outboxURL := ""
		if db.name == onPostgres.name {
			outboxURL = pgtest.URL(t)
		}
		srv := startServer(t, serverConfig{URL: db.url(t)})
		c := newCrashed(t, srv, "b-long-1.18.33", outboxURL, 3)
		c.agent.start("")
		for kills, idle := 0, 0; kills < 40; kills++ {
			if within(time.Duration(r.IntN(1500))*time.Millisecond, c.agent.run.done) {
				if idle++; idle > 30 {
					t.Fatal("there is too little work to be killed in")
				}
				c.more() // so that there is something to be killed in
				kills--
				continue
			}
			if r.IntN(2) == 0 {
				srv.restart()
				continue
			}
			c.agent.run.kill()
			c.agent.start("")
		}
		c.check(c.agent.finish())
	})
}

// more adds batches to the agent's plan and starts it anew. What they put is
// what is there already, so the export stays the same.
func (c *crashed) more() {
	c.t.Helper()
	p := &c.agent.plan
	n := len(p.Batches)
	for i := n - 40; i < n; i++ {
		again := batch(c.ref, p.Batches[i].Ops...)
		again.After = p.Batches[len(p.Batches)-1].ID
		p.Batches = append(p.Batches, again)
	}
	if err := writeJSON(c.agent.file, p); err != nil {
		c.t.Fatal(err)
	}
	c.agent.start("")
}

// The link is cut fifty times, every third time after the server's answers were
// swallowed: what is committed comes again and must be known.
func TestLinkCutFiftyTimes(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		srv := startServer(t, serverConfig{URL: db.url(t)})
		c := newCrashed(t, srv, "f-streamlong-1.1.65", "", 4)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		cuts := make(chan int)
		go func() { cuts <- cutAtRandom(ctx, srv, 12_000) }()
		c.agent.start("")
		results := c.agent.finish()
		stop()
		if n := <-cuts; n < 50 {
			t.Errorf("the link was cut %d times only", n)
		}
		if srv.proxy.Stats().Swallowed[toClient] == 0 {
			t.Error("no answer was swallowed")
		}
		c.check(results)
	})
}
