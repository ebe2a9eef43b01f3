package server_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/server"
)

// A program that has a mux of its own serves sessions below one of its paths.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "embedded")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	srv, err := server.New(ctx, server.Config{
		Dir:     filepath.Join(dir, "server"),
		Address: "mooring://" + ln.Addr().String() + "/sessions-of-agents",
	})
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.Handle("/sessions-of-agents/", srv.Handler())
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the program's own") })
	web := &http.Server{Handler: mux}
	go web.Serve(ln)
	defer web.Close()
	defer srv.Close() // first: it ends what web.Shutdown would wait for

	// Elsewhere, an agent that was given the owner's ref.
	text, err := os.ReadFile(srv.Owner().Path)
	if err != nil {
		log.Fatal(err)
	}
	owner, err := capability.ParseRef(strings.TrimSpace(string(text)))
	if err != nil {
		log.Fatal(err)
	}
	agent, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(filepath.Join(dir, "agent"))})
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close()
	space, err := agent.Space(ctx, owner)
	if err != nil {
		log.Fatal(err)
	}
	_, batch := space.Create(client.CreateOptions{})
	batch.Put("message/msg_1", map[string]string{"role": "user"})
	results, err := batch.CommitWait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, o := range results {
		fmt.Println(o.Status, "at cursor", o.Cursor)
	}
	// Output:
	// applied at cursor 1
	// applied at cursor 2
}
