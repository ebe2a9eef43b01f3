// mooring watch: tells of what happens in sessions, by a command that is run.

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/privatedir"
	"github.com/mooring-rpc/mooring/internal/watch"
)

// maxWatched bounds the sessions of a watch.
const maxWatched = 100

// watchFlags are what is told, and how.
type watchFlags struct {
	command watch.Command
	on      []string
}

func watchCmd(sh *cliEnv) *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch REF…",
		Short: "Run a command when something is asked or answered, or a turn is over",
		Long: "Watch sessions, and tell of request.open (something is asked), request.answered and turn.finished:\n" +
			"ids and kinds, no contents. Without --exec each is printed as a line (with --json, as an object).\n\n" +
			"--exec runs a command line by the shell for each, one at a time, until it succeeds (--tries, with\n" +
			"growing pauses). It finds MOORING_EVENT, MOORING_SESSION, MOORING_REQUEST, MOORING_KIND,\n" +
			"MOORING_MESSAGE and MOORING_ID in its environment, and all of it as a line of JSON on standard input.\n" +
			"What it has started ends with it. How far it has come is kept in the home folder, so the same watch,\n" +
			"run again, begins with what happened meanwhile: each is told at least once, and has the same id if\n" +
			"it is told again. A watch that was never run begins with the requests that are open. It takes the\n" +
			"right read.\n\n" + refHelp,
		Example: "  mooring watch ses_01J…\n  mooring watch @phone.ref --on request.open --exec 'notify-send \"$MOORING_KIND in $MOORING_SESSION\"'",
		Args:    argCount(1, maxWatched),
	}
	h := withHome(sh, cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.command.Line, "exec", "", "the command line to run for each")
	flags.StringSliceVar(&f.on, "on", watch.Types(), "what is told")
	durationVar(flags, &f.command.Timeout, "exec-timeout", time.Minute, "how long the command may take")
	flags.IntVar(&f.command.Tries, "tries", 10, "how often the command is run for one; then it is reported, and the next is told")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := rejectZeroLimits(flags, "exec-timeout"); err != nil {
			return err
		}
		for _, typ := range f.on {
			if !slices.Contains(watch.Types(), typ) {
				return fault.Usage.With("--on: there is no %q, only %s", sanitizeLine(typ), strings.Join(watch.Types(), ", "))
			}
		}
		if f.command.Tries < 1 {
			return fault.Usage.With("--tries is at least 1")
		}
		for _, arg := range args {
			if err := h.refArg(cmd.Context(), arg).err; err != nil {
				return err
			}
		}
		return h.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error { return h.watch(ctx, c, args, &f) })
	}
	h.completeRefs(cmd)
	return cmd
}

// watch watches the sessions until ctx ends, or none can be watched any more.
func (h *homeFlags) watch(ctx context.Context, c *client.Client, args []string, f *watchFlags) error {
	sessions := make([]*client.Session, len(args))
	for i, arg := range args {
		s, err := h.session(ctx, c, arg)
		if err != nil {
			return err
		}
		sessions[i] = s
	}
	dir, err := h.watchDir(f)
	if err != nil {
		return err
	}
	var telling sync.Mutex // one at a time
	report := func(line string) { fmt.Fprintln(h.env.err, sanitizeLine(line)) }
	f.command.Out, f.command.Report = h.env.out, report
	tell := f.command.Tell
	if f.command.Line == "" {
		tell = func(_ context.Context, n *watch.Notice) error { return h.printNotice(n) }
	}
	var watched errgroup.Group // one that ends does not end the others
	for _, s := range sessions {
		watched.Go(func() error {
			cfg := watch.Config{Session: s, Types: f.on, Trouble: h.sayTrouble(s.ID()), Tell: func(ctx context.Context, n *watch.Notice) error {
				telling.Lock()
				defer telling.Unlock()
				return tell(ctx, n)
			}}
			if dir != "" {
				cfg.File = filepath.Join(dir, s.ID()+f.name()+".json")
			}
			err := watch.Run(ctx, cfg)
			if err != nil && ctx.Err() == nil && len(sessions) > 1 {
				report(s.ID() + " is not watched any more: " + err.Error())
			}
			return err
		})
	}
	if err := watched.Wait(); ctx.Err() == nil || fault.CodeOf(err) != fault.Canceled {
		return err
	}
	return nil
}

// name tells apart the watches of one session.
func (f *watchFlags) name() string {
	sum := sha256.Sum256([]byte(f.command.Line + "\x00" + strings.Join(f.on, ",")))
	return "-" + hex.EncodeToString(sum[:8])
}

// watchDir returns the folder of the watches' positions; "" without --exec, which keeps none.
func (h *homeFlags) watchDir(f *watchFlags) (string, error) {
	if f.command.Line == "" {
		return "", nil
	}
	home, err := h.makeHomeDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, "watches")
	return dir, privatedir.Make(dir, "the folder of watches")
}

// sayTrouble returns a function that reports the first of the errors that are retried, until there is another.
func (h *homeFlags) sayTrouble(id string) func(error) {
	said := fault.None
	return func(err error) {
		if code := fault.CodeOf(err); code != said {
			said = code
			fmt.Fprintln(h.env.err, sanitizeLine(fmt.Sprintf("%s: %v; it is tried again", id, err)))
		}
	}
}

// printNotice prints a notice as a line.
func (h *homeFlags) printNotice(n *watch.Notice) error {
	if h.env.json {
		return h.env.printJSON(n)
	}
	about := n.Data.Message
	if n.Data.Request != "" {
		about = n.Data.Request + "\t" + n.Data.Kind
	}
	_, err := fmt.Fprintf(h.env.out, "%s\t%s\t%s\n", n.Type, n.Data.Session, about)
	return err
}
