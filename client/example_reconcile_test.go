package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mooring-rpc/mooring/outbox"
)

// After a restore of the server each outbox that wrote to it brings back what was lost.
// Here nothing was.
func ExampleClient_Reconcile() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("message/msg_1", map[string]string{"role": "user"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}

	sessions, err := c.Outbox().Sessions(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range sessions {
		r, err := c.Reconcile(ctx, id, outbox.ReconcileOptions{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Needed())
		for _, op := range r.Ops {
			fmt.Println(op.Fate, op.Op, op.Method, op.Key, op.NewOp)
		}
	}
	// Output: false
}
