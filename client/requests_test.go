package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

// TestAskOverRestarts: a request is asked while the server is away, answered by another client, and its answer comes to a ticket
// of a later process, over a restart of the server.
func TestAskOverRestarts(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	asking, err := client.Open(t.Context(), r.config("asks"))
	if err != nil {
		t.Fatal(err)
	}
	s := r.newSession(t, asking)
	b := s.Batch()
	ref, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Answer, AnswerKinds: []string{"question"}})
	applied(t, b)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	ticket, err := s.Ask(t.Context(), "question", json.RawMessage(`{"text": "why?"}`), client.AskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	id := s.ID()
	if err := asking.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	later, err := r.open(t, "asks").SessionByID(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		r   *client.Request
		err error
	}
	got := make(chan answer, 1)
	go func() {
		r, err := later.RequestTicket(ticket.ID, ticket.Batch).Wait(t.Context())
		got <- answer{r, err}
	}()
	answers, err := r.open(t, "answers").Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	for q, err := range answers.Requests(t.Context(), "question", "permission") {
		if err != nil {
			t.Fatal(err)
		}
		if q.ID != ticket.ID || q.State != client.RequestOpen || string(q.Payload) != `{"text": "why?"}` || q.AskedRef == "" || q.AskedAt.IsZero() {
			t.Fatalf("asked: %+v", q)
		}
		break
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	b = answers.Batch()
	b.Answer(ticket.ID, client.AnswerOptions{Payload: "because"})
	if _, err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	if a := <-got; a.err != nil || a.r.State != client.RequestAnswered || string(a.r.Answer) != `"because"` || a.r.ByRef != ref.ID {
		t.Fatalf("%+v: %v", a.r, a.err)
	}
}

// TestRequestsOncePerClaim: several agents are each given every open request, one of them claims it, and what is given back is
// given again; a later process goes on with what it had claimed.
func TestRequestsOncePerClaim(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.newSession(t, r.open(t, "owner"))
	ask := func(n int, kind string) {
		t.Helper()
		b := owner.Batch()
		for i := range n {
			b.Ask(kind, nil, client.AskOptions{ID: fmt.Sprint(kind, i)})
		}
		applied(t, b)
	}
	ask(3, "other")
	ask(20, "job")
	works := func(name string) *client.Session {
		ref, ticket, err := owner.Share(t.Context(), client.ShareOptions{Rights: capability.Read | capability.Answer})
		if err != nil {
			t.Fatal(err)
		}
		waited(t, ticket)
		s, err := r.open(t, name).Session(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	done := make(chan []string, 2)
	for _, name := range []string{"one", "two"} {
		s := works(name)
		go func() {
			var mine []string
			for q, err := range s.Requests(ctx, "job") {
				if err != nil {
					break
				}
				b := s.Batch()
				claim := b.ClaimRequest(q.ID, time.Hour, "")
				if results, err := b.CommitWait(ctx); errors.Is(err, fault.Conflict) {
					continue
				} else if err != nil {
					t.Errorf("claim: %v %v", results, err)
					break
				}
				b = s.Batch()
				if q.ID == "job7" && !slices.Contains(mine, "back") {
					mine = append(mine, "back")
					b.ReleaseRequest(q.ID, claim)
				} else {
					mine = append(mine, q.ID)
					b.Answer(q.ID, client.AnswerOptions{Claim: claim})
				}
				if _, err := b.CommitWait(ctx); err != nil {
					t.Errorf("answer: %v", err)
				}
			}
			done <- mine
		}()
	}
	for i := range 20 {
		if _, err := owner.RequestTicket(fmt.Sprint("job", i), "").Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	all := slices.Concat(<-done, <-done)
	all = slices.DeleteFunc(all, func(id string) bool { return id == "back" })
	slices.Sort(all)
	if len(all) != 20 || len(slices.Compact(all)) != 20 {
		t.Errorf("worked on: %v", all)
	}

	// What this outbox claimed before.
	b := owner.Batch()
	b.ClaimRequest("other1", time.Hour, "w")
	applied(t, b)
	var seen []string
	for q, err := range owner.Requests(t.Context(), "other") {
		if err != nil {
			t.Fatal(err)
		}
		if seen = append(seen, fmt.Sprint(q.ID, q.State)); q.State == client.RequestClaimed && q.Claim.Worker != "w" {
			t.Errorf("claimed: %+v", q.Claim)
		}
		if len(seen) == 3 {
			break
		}
	}
	if want := []string{"other0open", "other1claimed", "other2open"}; !slices.Equal(seen, want) {
		t.Errorf("given: %v, want %v", seen, want)
	}
}

// TestTicketOfARefusedRequest: who waits is told why what they asked was refused, and who may not read that they may not.
func TestTicketOfARefusedRequest(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "owner"))
	ref, ticket, err := s.Share(t.Context(), client.ShareOptions{Rights: capability.Ask, AskKinds: []string{"prompt"}})
	if err != nil {
		t.Fatal(err)
	}
	waited(t, ticket)
	asks, err := r.open(t, "asks").Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]fault.Code{"question": fault.MissingRight, "prompt": fault.MissingRight} {
		ticket, err := asks.Ask(t.Context(), kind, nil, client.AskOptions{ID: kind})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ticket.Wait(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if q, err := s.RequestTicket("question", "").Wait(ctxFor(t, 50*time.Millisecond)); fault.CodeOf(err) != fault.Canceled {
		t.Errorf("one that was never asked: %+v, %v", q, err)
	}
	state, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if list, err := state.Requests(); err != nil || len(list) != 1 || list[0].ID != "prompt" || list[0].State != client.RequestOpen {
		t.Errorf("asked: %v, %v", list, err)
	}
}

// ctxFor is a context that ends after a while.
func ctxFor(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx
}
