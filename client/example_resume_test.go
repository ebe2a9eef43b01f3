package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

// Who keeps where it was, a cursor with its event's hash, is told when the server has
// another event there: it was restored from a backup, and has gone on otherwise since.
func ExampleSession_EventsFrom() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("message/msg_1", map[string]string{"role": "user"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	state, err := s.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	kept := state.Position().String() // CURSOR:HASH

	at, err := client.ParsePosition(kept)
	if err != nil {
		log.Fatal(err)
	}
	page, err := s.EventsFrom(ctx, at, 100)
	fmt.Println(len(page.Events), "events after", at.Cursor, err)
	_, err = s.EventsFrom(ctx, client.Position{Cursor: at.Cursor, Hash: client.Hash{1}}, 100)
	fmt.Println(fault.CodeOf(err))
	// Output:
	// 0 events after 2 <nil>
	// server_behind
}

// The state as it was, if the log is still the one that was seen.
func ExampleSession_SnapshotOf() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	before, err := s.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	b := s.Batch()
	b.Put("session", map[string]string{"title": "later"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	state, err := s.SnapshotOf(ctx, before.Position())
	fmt.Println(state.Cursor, len(state.Entries), err)
	// Output: 1 0 <nil>
}

// A live capability is read by position as a session is.
func ExampleLive_EventsFrom() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	live, err := s.Attenuate(ctx, client.AttenuateOptions{Rights: capability.Read})
	if err != nil {
		log.Fatal(err)
	}
	defer live.Release()
	state, err := live.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	at := state.Position()
	page, err := live.EventsFrom(ctx, at, 100)
	fmt.Println(len(page.Events), "events after", at.Cursor, err)
	_, err = live.EventsFrom(ctx, client.Position{Cursor: at.Cursor, Hash: client.Hash{1}}, 100)
	fmt.Println(fault.CodeOf(err))
	_, err = live.SnapshotOf(ctx, client.Position{Cursor: at.Cursor, Hash: client.Hash{1}})
	fmt.Println(fault.CodeOf(err))
	// Output:
	// 0 events after 1 <nil>
	// server_behind
	// server_behind
}

// A subscriber that is to go on whatever has become of the server starts over from the
// session's state when the log is not the one it has seen.
func ExampleSession_Subscribe_startOver() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	if _, err := s.Put(ctx, "session", map[string]string{"title": "a"}); err != nil {
		log.Fatal(err)
	}
	enough := errors.New("enough")
	after := client.Position{Cursor: 1, Hash: client.Hash{1}} // of a log that the server does not have any more
	err := s.Subscribe(ctx, client.SubscribeOptions{After: after.Cursor, Hash: after.Hash, StartOver: func(state *client.State) error {
		fmt.Println("start over from", state.Cursor > 0)
		return enough
	}}, func(client.Event) error { return nil })
	fmt.Println(err)
	// Output:
	// start over from true
	// enough
}
