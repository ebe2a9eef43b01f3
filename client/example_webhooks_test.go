package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mooring-rpc/mooring/client"
)

// The server, if its operator lets it (mooring serve --webhooks), calls a webhook when a turn is over, while no client runs. The receiver checks what it is
// sent with the secret.
func ExampleSession_AddWebhook() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	secret := client.NewWebhookSecret() // to be kept before it is registered, so that the same can be registered again
	w, err := s.AddWebhook(ctx, client.Webhook{ID: "turns", URL: "https://example.org/hooks/7", Secret: secret, Kinds: []string{"turn.finished"}})
	if err != nil {
		log.Fatal(err)
	}
	list, err := s.Webhooks(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(w.ID, len(list), list[0].Kinds, list[0].Ended == "")
	removed, err := s.RemoveWebhook(ctx, "turns")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(removed)
	// Output:
	// turns 1 [turn.finished] true
	// true
}
