//go:build crash

package e2e

// A Postgres with few connections, which servers and outboxes share.

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// TestWaitingAgentsLeaveServersConnections: four agents wait for 64 tickets each, on an outbox in a Postgres with connections for
// them and one server, as docs/operating.md counts. The server starts eight times, and then everything is answered.
func TestWaitingAgentsLeaveServersConnections(t *testing.T) {
	t.Parallel()
	const (
		agents, tickets = 4, 64
		perAgent        = 4
		perServer       = 5
		starts          = 8
	)
	at := pgtest.URL(t)
	outboxURL, _ := pgtest.Role(t, at, agents*perAgent+perServer)
	u, err := url.Parse(outboxURL)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	held := func() (n int) {
		t.Helper()
		if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = $1", u.User.Username()).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	srv := startServer(t, serverConfig{URL: outboxURL, Args: []string{"--database-connections", fmt.Sprint(perServer)}})
	srv.proxy.Refuse(true)
	srv.kill()
	var all []*agent
	for range agents {
		ref := srv.owner().New(capability.SessionPrefix + ulid.Make().String())
		batches := []planBatch{creating(ref)}
		for len(batches) < tickets {
			batches = append(batches, batch(ref, put("session", map[string]any{"n": len(batches)})))
		}
		a := newAgent(t, plan{Space: srv.owner().Text(), OutboxURL: outboxURL, Batches: batches, Together: true})
		a.start("")
		all = append(all, a)
	}
	for _, a := range all {
		if _, ok := a.run.out.await(a.run.done, func(l string) bool { return l == "committed" }); !ok {
			t.Fatalf("an agent did not commit:\n%s", a.run.err.text())
		}
	}
	for range starts {
		if !until(t.Context(), patience, func() bool { return held() <= agents*perAgent }) { // who was killed had some
			t.Fatalf("the agents hold %d connections", held())
		}
		srv.start("")
		srv.kill()
	}
	srv.proxy.Refuse(false)
	srv.start("")
	for _, a := range all {
		results := a.finish()
		if len(results) != tickets {
			t.Errorf("%d of %d batches are answered", len(results), tickets)
		}
		for id, outs := range results {
			if len(outs) != 1 || outs[0].Status != client.Applied {
				t.Errorf("%s: %+v", id, outs)
			}
		}
	}
}
