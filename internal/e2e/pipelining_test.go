package e2e

// Durable promise pipelining: graphs of ops that refer to one another's results,
// committed by a process that is killed between two wire messages, to a server
// that is killed at a step of the corridor of its own, and both started again. In
// the end every op has happened once, with the results of a sequential run.

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

func TestGraphsOfReferences(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		r := newRand(t)
		srv := startServer(t, serverConfig{URL: db.url(t)})
		runs := []graphRun{
			{seed: r.Uint64(), size: 24, message: 4 + r.IntN(40), point: crashpoint.ServerCommitAfter, hit: 1 + r.IntN(3)},
			{seed: r.Uint64(), size: 24, message: 4 + r.IntN(40), point: crashpoint.ServerApplyQueued, hit: 1 + r.IntN(5)},
		}
		if db.name == onPostgres.name {
			runs[1].outboxURL = pgtest.URL(t)
		}
		for _, run := range runs {
			run.do(t, srv)
		}
	})
}

// graphRun is a random graph, committed by an agent that dies and sent to a server
// that dies.
type graphRun struct {
	seed      uint64
	size      int
	outboxURL string // of the agent's outbox; "" for a file
	message   int    // of the agent's connections, sent or received, at which it dies
	point     string // of the corridor, at which the server dies …
	hit       int    // … when it has come there so often
}

// do runs it: agent and server die where it says, in whichever order that comes,
// and when the agent dies the server is killed with it. Whatever died is started
// again, and in the end everything is compared with the model. It says whether the
// agent died, and whether the server came to its point.
func (g graphRun) do(t *testing.T, srv *server) (agentDied, serverDied bool) {
	t.Helper()
	graph := newGraph(g.seed, srv.owner(), g.size)
	defer func() {
		if t.Failed() {
			t.Logf("%+v", g)
		}
	}()
	a := newAgent(t, plan{Space: srv.owner().Text(), OutboxURL: g.outboxURL, Batches: graph.batches})
	a.env = []string{killAtVar + "=" + strconv.Itoa(g.message)}
	srv.kill()
	srv.start(arm(g.point, g.hit))
	a.start("")
	deadline := time.NewTimer(2 * patience)
	defer deadline.Stop()
	for running := true; running; {
		select {
		case <-a.run.done:
			if !a.run.killed() {
				running = false
				break
			}
			agentDied = true
			srv.kill()
			if serverDied {
				srv.start("")
			} else {
				srv.start(arm(g.point, g.hit))
			}
			a.env = nil
			a.start("")
		case <-srv.current().done:
			if !srv.current().killed() {
				t.Fatalf("the server ended by itself:\n%s", srv.current().err.text())
			}
			serverDied = true
			srv.start("")
		case <-deadline.C:
			running = false // finish says what the agent waits for
		}
	}
	results := a.finish()
	if !serverDied {
		srv.restart() // it is not to die of what looks at it
	}
	checkGraph(t, graph, results)
	checkTickets(t, a.plan, results)
	return agentDied, serverDied
}

// checkGraph compares a graph's outcomes, logs and states with a fresh model.
func checkGraph(t *testing.T, g *graph, results map[string][]client.Outcome) {
	t.Helper()
	c := openClient(t)
	w := newWorld().keepPast()
	states := map[string]*client.State{}
	for _, owner := range g.owners {
		if !made(g.batches, owner.Target(), results) {
			continue // no ref to it leads anywhere
		}
		s := view(t, c, owner)
		state, log := mustSnapshot(t, s, 0), readLog(t, s)
		for state.Cursor != uint64(len(log)) { // a turn's lease has ended in between
			state, log = mustSnapshot(t, s, 0), readLog(t, s)
		}
		states[s.ID()], w.logs[s.ID()] = state, log
		checkLog(t, log, batchesFor(g.batches, s.ID()))
	}
	w.replay(t, g.batches, "agent", results)
	for id, state := range states {
		checkState(t, w.session(id), state)
	}
}

// made says whether a session came to be.
func made(batches []planBatch, session string, results map[string][]client.Outcome) bool {
	return slices.ContainsFunc(batches, func(b planBatch) bool {
		return b.Creates && b.target() == session && results[b.ID][0].Status == client.Applied
	})
}

func batchesFor(batches []planBatch, session string) []planBatch {
	var some []planBatch
	for _, b := range batches {
		if b.target() == session {
			some = append(some, b)
		}
	}
	return some
}

// checkTickets asks for every batch's results once more, in another process (this
// one), by nothing but the batch's id, and without any server.
func checkTickets(t *testing.T, p plan, want map[string][]client.Outcome) {
	t.Helper()
	c, err := client.Open(t.Context(), client.Config{OpenOutbox: p.openOutbox(), Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, b := range p.Batches {
		got, err := c.Ticket(b.ID).Wait(ctx)
		if err != nil {
			t.Fatalf("ticket of batch %s: %v", b.ID, err)
		}
		if !reflect.DeepEqual([]client.Outcome(got), want[b.ID]) {
			t.Fatalf("the ticket of batch %s gives\n%+v\nand gave\n%+v", b.ID, got, want[b.ID])
		}
	}
}
