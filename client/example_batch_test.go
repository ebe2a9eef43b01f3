package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

// A part grows while it is written. Each piece says where it goes on, in bytes; the
// length after one can be left to the server.
func ExampleBatch_AppendText() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Begin("msg_1", map[string]string{"role": "assistant"})
	b.Put("part/msg_1/prt_1", map[string]string{"type": "text", "text": ""})
	if _, err := b.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	at := 0
	for _, piece := range []string{"Grüß ", "Gott"} {
		b := s.Batch()
		b.AppendText("part/msg_1/prt_1", at, piece)
		if _, err := b.CommitWait(ctx); err != nil {
			log.Fatal(err)
		}
		at += len(piece)
	}
	// A piece that is cut within a character is refused, and not altered.
	b = s.Batch()
	b.AppendText("part/msg_1/prt_1", at, "ü"[:1])
	_, err := b.Commit(ctx)
	fmt.Println(errors.Is(err, fault.BadArgument))

	state, err := s.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(state.Entry("part/msg_1/prt_1").Payload))
	// Output:
	// true
	// {"text":"Grüß Gott","type":"text"}
}

// A turn ends once, with what there is to say of it.
func ExampleBatch_Finalize() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Begin("msg_1", map[string]string{"role": "assistant"})
	b.Finalize("msg_1", client.Failed).Arg("error", map[string]string{"name": "overloaded"})
	b.Finalize("msg_1", client.Completed) // too late
	results, err := b.CommitWait(ctx)
	fmt.Println(results[1].Status, results[2].Status, errors.Is(err, fault.TurnEnded))
	// Output: applied rejected true
}

// A key that is taken away is no part of the state any more; its events stay.
func ExampleBatch_Remove() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("message/msg_1", map[string]string{"role": "user"})
	b.Remove("message/msg_1")
	b.Remove("message/never") // changes nothing
	results, err := b.CommitWait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	state, err := s.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(state.Entries), "entries at cursor", state.Cursor, "after", len(results), "ops")
	// Output: 0 entries at cursor 3 after 3 ops
}

// A share can wait in the outbox with everything else, and be handed on meanwhile.
func ExampleBatch_Share() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	ref, shared := b.Share(client.ShareOptions{Rights: capability.Read, Label: "reviewer"})
	b.Put("session", map[string]any{"title": "shared with a reviewer"}).DependsOn(shared)
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	d, err := c.Redeem(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Grant.Label, "may", d.Grant.Rights)
	// Output: reviewer may read
}

// An op of any method, with its arguments by name: for methods that a later server has.
func ExampleBatch_Do() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Do("put", client.Arg{Name: "key", Value: "session"}, client.Arg{Name: "payload", Value: json.RawMessage(`{"title": "by hand"}`)})
	b.Do("frobnicate")
	_, err := b.Commit(ctx)
	fmt.Println(errors.Is(err, fault.UnknownMethod), b.Len())
	// Output: true 2
}

// A program that keeps the id of a batch may commit it again after a crash, whether
// it was committed before or not.
func ExampleBatch_SetID() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	id := outbox.NewBatchID() // keep this first
	for range 2 {             // the second time, say, in the next process
		b := s.Batch().SetID(id)
		b.Put("message/msg_1", map[string]string{"role": "user"})
		if _, err := b.CommitWait(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println(b.ID() == id)
	}
	d, err := s.Describe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("cursor", d.Session.Cursor)
	// Output:
	// true
	// true
	// cursor 2
}

// An op may need others: if one of them does not apply, it is skipped.
func ExamplePromise_DependsOn() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	end := b.Finalize("msg_1", client.Completed) // was never begun
	b.Put("session", map[string]string{"title": "done"}).DependsOn(end)
	b.Put("message/msg_2", map[string]string{"role": "user"})
	results, err := b.CommitWait(ctx)
	for _, o := range results {
		fmt.Println(o.Status)
	}
	fmt.Println(errors.Is(err, fault.NotFound))
	// Output:
	// rejected
	// skipped
	// applied
	// true
}

