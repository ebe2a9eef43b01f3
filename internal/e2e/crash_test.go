package e2e

// Crashes of either side at named points of the corridor, and what must hold
// afterwards whatever happened: the same export, each op once, batches whole and
// in order, the outcomes of a run without crashes. The points that this file
// leaves out, and crashes at random moments, are in crash_slow_test.go.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/ledger"
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
func (c *crashed) check(results map[string][]ledger.Outcome) {
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

// crashAt runs a recording with one side armed, and both started again when the
// armed one has died.
func crashAt(t *testing.T, srv *server, point string, hit int) {
	t.Helper()
	armed := arm(point, hit)
	c := newCrashed(t, srv, "a-edit-1.18.33", "", 20)
	if isClients(point) {
		c.agent.start(armed)
		if !within(2*patience, c.agent.run.done) || !c.agent.run.killed() {
			t.Errorf("the agent did not die at %s:\n%s", armed, c.agent.run.err.text())
		}
		c.agent.start("")
	} else {
		srv.kill()
		srv.start(armed)
		p := srv.current()
		c.agent.start("")
		if !within(2*patience, p.done) || !p.killed() {
			t.Errorf("the server did not die at %s:\n%s", armed, p.err.text())
		}
		srv.start("")
	}
	c.check(c.agent.finish())
}

func TestCrashesAtSomePoints(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		srv := startServer(t, serverConfig{URL: db.url(t)})
		points := []string{crashpoint.ServerCommitAfter, crashpoint.OutboxSendAfter}
		if db.name == onPostgres.name {
			points = []string{crashpoint.ServerCommitBefore, crashpoint.OutboxAckBefore}
		}
		for _, point := range points {
			crashAt(t, srv, point, 1+rand.IntN(3))
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
