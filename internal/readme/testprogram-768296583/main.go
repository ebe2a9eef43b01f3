package main

import (
	"context"
	"iter"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/mooring-rpc/mooring/a2astore"
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
)

func main() {
	ctx := context.Background()
	text := must(os.ReadFile("tasks.ref")) // mooring share ses_01J… --rights read,append --to tasks.ref
	c := must(client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox("outbox")}))
	session := must(c.Session(ctx, must(capability.ParseRef(strings.TrimSpace(string(text))))))
	store := a2astore.New(session, a2astore.Config{}) // Authenticator: whose tasks they are
	handler := a2asrv.NewHandler(agent{}, a2asrv.WithTaskStore(store), a2asrv.WithCallInterceptors(store.Repeats()))
	http.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}

// agent is yours.
type agent struct{}

func (agent) Execute(_ context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		if yield(a2a.NewSubmittedTask(c, c.Message), nil) {
			yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateCompleted, a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("Done."))), nil)
		}
	}
}

func (agent) Cancel(_ context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateCanceled, nil), nil)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
