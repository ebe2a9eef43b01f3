package e2e

// Durable promise pipelining: graphs of ops that refer to one another's results,
// committed by a process that is killed between two wire messages, together with
// the server, and started again. In the end every op has happened once, with the
// results of a sequential run.

import (
	"context"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestGraphsOfReferences(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		srv := startServer(t, serverConfig{URL: db.url(t)})
		seed := rand.Uint64()
		runGraph(t, srv, seed, "", 24, 4+rand.IntN(40))
		outboxURL := ""
		if db.name == onPostgres.name {
			outboxURL = pgtest.URL(t)
		}
		runGraph(t, srv, seed+1, outboxURL, 24, 4+rand.IntN(40))
	})
}

// runGraph commits a random graph with an agent that dies at a message of its
// connection (0: it does not), its outbox in a file or at a URL, kills the server at the same time, starts both
// again and compares everything with the model. It says whether the agent died.
func runGraph(t *testing.T, srv *server, seed uint64, outboxURL string, size, message int) (died bool) {
	t.Helper()
	g := newGraph(seed, srv.owner(), size)
	defer func() {
		if t.Failed() {
			t.Logf("graph of seed %d, killed at message %d", seed, message)
		}
	}()
	a := newAgent(t, plan{Space: srv.owner().Text(), OutboxURL: outboxURL, Batches: g.batches})
	if message > 0 {
		a.env = []string{killAtVar + "=" + strconv.Itoa(message)}
	}
	a.start("")
	if !within(2*patience, a.run.done) {
		t.Fatalf("the agent does not come to an end:\n%s%s", a.run.out.text(), a.run.err.text())
	}
	if a.run.killed() {
		died = true
		srv.restart()
		a.env = nil
		a.start("")
	}
	results := a.finish()
	checkGraph(t, g, results)
	checkTickets(t, a.plan, results)
	return died
}

// checkGraph compares a graph's outcomes, logs and states with a fresh model.
func checkGraph(t *testing.T, g *graph, results map[string][]ledger.Outcome) {
	t.Helper()
	c := openClient(t)
	w := newWorld()
	views := map[string]*client.Session{}
	for _, owner := range g.owners {
		s := view(t, c, owner)
		views[s.ID()] = s
		w.logs[s.ID()] = readLog(t, s)
		checkLog(t, w.logs[s.ID()], batchesFor(g.batches, s.ID()))
	}
	w.replay(t, g.batches, "agent", results)
	for id, s := range views {
		checkState(t, w.session(id), mustSnapshot(t, s, 0))
	}
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
func checkTickets(t *testing.T, p plan, want map[string][]ledger.Outcome) {
	t.Helper()
	c, err := client.Open(t.Context(), client.Config{Home: p.Home, OutboxURL: p.OutboxURL, Offline: true})
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
		for i := range got {
			got[i].Digest = ledger.Digest{}
		}
		if !reflect.DeepEqual([]ledger.Outcome(got), want[b.ID]) {
			t.Fatalf("the ticket of batch %s gives\n%+v\nand gave\n%+v", b.ID, got, want[b.ID])
		}
	}
}
