package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

// A session whose ref was used here before is found by its id, or by the name that
// another system has for it.
func ExampleClient_SessionByID() {
	ctx := context.Background()
	c, sp, stop := exampleSpace(ctx)
	defer stop()
	made, create := sp.Create(client.CreateOptions{External: "issue-17"})
	if _, err := create.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	s, err := c.SessionByID(ctx, "issue-17")
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.SessionByID(ctx, "issue-18")
	fmt.Println(s.ID() == made.ID(), errors.Is(err, fault.NotFound))
	// Output: true true
}

// The outbox keeps the refs that were used, and forgets one when it is told to.
func ExampleClient_Refs() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	ref, _ := b.Share(client.ShareOptions{Rights: capability.Read})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Redeem(ctx, ref); err != nil {
		log.Fatal(err)
	}
	if err := c.Forget(ctx, ref.ID); err != nil {
		log.Fatal(err)
	}
	refs, err := c.Refs(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range refs {
		fmt.Println(r.Role)
	}
	// Output:
	// space
	// session
}

// Committing does not fail while a server is away; Trouble says what is wrong with it.
func ExampleClient_ConnErr() {
	ctx := context.Background()
	owner, home, stop := exampleServer()
	stop() // and away it is
	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(home), RetryTimeout: -1})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sp, err := c.Space(ctx, owner)
	if err != nil {
		log.Fatal(err)
	}
	_, create := sp.Create(client.CreateOptions{})
	if _, err := create.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = sp.Describe(ctx)
	fmt.Println(errors.Is(err, fault.Unavailable), errors.Is(c.ConnErr(), fault.Unavailable), c.Err())
	// Output: true true <nil>
}

// A program that keeps the owner's ref and the batch's id may repeat a creation after
// a crash: there is one session all the same.
func ExampleSpace_NewOwner() {
	ctx := context.Background()
	_, sp, stop := exampleSpace(ctx)
	defer stop()
	o := client.CreateOptions{Owner: sp.NewOwner(), BatchID: outbox.NewBatchID()} // keep these first
	for range 2 {                                                                 // the second time, say, in the next process
		_, create := sp.Create(o)
		if _, err := create.CommitWait(ctx); err != nil {
			log.Fatal(err)
		}
	}
	n := 0
	for _, err := range sp.List(ctx, client.ListOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		n++
	}
	fmt.Println(n)
	// Output: 1
}

// Following is a loop over events that goes on over broken links; leaving it ends it.
func ExampleSession_Follow() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	for _, title := range []string{"a", "b"} {
		if _, err := s.Put(ctx, "session", map[string]string{"title": title}); err != nil {
			log.Fatal(err)
		}
	}
	for e, err := range s.Follow(ctx, client.SubscribeOptions{After: 1}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Cursor, string(e.Payload))
		if e.Cursor == 3 {
			break
		}
	}
	// Output:
	// 2 {"title":"a"}
	// 3 {"title":"b"}
}

// One put, committed by itself.
func ExampleSession_Put() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	ticket, err := s.Put(ctx, "session", map[string]string{"title": "one"})
	if err != nil {
		log.Fatal(err)
	}
	results, err := ticket.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].Status)
	// Output: applied
}

// The state as of now: every key's value, and the turns that were begun.
func ExampleSession_Snapshot() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("session", map[string]string{"title": "one"})
	b.Begin("msg_1", map[string]string{"role": "assistant"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	state, err := s.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range state.Entries {
		fmt.Println(e.Key, e.Cursor)
	}
	fmt.Println(state.Turns[0].Message, "is", state.Turns[0].Status)
	// Output:
	// session 2
	// message/msg_1 3
	// msg_1 is streaming
}

// A live capability of a space that allows less: to list, say, and not to create.
func ExampleSpace_Attenuate() {
	ctx := context.Background()
	_, sp, stop := exampleSpace(ctx)
	defer stop()
	live, err := sp.Attenuate(ctx, client.AttenuateOptions{Rights: capability.List, Label: "clerk"})
	if err != nil {
		log.Fatal(err)
	}
	defer live.Release()
	d, err := live.Describe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = live.Attenuate(ctx, client.AttenuateOptions{Rights: capability.Create})
	fmt.Println(d.Grant.Rights, d.Grant.Label, errors.Is(err, fault.Widening))
	// Output: list clerk true
}

// What a live capability shows can be read through it, and it can be kept: as a ref that lasts.
func ExampleLive_Save() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	live, err := s.Attenuate(ctx, client.AttenuateOptions{Rights: capability.Read | capability.Share})
	if err != nil {
		log.Fatal(err)
	}
	defer live.Release()

	page, err := live.Events(ctx, 0, 10)
	if err != nil {
		log.Fatal(err)
	}
	state, err := live.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	ref, err := live.Save(ctx, s.Ref()) // any ref to the same server says where it is
	if err != nil {
		log.Fatal(err)
	}
	d, err := c.Redeem(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(page.Events), state.Cursor, d.Grant.Rights)
	// Output: 1 1 read,share
}
