package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
)

// exampleSpace is a client and the space of a server of its own.
func exampleSpace(ctx context.Context) (c *client.Client, sp *client.Space, stop func()) {
	owner, home, stopServer := exampleServer()
	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(home)})
	if err != nil {
		log.Fatal(err)
	}
	if sp, err = c.Space(ctx, owner); err != nil {
		log.Fatal(err)
	}
	return c, sp, func() {
		if err := c.Close(); err != nil {
			log.Fatal(err)
		}
		stopServer()
	}
}

// Refs shows who has been given what: a tree, each ref after the one it was made from.
func ExampleSession_Refs() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Share(client.ShareOptions{Rights: capability.Read, Label: "reviewer", Actor: "owner/reviewer"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}

	for ref, err := range s.Refs(ctx, "") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ref.Actor, ref.Rights, ref.Parent != "", ref.Dead)
	}
	// Output:
	// owner read,append,share,revoke,break,schema,revert,compact,ask,answer true none
	// owner/reviewer read true none
}

// A space's tree has the refs of the sessions that were made under it.
func ExampleSpace_Refs() {
	ctx := context.Background()
	_, sp, stop := exampleSpace(ctx)
	defer stop()
	_, create := sp.Create(client.CreateOptions{Label: "the session's"})
	if _, err := create.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}

	for ref, err := range sp.Refs(ctx, "") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ref.Label, ref.Rights)
	}
	// Output:
	// root share,revoke,create,list,manage
	// the session's read,append,share,revoke,break,schema,revert,compact,ask,answer
}

// A space's ref can be narrowed and handed on like a session's.
func ExampleSpace_Share() {
	ctx := context.Background()
	c, sp, stop := exampleSpace(ctx)
	defer stop()
	team, err := sp.Share(ctx, client.ShareOptions{Rights: capability.Create | capability.List, Actor: "team"})
	if err != nil {
		log.Fatal(err)
	}
	theirs, err := c.Space(ctx, team)
	if err != nil {
		log.Fatal(err)
	}
	d, err := theirs.Describe(ctx)
	fmt.Println(d.Grant.Rights, d.Grant.Actor, err)
	_, err = theirs.Share(ctx, client.ShareOptions{Rights: capability.List})
	fmt.Println(errors.Is(err, fault.MissingRight))
	// Output:
	// create,list team <nil>
	// true
}

// Revoking a space's ref ends every session's refs that were made under it.
func ExampleSpace_Revoke() {
	ctx := context.Background()
	c, sp, stop := exampleSpace(ctx)
	defer stop()
	team, err := sp.Share(ctx, client.ShareOptions{Rights: capability.Create})
	if err != nil {
		log.Fatal(err)
	}
	theirs, err := c.Space(ctx, team)
	if err != nil {
		log.Fatal(err)
	}
	s, create := theirs.Create(client.CreateOptions{})
	if _, err := create.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}

	died, err := sp.Revoke(ctx, team.ID)
	fmt.Println(died, err)
	_, err = s.Snapshot(ctx)
	fmt.Println(errors.Is(err, fault.Revoked))
	// Output:
	// 2 <nil>
	// true
}

// Rotate gives the owner a fresh ref where the old one may be in wrong hands.
func ExampleSession_Rotate() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	fresh, _, err := s.Rotate(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = s.Snapshot(ctx) // the old one
	fmt.Println(errors.Is(err, fault.Revoked))
	ticket, err := fresh.Put(ctx, "session", map[string]any{"title": "still mine"})
	if err != nil {
		log.Fatal(err)
	}
	results, err := ticket.Wait(ctx)
	fmt.Println(results.Err(), err)
	// Output:
	// true
	// <nil> <nil>
}

// The root ref of a space can be rotated too; all that was made under it goes on.
func ExampleSpace_Rotate() {
	ctx := context.Background()
	_, sp, stop := exampleSpace(ctx)
	defer stop()
	s, create := sp.Create(client.CreateOptions{})
	if _, err := create.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}

	fresh, err := sp.Rotate(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = sp.Share(ctx, client.ShareOptions{Rights: capability.List})
	fmt.Println(errors.Is(err, fault.Revoked))
	for info, err := range fresh.List(ctx, client.ListOptions{}) {
		fmt.Println(info.ID == s.ID(), err)
	}
	// Output:
	// true
	// true <nil>
}

// Open reaches any session of the space, whoever made it, under the space's own ref.
func ExampleSpace_Open() {
	ctx := context.Background()
	_, sp, stop := exampleSpace(ctx)
	defer stop()
	theirs, create := sp.Create(client.CreateOptions{Actor: "agent"}) // by another, in truth
	if _, err := create.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}

	s, err := sp.Open(theirs.ID())
	if err != nil {
		log.Fatal(err)
	}
	b := s.Batch()
	b.Share(client.ShareOptions{Rights: capability.Read, Actor: "reviewer"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = s.Revoke(ctx, theirs.Ref().ID) // the agent would lose the session
	fmt.Println(fault.CodeOf(err))

	mine, _, err := s.TakeOver(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = theirs.Describe(ctx)
	fmt.Println(fault.CodeOf(err))
	if _, err := s.RevokeOwner(ctx, mine.Ref().ID); err != nil {
		log.Fatal(err)
	}
	d, err := mine.Describe(ctx)
	fmt.Println(d.Grant.Dead, err)
	// Output:
	// not_an_owner
	// none
	// revoked <nil>
}

// RemoveOlder deletes what nobody has changed for long, whoever made it, page by page.
func ExampleSpace_RemoveOlder() {
	ctx := context.Background()
	_, sp, stop := exampleSpace(ctx)
	defer stop()
	_, create := sp.Create(client.CreateOptions{Actor: "agent"})
	if _, err := create.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	deleted := 0
	for page, err := range sp.RemoveOlder(ctx, client.OlderOptions{Remove: client.DeleteOlder, Age: 90 * 24 * time.Hour}) {
		deleted += page.Done
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(deleted, "sessions are deleted: this one is new")
	// Output:
	// 0 sessions are deleted: this one is new
}
