// Command testserver serves the target of package target over Cap'n Web, for test suites of other implementations:
//
//	go run ./capnweb/testserver --listen 127.0.0.1:0
//
// WebSockets and HTTP batches are both at /, open to pages of any origin. It prints the address it listens on as its one
// line, and exits with code 0 on SIGINT or SIGTERM. It is for tests only: any client that reaches it may make it use memory
// without bound.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/capnweb/testserver/target"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "testserver:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("testserver", flag.ContinueOnError)
	flags.SetOutput(log)
	listen := flags.String("listen", "127.0.0.1:8080", "`address` to listen on; port 0 takes a free one")
	trace := flags.Bool("trace", false, "write every message to standard error")
	profile := flags.String("cpuprofile", "", "write a CPU profile to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, ln.Addr())
	return serve(ctx, ln, log, *trace)
}

// serve serves connections of ln, which it closes, until ctx ends.
func serve(ctx context.Context, ln net.Listener, log io.Writer, trace bool) error {
	limits := capnweb.DefaultLimits()
	// The npm package's bound: 32 Mi UTF-16 units a message.
	limits.MessageBytes, limits.CallBytes, limits.QueuedBytes, limits.BlobBytes = 64<<20, 256<<20, 256<<20, 64<<20
	cfg := capnweb.Config{Limits: limits, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if trace {
		cfg.Trace = func(sent bool, message []byte) {
			arrow := "<"
			if sent {
				arrow = ">"
			}
			fmt.Fprintf(log, "%s %s\n", arrow, message)
		}
	}
	shared := target.NewShared()
	main := func(*http.Request) any { return target.New(shared) }
	server := &http.Server{
		Handler:           capnweb.Handler(main, cfg, capnweb.AcceptOptions{OriginPatterns: []string{"*"}}),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
