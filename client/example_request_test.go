package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
)

// One program asks, and waits for the answer in this process or a later one. The agent claims what it works on, so that
// no other does, and answers under its claim.
func ExampleSession_Ask() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	ticket, err := s.Ask(ctx, client.KindPrompt, map[string]string{"text": "Which day is it?"}, client.AskOptions{ID: "req_1"})
	if err != nil {
		log.Fatal(err)
	}
	for r, err := range s.Requests(ctx, client.KindPrompt) { // the agent; it goes on until ctx ends
		if err != nil {
			log.Fatal(err)
		}
		b := s.Batch()
		claim := b.ClaimRequest(r.ID, time.Minute, "")
		b.Answer(r.ID, client.AnswerOptions{Payload: map[string]string{"text": "Monday"}, Claim: claim})
		if _, err := b.CommitWait(ctx); err != nil {
			log.Fatal(err)
		}
		break
	}
	later := s.RequestTicket("req_1", ticket.Batch) // what a later process makes of what it has saved
	r, err := later.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.State, string(r.Answer))
	// Output: answered {"text":"Monday"}
}

// An agent asks whether it may run a command. The person who answers names what was shown, so that the
// answer is to nothing else; the first one counts.
func ExampleBatch_Answer() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("message/msg_1", map[string]string{"role": "assistant"})
	id, _ := b.Ask(client.KindPermission, json.RawMessage(`{"command":"make test"}`), client.AskOptions{
		ID: "per_1", Message: "msg_1", Choices: []client.Choice{{ID: "once", Label: "Allow once"}, {ID: "reject", Label: "Reject"}}, Expires: time.Hour,
	})
	b.Share(client.ShareOptions{Rights: capability.Read | capability.Answer, AnswerKinds: []string{client.KindPermission}}) // for somebody's phone
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	var digest string
	for r, err := range s.ListRequests(ctx, client.RequestOptions{Kinds: []string{client.KindPermission}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.State, string(r.Payload), r.Choices[0].Label)
		digest = r.Digest
	}
	b = s.Batch()
	b.Answer(id, client.AnswerOptions{Choice: "once", Shown: digest})
	b.Answer(id, client.AnswerOptions{Choice: "reject", Shown: digest})
	results, _ := b.CommitWait(ctx)
	fmt.Println(results[0].Status, results[1].Status)
	// Output:
	// open {"command":"make test"} Allow once
	// applied conflict
}

// Who shows the requests of a session to people is given each, and each again when it has changed.
func ExampleSession_FollowRequests() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	id, _ := b.Ask(client.KindQuestion, map[string]string{"text": "Red or blue?"}, client.AskOptions{})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	for r, err := range s.FollowRequests(ctx, client.RequestOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %q\n", r.State, r.Answer)
		if r.State.Ended() {
			break
		}
		b := s.Batch()
		b.Answer(id, client.AnswerOptions{Payload: "blue"})
		if _, err := b.Commit(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// open ""
	// answered "\"blue\""
}

// What nobody works on can be withdrawn. Who has claimed something gives it back, or says that nobody knows what came of it.
func ExampleBatch_Withdraw() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	first, _ := b.Ask(client.KindPrompt, nil, client.AskOptions{})
	claim := b.ClaimRequest(first, time.Minute, "worker-1")
	b.ReleaseRequest(first, claim)
	b.Withdraw(first, "it does not matter any more")
	second, _ := b.Ask(client.KindPrompt, nil, client.AskOptions{})
	claim = b.ClaimRequest(second, time.Minute, "")
	b.EndUnknown(second, claim, "the agent died")
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	for _, id := range []string{first, second} {
		r, err := s.RequestTicket(id, "").Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.State, r.Reason)
	}
	// Output:
	// withdrawn it does not matter any more
	// unknown the agent died
}
