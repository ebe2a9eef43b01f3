// Command bench measures Mooring's whole path against what the same databases
// can do at all, in one run and as ratios:
//
//   - durable exactly-once appends a second, from the client's outbox to the
//     ack, against a bare program that writes the same rows to the same two
//     databases (bare.go), in transactions of the same and of the best size;
//   - the latency of one writer's append against one outbox commit, one server
//     commit and one echo;
//   - a reconnect that replays what was queued offline against appending the
//     same online;
//   - how many sessions are deleted in a second;
//   - the p99 of others' appends beside reverts, mass deletions and revocations
//     (beside.go);
//   - appends and reads in a session of very many keys of one's own against one
//     of a thousand (keys.go);
//   - what a subscription of a prefix costs the server against one of all;
//   - bytes of a patch of a large value against a put of the member alone;
//   - the time from a prompt's POST to the agent against an append, and the
//     server's memory of a runner at rest;
//   - a task sent by A2A against the batch of the same op.
//
// The server is the real binary in a process of its own; the writers are in this
// one, each with its own outbox, client and connection, all on loopback. What is
// compared runs in turns, and the medians of the turns' ratios are given. A line
// on standard error tells how far it is, a table goes to standard output:
//
//	make bench
//	go run ./internal/bench --quick --db sqlite
//
// Postgres is the server that MOORING_TEST_DATABASE_URL names, whose user must
// be allowed to create databases.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mooring-rpc/mooring/internal/gctune"
	"github.com/mooring-rpc/mooring/internal/measure"
)

// envURL names the Postgres to measure on.
const envURL = "MOORING_TEST_DATABASE_URL"

// options are the command line.
type options struct {
	databases []string
	writers   []int
	batches   []int
	parts     []string
	atOnce    int     // batches committed at the same time by each writer, in one line of throughput
	seconds   float64 // of one measurement
	rounds    int
	appends   int // of the latency part, in each round
	queued    int // of the replay part
	deleted   int // sessions of the deletes part
	deleting  int // of them at once
	reverted  int // keys that are reverted, in the beside part
	opened    int // sessions that a ref of a space has opened, there
	keys      int // of the large session of the keys part
	followed  int // events of the follow part
	runners   int // at rest, of the agents part
	inProcess bool
	profile   string
	postgres  string
}

// Parts of the benchmark.
const (
	partThroughput = "throughput"
	partLatency    = "latency"
	partReplay     = "replay"
	partDeletes    = "deletes"
	partBeside     = "beside"
	partKeys       = "keys"
	partFollow     = "follow"
	partPatch      = "patch"
	partAgents     = "agents"
	partTasks      = "tasks"
	partPath       = "path" // throughput without the bare program, for profiles: progress lines only
)

func main() {
	agentMain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go gctune.Run(ctx) // as the server has it: of the path's clients, and of the bare program
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string, errOut io.Writer) (options, error) {
	o := options{postgres: os.Getenv(envURL)}
	var db, writers, batches, parts string
	var quick bool
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.BoolVar(&quick, "quick", false, "a smoke test of under 20 seconds: few, short, imprecise measurements")
	f.StringVar(&db, "db", "both", "sqlite, postgres or both")
	f.StringVar(&writers, "writers", "1,8,64", "numbers of writers")
	f.StringVar(&batches, "batches", "1,32", "ops in a batch")
	f.IntVar(&o.atOnce, "at-once", 16, "commits each writer makes at a time in one more line of throughput; 1 for none")
	f.StringVar(&parts, "parts", "throughput,latency,replay,deletes,beside,keys,follow,patch,agents,tasks", "what to measure; path is throughput without the bare program, for profiles")
	f.Float64Var(&o.seconds, "seconds", 6, "about how long one measurement takes: much of a first second is memory that is touched for the first time")
	f.IntVar(&o.rounds, "rounds", 3, "how often each is repeated")
	f.IntVar(&o.appends, "appends", 300, "appends of the latency part in each round")
	f.IntVar(&o.queued, "queued", 10_000, "ops that are replayed")
	f.IntVar(&o.deleted, "deleted", 5000, "sessions that are deleted")
	f.IntVar(&o.deleting, "deleting", 256, "sessions that are deleted at once, in one of two lines")
	f.IntVar(&o.reverted, "reverted", 10_000, "keys that are reverted while others append")
	f.IntVar(&o.opened, "opened", 1000, "sessions that a ref has opened, and that one reaches, which is revoked while others append")
	f.IntVar(&o.followed, "followed", 5000, "events that are followed")
	f.IntVar(&o.runners, "runners", 1000, "runners at rest whose memory is measured")
	f.IntVar(&o.keys, "keys", 1_000_000, "own keys of the session that is compared with one of 1,000")
	f.BoolVar(&o.inProcess, "in-process", false, "run the server in this process, for profiles of both sides together")
	f.StringVar(&o.profile, "profile", "", "profile the path once more at the end of each measurement: FILE-….cpu and FILE-….mem")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	set := map[string]bool{}
	f.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if quick {
		smokeDefaults(&o, set, &writers, &batches)
	}
	switch db {
	case "both":
		o.databases = []string{"sqlite", "postgres"}
	case "sqlite", "postgres":
		o.databases = []string{db}
	default:
		return o, fmt.Errorf("--db %q is none of sqlite, postgres, both", db)
	}
	if slices.Contains(o.databases, "postgres") && o.postgres == "" {
		return o, fmt.Errorf("%s names no Postgres: run make bench, which finds or starts one, or use --db sqlite", envURL)
	}
	var err error
	if o.writers, err = numbers("writers", writers); err != nil {
		return o, err
	}
	if o.batches, err = numbers("batches", batches); err != nil {
		return o, err
	}
	if !set["parts"] && (o.inProcess || runtime.GOOS != "linux") { // what a server costs is asked of its process, in /proc
		parts = strings.TrimSuffix(parts, ",follow,patch,agents,tasks")
	}
	o.parts = strings.Split(parts, ",")
	for _, p := range o.parts {
		if !slices.Contains([]string{partThroughput, partLatency, partReplay, partDeletes, partBeside, partKeys, partFollow, partPatch, partAgents, partTasks, partPath}, p) {
			return o, fmt.Errorf("--parts %q is none of throughput, latency, replay, deletes, beside, keys, follow, patch, agents, tasks, path", p)
		}
	}
	if o.seconds <= 0 || o.rounds < 1 || o.appends < 1 || o.queued < 1 || o.atOnce < 1 || o.deleted < 1 || o.deleting < 1 || o.reverted < 1 || o.opened < 1 || o.followed < 1 || o.runners < 1 {
		return o, errors.New("--seconds, --rounds, --appends, --queued, --deleted, --deleting, --reverted, --opened, --followed, --runners and --at-once must be above 0")
	}
	if o.keys < 2*listKeys || o.keys%listKeys != 0 {
		return o, fmt.Errorf("--keys must be a multiple of %d, and above it", listKeys)
	}
	o.followed = (o.followed + followBatch - 1) / followBatch * followBatch
	return o, nil
}

