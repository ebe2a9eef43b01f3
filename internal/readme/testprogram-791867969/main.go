package main

import (
	"context"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/mooring-rpc/mooring/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	srv, err := server.New(ctx, server.Config{Dir: "srv", Address: "mooring://127.0.0.1:7600/sessions"})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/sessions/", srv.Handler())
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the program's own\n") })
	web := &http.Server{Addr: "127.0.0.1:7600", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		log.Print(web.ListenAndServe()) // where the port is taken, at once
		stop()
	}()
	<-ctx.Done()
	if err := srv.Close(); err != nil { // drains, and ends the streams that Shutdown would wait for
		log.Print(err)
	}
	_ = web.Shutdown(context.WithoutCancel(ctx))
}
