package client_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
)

// exampleServer runs a server for one example and gives its owner's ref, and a
// folder for a client's outbox.
func exampleServer() (owner capability.Ref, home string, stop func()) {
	r, err := newRig()
	if err != nil {
		log.Fatal(err)
	}
	return r.owner, r.home("example"), func() {
		if err := r.close(); err != nil {
			log.Fatal(err)
		}
	}
}

// exampleSession is a client and a new session on a server of its own.
func exampleSession(ctx context.Context) (c *client.Client, s *client.Session, stop func()) {
	owner, home, stopServer := exampleServer()
	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(home)})
	if err != nil {
		log.Fatal(err)
	}
	space, err := c.Space(ctx, owner)
	if err != nil {
		log.Fatal(err)
	}
	s, create := space.Create(client.CreateOptions{})
	if _, err := create.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	return c, s, func() {
		if err := c.Close(); err != nil {
			log.Fatal(err)
		}
		stopServer()
	}
}

// An agent makes a session, appends to it and shares it. Everything before Wait
// works without a server.
func Example() {
	ctx := context.Background()
	owner, home, stop := exampleServer()
	defer stop()

	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(home)})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	space, err := c.Space(ctx, owner)
	if err != nil {
		log.Fatal(err)
	}
	agent, batch := space.Create(client.CreateOptions{External: "my-own-id"})
	batch.Put("message/msg_1", map[string]string{"role": "user"})
	batch.Put("part/msg_1/prt_1", map[string]string{"type": "text", "text": "Hello"})
	reader, _ := batch.Share(client.ShareOptions{Rights: capability.Read, Label: "reviewer"})
	ticket, err := batch.Commit(ctx) // durable from here on
	if err != nil {
		log.Fatal(err)
	}
	results, err := ticket.Wait(ctx) // until a server has answered
	if err != nil {
		log.Fatal(err)
	}
	for _, o := range results {
		fmt.Println(o.Status, "at cursor", o.Cursor)
	}

	// Somebody else follows it with the text of the shared ref alone.
	ref, err := capability.ParseRef(reader.Text())
	if err != nil {
		log.Fatal(err)
	}
	shared, err := c.Session(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range shared.Follow(ctx, client.SubscribeOptions{After: 1}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Cursor, event.Method, event.Key)
		if event.Cursor == 3 {
			break
		}
	}
	fmt.Println(agent.ID() == shared.ID())
	// Output:
	// applied at cursor 1
	// applied at cursor 2
	// applied at cursor 3
	// applied at cursor 4
	// 2 put message/msg_1
	// 3 put part/msg_1/prt_1
	// true
}

// Nothing of this needs a server: the client sends it when there is one.
func ExampleOpen() {
	ctx := context.Background()
	owner, home, stop := exampleServer()
	defer stop()
	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(home), Offline: true})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	space, err := c.Space(ctx, owner)
	if err != nil {
		log.Fatal(err)
	}
	_, create := space.Create(client.CreateOptions{})
	if _, err := create.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	status, err := c.Status(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("waiting:", status.Unfinished())
	// Output: waiting: 1
}

// A ticket can be asked in any later process.
func ExampleClient_Ticket() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	ticket, err := s.Put(ctx, "message/msg_1", map[string]string{"role": "user"})
	if err != nil {
		log.Fatal(err)
	}
	id := ticket.Batch // keep this

	results, err := c.Ticket(id).Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].Status, string(results[0].Result))
	// Output: applied {"cursor":2}
}

// What the outbox holds can be waited for as a whole.
func ExampleClient_Drain() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	for i := range 5 {
		if _, err := s.Put(ctx, fmt.Sprintf("message/msg_%d", i), map[string]int{"n": i}); err != nil {
			log.Fatal(err)
		}
	}
	if err := c.Drain(ctx, nil); err != nil {
		log.Fatal(err)
	}
	status, err := c.Status(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("waiting:", status.Unfinished())
	// Output: waiting: 0
}

