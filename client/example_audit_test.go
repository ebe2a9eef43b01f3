package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
)

// An owner sees who did what under which ref.
func ExampleSession_Audit() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Share(client.ShareOptions{Rights: capability.Read, Actor: "owner/reviewer"})
	b.BumpEpoch()
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	page, err := s.Audit(ctx, 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	chain := capability.NewChainVerifier(0)
	for _, row := range page.Rows {
		chain.Add(row.ChainRow())
		if row.Act != capability.AuditRedeem {
			fmt.Println(row.Act, "at cursor", row.Cursor)
		}
	}
	fmt.Println("flaws:", len(chain.End(page.Seq, page.Head)))
	// Output:
	// share at cursor 1
	// share at cursor 2
	// bump at cursor 3
	// flaws: 0
}

// What comes is seen soon.
func ExampleSession_FollowAudit() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	if _, err := s.BumpEpoch(ctx); err != nil {
		log.Fatal(err)
	}
	for row, err := range s.FollowAudit(ctx, client.AuditOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		if row.Act == capability.AuditBump {
			fmt.Println(row.Act, "at cursor", row.Cursor)
			break
		}
	}
	// Output: bump at cursor 2
}

// A space's root ref shows what was done under the space's refs.
func ExampleSpace_Audit() {
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
	if _, err := space.Save(ctx); err != nil {
		log.Fatal(err)
	}
	page, err := space.Audit(ctx, 0, 100)
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range page.Rows {
		fmt.Println(row.Act, row.Ref == owner.ID, row.Peer)
	}
	// Output:
	// redeem true 127.0.0.1
	// save true 127.0.0.1
}

// Following a space's audit.
func ExampleSpace_FollowAudit() {
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
	for row, err := range space.FollowAudit(ctx, client.AuditOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(row.Seq, row.Act)
		break
	}
	// Output: 1 redeem
}
