package e2e

// Crashes of either side at named points of the corridor, and what must hold
// afterwards whatever happened: the same export, each op once, batches whole and
// in order, the outcomes of a run without crashes. The points that this file
// leaves out, and crashes at random moments, are in crash_slow_test.go.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// crashed is a recording that an agent appends while something breaks.
type crashed struct {
	t     *testing.T
	name  string
	srv   *server
	ref   capability.Ref
	agent *agent
}

// newCrashed prepares an agent that appends a recording to a new session.
// Big batches are cut into pieces of at most size ops, so that there are many, and
// every fourth waits for one before, so that they do not all go in one transaction.
func newCrashed(t *testing.T, srv *server, name, outboxURL string, size int) *crashed {
	t.Helper()
	ref := srv.owner().New(capability.SessionPrefix + ulid.Make().String())
	batches := []planBatch{creating(ref)}
	for _, b := range recordedBatches(t, name, ref) {
		for len(b.Ops) > size {
			batches = append(batches, batch(ref, b.Ops[:size]...))
			b.Ops = b.Ops[size:]
		}
		batches = append(batches, batch(ref, b.Ops...))
	}
	for i := 4; i < len(batches); i += 4 {
		batches[i].After = batches[i-3].ID
	}
	a := newAgent(t, plan{Space: srv.owner().Text(), OutboxURL: outboxURL, Batches: batches})
	return &crashed{t: t, name: name, srv: srv, ref: ref, agent: a}
}

// check fails the test unless everything is as if nothing had broken.
func (c *crashed) check(results map[string][]client.Outcome) {
	c.t.Helper()
	s := view(c.t, openClient(c.t), c.ref)
	log := readLog(c.t, s)
	checkLog(c.t, log, c.agent.plan.Batches)
	w := newWorld()
	w.logs[s.ID()] = log
	w.replay(c.t, c.agent.plan.Batches, "agent", results)
	checkState(c.t, w.session(s.ID()), mustSnapshot(c.t, s, 0))
	h := &home{t: c.t, dir: c.t.TempDir()}
	if got, want := h.do("session", "export", "@"+writeRef(c.t, c.ref)), expectedExport(c.t, c.name); !sameJSON([]byte(got), want) {
		c.t.Errorf("the export is not what it should be:\n got %s\nwant %s", clipped(got), clipped(string(want)))
	}
}

// crashAt runs a recording with one side armed at a point, once for each of the
// hits: what has died there is started again, armed for the next, at last for none.
func crashAt(t *testing.T, srv *server, outboxURL, point string, hits ...int) {
	t.Helper()
	t.Logf("%s, hits %v, outbox %q", point, hits, outboxURL)
	c := newCrashed(t, srv, "a-edit-1.18.33", outboxURL, 4)
	if ofBacklog[point] {
		c.crowd()
	}
	armed := func(i int) string {
		if i < len(hits) {
			return arm(point, hits[i])
		}
		return ""
	}
	if isClients(point) {
		c.agent.start(armed(0))
		for i := range hits {
			c.dies(c.agent.run, point, armed(i))
			c.agent.start(armed(i + 1))
		}
	} else {
		srv.kill()
		srv.start(armed(0))
		c.agent.start("")
		for i := range hits {
			c.dies(srv.current(), point, armed(i))
			srv.start(armed(i + 1))
		}
	}
	c.check(c.agent.finish())
}

// perConnection are the points that are passed once or twice a connection.
var perConnection = map[string]bool{crashpoint.ServerRestoreAfter: true, crashpoint.ServerOpenStreamAfter: true}

// ofBacklog are the points that only batches pass for which there was no room in
// the window when they were committed.
var ofBacklog = map[string]bool{crashpoint.OutboxSeqBefore: true, crashpoint.OutboxSeqAfter: true}

// crowd has the agent commit all before any is sent, for a small window.
func (c *crashed) crowd() {
	c.t.Helper()
	p := &c.agent.plan
	p.Window = 2
	for i := range p.Batches {
		p.Batches[i].After = ""
	}
	if err := writeJSON(c.agent.file, p); err != nil {
		c.t.Fatal(err)
	}
	c.srv.proxy.Refuse(true)
	c.agent.start("")
	run := c.agent.run
	if _, ok := run.out.await(run.done, func(line string) bool { return line == "committed" }); !ok {
		c.t.Fatalf("the agent has not committed all:\n%s", run.err.text())
	}
	run.kill()
	c.srv.proxy.Refuse(false)
}

// dies waits until an armed process has died. For a point that is passed with
// every connection it cuts the link meanwhile.
func (c *crashed) dies(p *process, point, armed string) {
	c.t.Helper()
	deadline, cut := time.NewTimer(2*patience), time.NewTicker(150*time.Millisecond)
	defer deadline.Stop()
	defer cut.Stop()
	for {
		select {
		case <-p.done:
			if !p.killed() {
				c.t.Errorf("nothing died at %s:\n%s", armed, p.err.text())
			}
			return
		case <-deadline.C:
			c.t.Errorf("nothing died at %s, and nothing ends:\n%s", armed, p.err.text())
			p.kill()
			return
		case <-cut.C:
			if perConnection[point] {
				c.srv.proxy.Cut()
			}
		}
	}
}

func TestCrashesAtSomePoints(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		r := newRand(t)
		srv := startServer(t, serverConfig{URL: db.url(t)})
		outboxURL, points := "", []string{crashpoint.ServerCommitAfter, crashpoint.OutboxSendAfter}
		if db.name == onPostgres.name {
			outboxURL, points = pgtest.URL(t), []string{crashpoint.ServerCommitBefore, crashpoint.OutboxAckBefore}
		}
		for _, point := range points {
			crashAt(t, srv, outboxURL, point, 1+r.IntN(3))
		}
	})
}

// isClients says whether a crash point is on the client's side of the corridor.
func isClients(point string) bool { return strings.HasPrefix(point, "outbox.") }

// arm is the variable's value for the n-th hit of a point.
func arm(point string, n int) string { return fmt.Sprintf("%s:%d", point, n) }

// writeRef writes a ref to a file of its own and gives the path.
func writeRef(t testing.TB, ref capability.Ref) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "session.ref")
	if err := os.WriteFile(path, []byte(ref.Text()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