// A promise stands for a result that is not there yet, in any argument.
func ExamplePromise_Field() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Begin("msg_1", map[string]string{"role": "assistant"})
	b.Put("part/msg_1/prt_1", map[string]string{"type": "text", "text": ""})
	one := b.AppendText("part/msg_1/prt_1", 0, "Hello, ")
	two := b.AppendText("part/msg_1/prt_1", one.Field("length"), "world")
	results, err := b.CommitWait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var grown struct{ Length int }
	if err := results.Decode(two, &grown); err != nil {
		log.Fatal(err)
	}
	fmt.Println(grown.Length)
	// Output: 12
}

// An op can be bound to where the session is.
func ExamplePromise_Expect() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	first := s.Batch()
	first.Put("session", map[string]string{"title": "one"})
	if _, err := first.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}

	second := s.Batch()
	second.Put("session", map[string]string{"title": "two"}).Expect(1)
	results, err := second.CommitWait(ctx)
	fmt.Println(errors.Is(err, fault.Conflict), "the session is at", results[0].Cursor)
	// Output: true the session is at 2
}

// A turn is begun, grows, and ends once.
func ExampleBatch_Begin() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Begin("msg_1", map[string]any{"role": "assistant"})
	b.Put("part/msg_1/prt_1", map[string]string{"type": "text", "text": ""})
	b.AppendText("part/msg_1/prt_1", 0, "Done.")
	b.Finalize("msg_1", client.Completed).Arg("usage", map[string]int{"output": 2}).Arg("completed", int64(1795203727476))
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	state, err := s.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(state.Turns[0].Message, state.Turns[0].Status)
	fmt.Println(string(state.Entry("part/msg_1/prt_1").Payload))
	// Output:
	// msg_1 completed
	// {"text":"Done.","type":"text"}
}

// An atomic batch applies as a whole or not at all.
func ExampleBatch_Atomic() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch().Atomic()
	b.Put("message/msg_1", map[string]string{"role": "user"})
	b.Finalize("msg_2", client.Completed) // was never begun
	ticket, err := b.Commit(ctx)
	if err != nil {
		log.Fatal(err)
	}
	results, err := ticket.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].Status)
	// Output: batch_aborted
}

// A key is put, put again, and removed.
func ExampleBatch_Put() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("model/fake-1", json.RawMessage(`{"id": "fake-1", "limit": 1e6}`)) // kept byte for byte
	b.Put("message/msg_1", map[string]string{"role": "user"})
	b.Remove("message/msg_1")
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	state, err := s.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range state.Entries {
		fmt.Println(e.Key, string(e.Payload))
	}
	// Output: model/fake-1 {"id": "fake-1", "limit": 1e6}
}

// A ref that is worth nothing without its receiver's key.
func ExampleShareOptions_seal() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	public, private, err := ed25519.GenerateKey(nil) // the receiver's; public is handed to the sharer
	if err != nil {
		log.Fatal(err)
	}
	ref, ticket, err := s.Share(ctx, client.ShareOptions{Rights: capability.Read, Seal: public})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := ticket.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	for _, key := range []ed25519.PrivateKey{nil, private} {
		home, err := os.MkdirTemp("", "mooring-example-")
		if err != nil {
			log.Fatal(err)
		}
		defer os.RemoveAll(home)
		c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(home), SealKey: key})
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		d, err := c.Redeem(ctx, ref)
		fmt.Println(fault.CodeOf(err), d.Grant.Rights)
	}
	// Output:
	// sealed none
	// none read
}

// A share is made offline and can be handed on at once.
func ExampleSession_Share() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	ref, ticket, err := s.Share(ctx, client.ShareOptions{
		Rights:  capability.Read | capability.Append,
		Expires: time.Now().Add(24 * time.Hour),
		Actor:   "owner/helper",
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := ticket.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	d, err := c.Redeem(ctx, ref) // what whoever has ref.Text() would do
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Grant.Rights, "as", d.Grant.Actor, "at epoch", d.Grant.Epoch, "cursor", d.Session.Cursor)
	// Output: read,append as owner/helper at epoch 1 cursor 2
}
