// The outbox of a client: work without a server, in a later program, and for two clients at once.

package client_test

import (
	"path/filepath"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/outbox/sqliteoutbox"
)

func TestOfflineWorkArrivesWhenTheServerComes(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	c := r.open(t, "a")
	sp := r.space(t, c)
	s, create := sp.Create(client.CreateOptions{External: "outside"})
	create.Put("session", object{"title": "offline"})
	first, err := create.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	put := b.Put(message(1), object{"role": "user"})
	b.Put(message(2), object{"role": "assistant"}).DependsOn(put)
	shared, _ := b.Share(client.ShareOptions{Rights: capability.Read, Label: "reader"})
	second, err := b.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	for _, ticket := range []client.Ticket{first, second} {
		if err := waited(t, ticket).Err(); err != nil {
			t.Fatal(err)
		}
	}
	reader, err := r.open(t, "b").Session(t.Context(), shared)
	if err != nil {
		t.Fatal(err)
	}
	state, err := reader.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Cursor != 5 || len(state.Entries) != 3 {
		t.Errorf("cursor %d with %d entries, want 5 (create, 3 puts, share) with 3", state.Cursor, len(state.Entries))
	}
	if e := state.Entry("session"); e == nil || string(e.Payload) != `{"title":"offline"}` {
		t.Errorf("the session's info is %v", e)
	}
	if _, err := c.SessionByID(t.Context(), "outside"); err != nil {
		t.Errorf("the session is not found by its external id: %v", err)
	}
}

func TestATicketResolvesInALaterClient(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	first := r.open(t, "a")
	s := r.newSession(t, first)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	b.Put(message(1), object{"n": 1})
	b.Remove("message/never")
	ticket, err := b.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	later := r.open(t, "a")
	results := waited(t, later.Ticket(ticket.Batch))
	if got := brief(results); got != "applied applied" {
		t.Errorf("outcomes %s", got)
	}
	again := waited(t, later.Ticket(ticket.Batch))
	if brief(again) != brief(results) || again[0].Cursor != results[0].Cursor || again[0].OpID != ticket.Ops[0] {
		t.Errorf("asked again the ticket gives %+v after %+v", again, results)
	}
}

// TestTwoClientsOfOneOutbox: one of them sends for both, and when it is closed the
// other one does.
func TestTwoClientsOfOneOutbox(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	cfg := r.config("a")
	box, err := sqliteoutbox.Open(t.Context(), filepath.Join(r.dir, "x.db"), cfg.OutboxConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	on := func(c *client.Config) { c.OpenOutbox, c.Outbox = nil, box }
	first, err := client.Open(t.Context(), r.config("a", on))
	if err != nil {
		t.Fatal(err)
	}
	second := r.open(t, "a", on)
	s := r.newSession(t, second)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	b.Put(message(1), object{})
	applied(t, b)
	if err := second.Err(); err != nil {
		t.Error(err)
	}
}
