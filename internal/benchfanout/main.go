// Command benchfanout measures how events reach many followers, against a bare server that sends the same bytes to as
// many, in one run and as ratios:
//
//   - deliveries a second, as fast as it goes: events committed one by one, and in batches;
//   - how long an event takes from its commit to a follower's handler, at a steady rate;
//   - CPU of the server and of the followers for each delivery;
//   - what a follower costs the server in memory;
//   - what followers cost others: who writes elsewhere, and the others if one reads nothing;
//   - what the AI SDK's stream of a running turn costs the server, beside the API's events of the same session;
//   - clients and servers of an older commit, sessions of very many events, and connections at rest.
//
// Server and followers are processes of their own, on loopback. The bare server publishes at the times at which Mooring
// has committed, right after it, and the medians of the rounds are given. A line on standard error tells how far it is, a
// table goes to standard output:
//
//	make bench-fanout
//	go run ./internal/benchfanout --quick --db sqlite
//
// Postgres, for two replicas, is the server that MOORING_TEST_DATABASE_URL names, whose user must be allowed to create
// databases. The older commit is built from this clone's history.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/mooring-rpc/mooring/internal/measure"
)

// envURL names the Postgres to measure on.
const envURL = "MOORING_TEST_DATABASE_URL"

// options are the command line.
type options struct {
	rounds  int
	quick   bool
	only    *regexp.Regexp
	profile string
	db      string
	old     string // commit
}

func main() {
	if os.Getenv(envChild) != "" {
		if err := runChild(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "benchfanout:", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string, errOut io.Writer) (o options, err error) {
	var only string
	f := flag.NewFlagSet("benchfanout", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.IntVar(&o.rounds, "rounds", 3, "how often each is repeated")
	f.BoolVar(&o.quick, "quick", false, "a smoke test of under a minute: a twentieth of the followers and events, one round")
	f.StringVar(&only, "only", "", "a regular expression of the lines to measure")
	f.StringVar(&o.profile, "profile", "", "profile the CPU of both processes in each line's last round: FILE-N-server and FILE-N-followers")
	f.StringVar(&o.old, "old", oldCommit, "the commit whose clients follow, and whose server is compared")
	f.StringVar(&o.db, "db", "both", "sqlite, or both for two replicas on Postgres as well")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.rounds < 1 {
		return o, errors.New("--rounds must be above 0")
	}
	if o.db != "sqlite" && o.db != "both" {
		return o, fmt.Errorf("--db %q is none of sqlite, both", o.db)
	}
	if o.db == "both" && os.Getenv(envURL) == "" {
		return o, fmt.Errorf("%s names no Postgres: run make bench-fanout, which finds or starts one, or use --db sqlite", envURL)
	}
	if o.quick {
		o.rounds = 1
	}
	if o.only, err = regexp.Compile(only); err != nil {
		return o, fmt.Errorf("--only: %w", err)
	}
	return o, nil
}

// run is main without the process.
func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mooring-fanout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{opts: o, dir: dir, progress: measure.NewProgress(errOut)}
	defer b.progress.End()
	var rows []row
	for i, c := range cases() {
		if !o.only.MatchString(c.label()) || c.replicas > 1 && o.db == "sqlite" {
			continue
		}
		if o.quick {
			c = c.small()
		}
		r, err := b.measure(ctx, i, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.label(), err)
		}
		rows = append(rows, r)
	}
	var figures []figure
	for i, s := range specials(o.old) {
		if !o.only.MatchString(s.label()) {
			continue
		}
		if o.quick {
			s = s.small()
		}
		list, err := s.measure(ctx, b, filepath.Join(dir, "special"+strconv.Itoa(i)))
		if err != nil {
			return fmt.Errorf("%s: %w", s.label(), err)
		}
		for _, f := range list {
			f.line = s.label()
			figures = append(figures, f)
		}
	}
	b.progress.End()
	var text strings.Builder
	fmt.Fprintf(&text, "%s/%s, %d processors, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	if len(rows) > 0 {
		write(&text, rows)
	}
	if len(figures) > 0 {
		writeFigures(&text, figures)
	}
	for _, why := range b.leftOut {
		fmt.Fprintf(&text, "\nNot measured: %s\n", why)
	}
	_, err = io.WriteString(out, text.String())
	return err
}
