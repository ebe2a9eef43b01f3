//go:build crash

package e2e

// Every crash point, random moments, and a link that is cut fifty times.

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// atStart are the points of a server's first start.
var atStart = map[string]bool{crashpoint.ServerStartBefore: true, crashpoint.ServerStartAfter: true}

func TestCrashesAtEveryPoint(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		r := newRand(t)
		for _, point := range crashpoint.All() {
			hits := []int{1, 1 + r.IntN(5)}
			t.Run(point, func(t *testing.T) {
				if atStart[point] {
					crashFirstStart(t, db, point)
					return
				}
				outboxURL := ""
				if db.name == onPostgres.name {
					outboxURL = pgtest.URL(t)
				}
				crashAt(t, startServer(t, serverConfig{URL: db.url(t)}), outboxURL, point, hits...)
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
		r := newRand(t)
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

// more gives the agent more to do and starts it anew.
func (c *crashed) more() {
	c.t.Helper()
	c.again()
	c.agent.start("")
}

// again adds batches to the agent's plan. They repeat the last puts, so the
// export stays the same.
func (c *crashed) again() {
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
}

// The link is cut fifty times, every third time after the server's answers to what
// it had committed were swallowed: that comes again and must be known.
func TestLinkCutFiftyTimes(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		r := newRand(t)
		srv := startServer(t, serverConfig{URL: db.url(t)})
		c := newCrashed(t, srv, "f-streamlong-1.1.65", "", 4)
		for range 5 {
			c.again()
		}
		link := cutAtRandom(t, r, srv.proxy, 40_000)
		c.agent.start("")
		results := c.agent.finish()
		link.end()
		t.Logf("%d cuts, answers swallowed before %d of them", link.cuts, link.swallowed)
		if link.cuts < 50 {
			t.Errorf("the link was cut %d times only", link.cuts)
		}
		if link.swallowed < 10 {
			t.Errorf("answers were swallowed %d times only", link.swallowed)
		}
		if c.agent.repeatedAcks() == 0 {
			t.Error("nothing that had been committed was sent again: was any answer lost?")
		}
		c.check(results)
	})
}

// The import command itself is killed again and again, and so is the server; run
// once more it ends with what it would have made at once.
func TestImportKilledAtRandomMoments(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		const name = "b-long-1.18.33"
		r := newRand(t)
		srv := startServer(t, serverConfig{URL: db.url(t)})
		h := newHome(t)
		line := []string{"session", "import", filepath.Join(recordings, name+".jsonl"), "--owner", "@" + filepath.Join(srv.data, "owner.ref")}
		for range 12 {
			p := h.follow(line...)
			within(time.Duration(r.IntN(900))*time.Millisecond, p.done)
			if r.IntN(3) == 0 {
				srv.restart()
				within(time.Duration(r.IntN(300))*time.Millisecond, p.done)
			}
			p.kill()
		}
		id := strings.TrimSpace(lastLine(h.do(line...)))
		h.do("outbox", "drain")
		if got, want := h.do("session", "export", id), expectedExport(t, name); !sameJSON([]byte(got), want) {
			t.Errorf("the export is not what it should be:\n got %s\nwant %s", clipped(got), clipped(string(want)))
		}
		events := tailedLines(t, splitLines(h.do("session", "tail", id, "--json")))
		gapless(t, "tail", events, 0, uint64(len(events)))
		puts, ops := 0, map[string]bool{}
		for _, e := range events {
			if ops[e.Op] {
				t.Errorf("cursor %d: op %s is there twice", e.Cursor, e.Op)
			}
			ops[e.Op] = true
			if e.Method == "put" {
				puts++
			}
		}
		// As many as of an import that nobody disturbs.
		calm := newHome(t)
		other := startServer(t, serverConfig{})
		line[len(line)-1] = "@" + filepath.Join(other.data, "owner.ref")
		want := len(splitLines(calm.do("session", "tail", strings.TrimSpace(lastLine(calm.do(line...))), "--json")))
		if len(events) != want || puts != want-2 { // the others create and compact it
			t.Errorf("%d events, %d of them puts; an undisturbed import makes %d", len(events), puts, want)
		}
	})
}