// Op ids are known before anything is durable: a batch of a later process can refer to
// an op, or depend on it, by its id alone.
func ExamplePromise_OpID() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	id := b.Put("message/msg_1", map[string]string{"role": "user"}).OpID()
	if _, err := b.Commit(ctx); err != nil {
		log.Fatal(err)
	}

	later := s.Batch() // in another process of the same outbox
	later.Put("session", map[string]string{"title": "after it"}).DependsOnID(id).Expect(client.ResultRef{Op: id, Path: "cursor"})
	results, err := later.CommitWait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].Status, results[0].Cursor)
	// Output: applied 3
}

// An op can have an id that the program has made, before anything refers to it.
func ExamplePromise_SetID() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	const id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	b := s.Batch()
	first := b.Put("message/msg_1", map[string]string{"role": "user"}).SetID(id)
	b.Put("session", map[string]string{"title": "t"}).Expect(first.Field("cursor"))
	results, err := b.CommitWait(ctx)
	fmt.Println(first.OpID() == id, results[0].OpID == id, errors.Is(err, fault.Conflict))
	// Output: true true true
}

// The outcome of an op is found by its promise, or by its id where the promise is gone.
func ExampleResults_Of() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	put := b.Put("message/msg_1", map[string]string{"role": "user"})
	b.Finalize("msg_2", client.Completed) // was never begun
	ticket, err := b.Commit(ctx)
	if err != nil {
		log.Fatal(err)
	}
	results, err := ticket.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	o, err := results.Of(put)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(o.Status, errors.Is(results.Err(), fault.NotFound))

	again, err := c.Ticket(ticket.Batch).Wait(ctx) // in a later process, which kept the ids
	if err != nil {
		log.Fatal(err)
	}
	if o, err = again.ByID(ticket.Ops[0]); err != nil {
		log.Fatal(err)
	}
	var result struct{ Cursor uint64 }
	fmt.Println(o.Decode(&result), result.Cursor)
	// Output:
	// applied true
	// <nil> 2
}

// Two writers change one value of a kind of their own: each patches its members, and neither undoes
// what the other has done. ExpectKey is for a change that depends on what the value was.
func ExampleBatch_Patch() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	put := b.Put("todo/1", map[string]any{"title": "paint the boat", "state": "open"}).ExpectKey(0)
	b.Patch("todo/1", map[string]any{"state": "done"}).ExpectKey(put.Field("cursor"))
	b.Add("todo/1", "tries", 1)
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	late := s.Batch()
	late.Put("todo/1", map[string]any{"title": "paint the house"}).ExpectKey(0)
	_, err := late.CommitWait(ctx)
	fmt.Println(errors.Is(err, fault.Conflict))

	state, err := s.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(state.Entry("todo/1").Payload))
	// Output:
	// true
	// {"state":"done","title":"paint the boat","tries":1}
}

// Workers share a list. Each claims the first todo that is free, does it, and takes it off the list, all
// by the claim, so that one whose lease is over changes nothing.
func ExampleBatch_ClaimFirst() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("todo/1", "paint the boat")
	b.Put("todo/2", "mend the net")
	claimed := b.ClaimFirst("todo/", time.Minute, "worker 1")
	b.Remove("").Arg("key", claimed.Field("key")).WithClaim(claimed) // it is done
	mine := b.Claim("todo/2", time.Minute, "worker 1")
	b.Put("todo/2", "mend the nets").WithClaim(mine)
	results, err := b.CommitWait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var first struct{ Key string }
	fmt.Println(results[2].Decode(&first), first.Key)

	late := s.Batch()
	late.Put("todo/2", "sell the nets") // by whom it is not claimed
	_, err = late.CommitWait(ctx)
	fmt.Println(errors.Is(err, fault.Conflict))

	page, err := s.Get(ctx, "todo/2")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(page.Entries[0].Payload), page.Entries[0].Claim.Worker)
	release := s.Batch()
	release.Release("todo/2", mine)
	_, err = release.CommitWait(ctx)
	fmt.Println(err)
	// Output:
	// <nil> todo/1
	// true
	// "mend the nets" worker 1
	// <nil>
}
