// Command benchrpc measures package rpc against other ways to make a call, in
// one run and as ratios: a raw WebSocket echo with one frame a call, which is
// the floor, go-capnp's own rpc package over the same WebSocket library, and
// gRPC.
//
//   - an echo of 300 bytes over one connection on loopback: one call after the
//     other, the same with client and server bound to one core, and 64 calls in
//     flight. Unbound, one call after the other measures how fast a core wakes
//     the other up; bound, it measures the work;
//   - the same over Cap'n Web, our package and the npm package on Node calling
//     each other and themselves (this part needs Node and npm, and installs the
//     packages of js/package-lock.json);
//   - what an idle connection costs the server in memory: of an echo server, and
//     of the real mooring serve with a live session on each connection.
//
// Client and server are processes of their own, this program again, made anew
// for each measurement. What is compared runs in turns, and medians are given. A
// line on standard error tells how far it is, tables go to standard output:
//
//	make bench-rpc
//	cd internal/benchrpc && go run . --parts echo --rounds 1
//	cd internal/benchrpc && go run . --parts capnweb
//
// It is a module of its own so that what it compares with does not become a
// dependency of those who import Mooring. It needs a Unix; binding to a core and
// the memory of a process are read on Linux alone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mooring-rpc/mooring/internal/measure"
)

// options are the command line.
type options struct {
	parts       []string
	contenders  []contender
	rounds      int
	duration    time.Duration // of one measurement of the echo
	connections int           // of the idle part
	settle      time.Duration // how long those are left alone
	cpuProfile  string
	memProfile  string
	profiled    string
}

// Parts of the benchmark.
const (
	partEcho = "echo"
	partWeb  = "capnweb"
	partIdle = "idle"
)

func main() {
	if os.Getenv(envChild) != "" {
		childMain()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "benchrpc: interrupted")
		os.Exit(1)
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "benchrpc:", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string, errOut io.Writer) (options, error) {
	var o options
	var parts, contenders string
	f := flag.NewFlagSet("benchrpc", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&parts, "parts", "echo,capnweb,idle", "what to measure")
	f.StringVar(&contenders, "contenders", strings.Join(names(everyContender), ","), "whom to measure")
	f.IntVar(&o.rounds, "rounds", 5, "how often each echo is measured")
	f.DurationVar(&o.duration, "duration", time.Second, "how long one measurement of an echo takes")
	f.IntVar(&o.connections, "connections", 5000, "idle connections")
	f.DurationVar(&o.settle, "settle", 6*time.Second, "how long idle connections are left alone before memory is read, at least")
	f.StringVar(&o.cpuProfile, "cpuprofile", "", "run each echo of --profiled once more at the end under a CPU profile, into FILE.MODE.client and .server")
	f.StringVar(&o.memProfile, "memprofile", "", "the same with every allocation in FILE.MODE.client and .server, and the idle server's heap in FILE.idle.server")
	f.StringVar(&o.profiled, "profiled", contenderMooring, "whose profiles")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	o.parts = strings.Split(parts, ",")
	for _, p := range o.parts {
		if p != partEcho && p != partWeb && p != partIdle {
			return o, fmt.Errorf("--parts %q is none of echo, capnweb, idle", p)
		}
	}
	for _, name := range strings.Split(contenders, ",") {
		c, err := contenderByName(name)
		if err != nil {
			return o, fmt.Errorf("--contenders: %w", err)
		}
		o.contenders = append(o.contenders, c)
	}
	if _, err := contenderByName(o.profiled); err != nil {
		return o, fmt.Errorf("--profiled: %w", err)
	}
	if o.rounds < 1 || o.duration <= 0 || o.connections < 1 || o.settle < 0 {
		return o, errors.New("--rounds, --duration and --connections must be above 0")
	}
	return o, nil
}

// bench is one run.
type bench struct {
	opts     options
	dir      string
	progress *measure.Progress
}

// run is main without the process.
func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mooring-benchrpc-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{opts: o, dir: dir, progress: measure.NewProgress(errOut)}
	defer b.progress.End()
	var r report
	if slices.Contains(o.parts, partEcho) {
		if err := b.echo(ctx, &r); err != nil {
			return fmt.Errorf("echo: %w", err)
		}
	}
	if slices.Contains(o.parts, partWeb) {
		if err := b.web(ctx, &r); err != nil {
			return fmt.Errorf("capnweb: %w", err)
		}
	}
	if err := b.profileEchoes(ctx, &r); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	if slices.Contains(o.parts, partIdle) {
		if err := b.idle(ctx, &r); err != nil {
			return fmt.Errorf("idle: %w", err)
		}
	}
	b.progress.End()
	return r.write(out)
}