// smokeDefaults sets what the command line left open to the smoke test's values.
func smokeDefaults(o *options, set map[string]bool, writers, batches *string) {
	short := func(name string, to func()) {
		if !set[name] {
			to()
		}
	}
	short("writers", func() { *writers = "8" })
	short("batches", func() { *batches = "32" })
	short("seconds", func() { o.seconds = 0.3 })
	short("rounds", func() { o.rounds = 1 })
	short("at-once", func() { o.atOnce = 1 })
	short("appends", func() { o.appends = 100 })
	short("queued", func() { o.queued = 1000 })
	short("deleted", func() { o.deleted = 500 })
	short("reverted", func() { o.reverted = 500 })
	short("opened", func() { o.opened = 50 })
	short("keys", func() { o.keys = 10_000 })
	short("followed", func() { o.followed = 500 })
	short("runners", func() { o.runners = 20 })
}

func numbers(name, list string) ([]int, error) {
	var ns []int
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1000 {
			return nil, fmt.Errorf("--%s %q is not a list of numbers from 1 to 1000", name, list)
		}
		ns = append(ns, n)
	}
	return ns, nil
}

// run is main without the process.
func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mooring-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{opts: o, dir: dir, progress: measure.NewProgress(errOut)}
	defer b.progress.End()
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	if !o.inProcess {
		b.progress.Printf("building the server")
		if b.binary, err = build(ctx, dir); err != nil {
			return err
		}
	}
	var report report
	for _, db := range o.databases {
		if err := b.measure(ctx, db, &report); err != nil {
			return fmt.Errorf("%s: %w", db, err)
		}
	}
	b.progress.End()
	return report.write(out)
}

// profiled runs f, once more and under a CPU profile, if that was asked for;
// allocations are those of the whole run so far.
func (b *bench) profiled(name string, f func() error) (err error) {
	if b.opts.profile == "" {
		return nil
	}
	cpu, err := os.Create(fmt.Sprintf("%s-%s.cpu", b.opts.profile, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cpu.Close()) }()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	err = f()
	pprof.StopCPUProfile()
	if err != nil {
		return err
	}
	mem, err := os.Create(fmt.Sprintf("%s-%s.mem", b.opts.profile, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mem.Close()) }()
	return pprof.Lookup("allocs").WriteTo(mem, 0)
}

// bench is one run.
type bench struct {
	opts     options
	dir      string
	binary   string // the server's; "" in process
	progress *measure.Progress
	pairs    map[string]*pgPair // by what they are for
}

// measure runs all parts on one database.
func (b *bench) measure(ctx context.Context, db string, r *report) error {
	for _, part := range b.opts.parts {
		var err error
		switch part {
		case partThroughput:
			err = b.throughput(ctx, db, r)
		case partLatency:
			err = b.latency(ctx, db, r)
		case partReplay:
			err = b.replay(ctx, db, r)
		case partDeletes:
			err = b.deletes(ctx, db, r)
		case partBeside:
			err = b.beside(ctx, db, r)
		case partKeys:
			err = b.keys(ctx, db, r)
		case partFollow:
			err = b.follow(ctx, db, r)
		case partPatch:
			err = b.patch(ctx, db, r)
		case partAgents:
			err = b.agents(ctx, db, r)
		case partTasks:
			err = b.tasks(ctx, db, r)
		case partPath:
			err = b.pathAlone(ctx, db)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}

// span is about how long one measurement takes.
func (b *bench) span() time.Duration { return time.Duration(b.opts.seconds * float64(time.Second)) }

// bareTarget makes fresh databases for the bare program.
func (b *bench) bareTarget(ctx context.Context, db string) (bareTarget, error) {
	if db == "postgres" {
		pair, err := b.pgPair(ctx, "bare")
		return &barePostgres{pair}, err
	}
	return newBareSQLite(b.dir)
}
