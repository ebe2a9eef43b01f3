package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

// A key leaked into a message. Purged, it is in no event and in no state, and the
// log still verifies.
func ExampleBatch_Purge() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("message/msg_1", map[string]string{"text": "the key is sk-4711"})
	b.Put("message/msg_1", map[string]string{"text": "the key is …"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}

	b = s.Batch()
	b.Purge("message/msg_1")
	results, err := b.CommitWait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(results[0].Result))
	page, err := s.Events(ctx, 1, 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range page.Events {
		fmt.Println(e.Cursor, e.Method, e.Payload == nil)
	}
	// Output:
	// {"cursor":4,"events":2}
	// 2 put true
	// 3 put true
	// 4 purge false
}

// The log alone makes the state that the server has.
func ExampleSession_Verify() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("message/msg_1", map[string]string{"role": "user"})
	b.Begin("msg_2", map[string]string{"role": "assistant"})
	b.Finalize("msg_2", client.Completed)
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}

	v, err := s.Verify(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v.Events, v.Cursor, v.StateCursor, v.Err())
	// Output: 4 4 4 <nil>
}

// Who follows a session that is deleted gets its last event, and then the reason.
func ExampleBatch_Delete_followed() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("session", map[string]string{"title": "short-lived"})
	b.Delete()
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	for e, err := range s.Follow(ctx, client.SubscribeOptions{After: 1}) {
		if err != nil {
			fmt.Println(errors.Is(err, fault.SessionDeleted))
			break
		}
		fmt.Println(e.Cursor, e.Method, e.Payload == nil)
	}
	_, err := s.Snapshot(ctx)
	fmt.Println(fault.CodeOf(err))
	// Output:
	// 2 put true
	// 3 delete true
	// true
	// session_deleted
}

// Turns whose agents are gone are ended by whoever may revoke.
func ExampleSession_AbortTurns() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Begin("msg_1", map[string]string{"role": "assistant"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}

	dead, err := s.AbortTurns(ctx, client.AbortOptions{DeadOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	all, err := s.AbortTurns(ctx, client.AbortOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n%+v\n", dead, all)
	// Output:
	// {Aborted:0 AlreadyEnded:0 Skipped:1 Refused:0}
	// {Aborted:1 AlreadyEnded:0 Skipped:0 Refused:0}
}

// The last messages are hidden, shown again, and hidden from a cursor on; a new message settles that.
func ExampleBatch_Revert() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	show := func(b *client.Batch) {
		if _, err := b.CommitWait(ctx); err != nil {
			log.Fatal(err)
		}
		state, err := s.Snapshot(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range state.Entries {
			fmt.Print(e.Key, " ")
		}
		d, err := s.Describe(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("reverted to %q\n", d.Session.Reverted.To)
	}
	b := s.Batch()
	for _, id := range []string{"message/1", "message/2", "message/3"} {
		b.Put(id, map[string]string{"role": "user"})
	}
	b.Revert("message/2")
	show(b)
	b = s.Batch()
	b.Unrevert()
	show(b)
	b = s.Batch()
	b.RevertAfter(3)
	b.Put("message/4", map[string]string{"role": "user"})
	show(b)
	// Output:
	// message/1 reverted to "message/2"
	// message/1 message/2 message/3 reverted to ""
	// message/1 message/2 message/4 reverted to ""
}

// A message is the summary of those before it: the compacted view has it in their place.
func ExampleBatch_Compact() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	if err := s.CheckFeatures(ctx, "compact"); err != nil {
		log.Fatal(err)
	}
	b := s.Batch()
	for _, id := range []string{"message/1", "message/2", "message/sum", "message/3"} {
		b.Put(id, map[string]string{"role": "user"})
	}
	b.Compact("message/2", "message/sum")
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	for _, compacted := range []bool{false, true} {
		state, err := s.SnapshotWith(ctx, client.SnapshotOptions{Compacted: compacted})
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range state.Entries {
			fmt.Print(e.Key, " ")
		}
		fmt.Printf("%q without %v\n", state.Compacted.Upto, state.LeftOut)
	}
	d, err := s.Describe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Session.Compacted.Upto, d.Session.Compacted.Summary, d.Session.Compacted.Actor)
	// Output:
	// message/1 message/2 message/sum message/3 "" without []
	// message/sum message/3 "message/2" without [1 2]
	// message/2 message/sum owner
}
