package main

import (
	"context"
	"fmt"
	"log"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
)

func main() {
	ctx := context.Background()
	owner, err := capability.ReadRefFile("srv/owner.ref")
	check(err)
	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox("agent-home")}) // the outbox lives there; sends while open
	check(err)
	defer c.Close()
	space, err := c.Space(ctx, owner)
	check(err)

	session, b := space.Create(client.CreateOptions{External: "from-go"}) // needs no server
	b.Begin("msg_1", map[string]any{"role": "assistant"})
	b.Put("part/msg_1/prt_1", map[string]any{"type": "text", "text": ""})
	hello := b.AppendText("part/msg_1/prt_1", 0, "Hello, ")
	b.AppendText("part/msg_1/prt_1", hello.Field("length"), "world") // a result that does not exist yet
	b.Finalize("msg_1", client.Completed)
	reader, _ := b.Share(client.ShareOptions{Rights: capability.Read}) // reader.Text() can be given away now
	_, err = b.CommitWait(ctx)                                         // durable, then sent, answered and applied
	check(err)

	shared, err := c.Session(ctx, reader)
	check(err)
	for event, err := range shared.Follow(ctx, client.SubscribeOptions{}) { // once each, in order, over reconnects
		check(err)
		fmt.Println(event.Cursor, event.Method, event.Key)
		if event.Cursor == 7 {
			break
		}
	}
	fmt.Println("done with", session.ID())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
