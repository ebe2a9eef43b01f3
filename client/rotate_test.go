package client_test

import (
	"context"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/outbox"
)

// TestRotateWhileWriting: a session's owner rotates its ref again and again while
// it writes as fast as it can, over links that are cut where the answer to the
// rotation comes. Nothing it wrote is refused.
func TestRotateWhileWriting(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	first := r.newSession(t, c)
	stop := make(chan struct{})
	var mu sync.Mutex
	var tickets []client.Ticket
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			ticket, err := first.Put(t.Context(), message(n%50), object{"n": n}) // under the first one's name, always
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			tickets = append(tickets, ticket)
			mu.Unlock()
			if n%20 == 0 {
				if _, err := ticket.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	s := first
	seen := map[string]bool{s.Ref().ID: true}
	for i := range 6 {
		if i%2 == 1 {
			r.proxy.CutAfter(faultproxy.ToClient, 1)
		}
		next, cut, err := s.Rotate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen[next.Ref().ID] || cut.Cursor == 0 {
			t.Errorf("rotation %d: %s, the cut is at %d", i, next.Ref(), cut.Cursor)
		}
		seen[next.Ref().ID] = true
		if _, err := s.Describe(t.Context()); err != nil {
			t.Errorf("the old one is described no more: %v", err)
		}
		if _, err := s.Events(t.Context(), 0, 1); fault.CodeOf(err) != fault.Revoked {
			t.Errorf("the old one reads: %v", err)
		}
		s = next
	}
	close(stop)
	writing.Wait()
	for _, ticket := range tickets {
		if err := waited(t, ticket).Err(); err != nil {
			t.Fatalf("of %d batches: %v", len(tickets), err)
		}
	}
	t.Logf("%d batches while the ref changed %d times", len(tickets), len(seen)-1)
}

// TestRotateThatNobodyAnswered: the server is away; a later process of the same
// home finishes the rotation by itself, and what waited goes out.
func TestRotateThatNobodyAnswered(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a", func(cfg *client.Config) { cfg.RetryTimeout = -1 })
	s := r.newSession(t, c)
	sp := r.space(t, c)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Rotate(t.Context()); err == nil {
		t.Fatal("rotated without a server")
	}
	if _, err := sp.Rotate(t.Context()); err == nil {
		t.Fatal("rotated without a server")
	}
	waiting, err := s.Put(t.Context(), "session", object{"title": "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	later := r.open(t, "a")
	ticket := later.Ticket(waiting.Batch)
	if err := waited(t, ticket).Err(); err != nil {
		t.Fatal(err)
	}
	saved, err := later.Outbox().RefFor(t.Context(), s.ID(), 0)
	if err != nil || saved.ID == s.Ref().ID {
		t.Errorf("the ref that is kept: %v, %v", saved.Ref, err)
	}
	fresh, err := later.SessionByID(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	d, err := fresh.Describe(t.Context())
	if err != nil || !d.Grant.Owner || d.Grant.Dead != fault.None {
		t.Errorf("the new one: %+v, %v", d.Grant, err)
	}
}

// TestRotateThatIsRefused: who is no owner keeps what it has.
func TestRotateThatIsRefused(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	b := s.Batch()
	ref, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Append})
	applied(t, b)
	guest, err := r.open(t, "b").Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := guest.Rotate(t.Context()); fault.CodeOf(err) != fault.NotAnOwner {
		t.Errorf("a guest rotates: %v", err)
	}
	ticket, err := guest.Put(t.Context(), message(1), object{})
	if err != nil {
		t.Fatal(err)
	}
	if err := waited(t, ticket).Err(); err != nil {
		t.Error(err)
	}
}

// TestRotateAgain: who asks the same again, because an answer was lost, is given
// what has taken the ref's place meanwhile, with the cut.
func TestRotateAgain(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	first, cut, err := s.Rotate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, same, err := s.Rotate(t.Context())
	if err != nil || again.Ref().ID != first.Ref().ID || same.Cursor != cut.Cursor {
		t.Errorf("rotated again: %v %v, it was %v %v; %v", again, same, first.Ref(), cut, err)
	}
	sp := r.space(t, c)
	root, err := sp.Rotate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := sp.Rotate(t.Context()); err != nil || got.Ref().ID != root.Ref().ID {
		t.Errorf("the space's again: %v", err)
	}
}

// TestRotationOutlivesARefusalToAsk: a later process that may not send secrets in
// clear does not forget the ref of a rotation that a server may have done.
func TestRotationOutlivesARefusalToAsk(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	far := r.owner
	far.Hosts = []string{"far.example:7600"}
	c := r.open(t, "a", func(cfg *client.Config) { cfg.Offline, cfg.AllowPlaintext = true, true })
	if _, err := c.Space(t.Context(), far); err != nil {
		t.Fatal(err)
	}
	made := far.New(far.Target())
	if pending, err := c.Outbox().Rotate(t.Context(), far.ID, made, func(context.Context, capability.Ref) (bool, error) {
		return false, fault.Unavailable.With("on request")
	}); !pending || fault.CodeOf(err) != fault.Unavailable {
		t.Fatal(pending, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	later := r.open(t, "a")
	if err := later.RequestRotation(t.Context(), far.ID); fault.CodeOf(err) != fault.Plaintext {
		t.Errorf("asked in clear: %v", err)
	}
	pending, err := later.Outbox().Rotations(t.Context())
	if err != nil || pending[far.ID].ID != made.ID {
		t.Errorf("the rotation that was begun: %v, %v", pending, err)
	}
}

// TestCreationRepeatedAfterARotation: what repeats a creation does not bring back
// the owner's ref that was rotated since.
func TestCreationRepeatedAfterARotation(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	sp := r.space(t, c)
	same := client.CreateOptions{Owner: sp.NewOwner(), BatchID: outbox.NewBatchID()}
	s, b := sp.Create(same)
	applied(t, b)
	fresh, _, err := s.Rotate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, b = sp.Create(same)
	if _, err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if saved, err := c.Outbox().Ref(t.Context(), s.Ref().ID); err != nil || saved.ID != fresh.Ref().ID {
		t.Errorf("the old one's id leads to %v, %v", saved.Ref, err)
	}
	b = s.Batch()
	b.Put("session", object{"title": "x"})
	if got := brief(outcomes(t, b)); got != "applied" {
		t.Errorf("after it: %s", got)
	}
}
