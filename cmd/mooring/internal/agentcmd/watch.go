// mooring watch: notices of what happens in sessions, delivered by a command that is run or a webhook.

package agentcmd

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
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/notice"
	"github.com/mooring-rpc/mooring/internal/privatedir"
	"github.com/mooring-rpc/mooring/internal/watch"
	"github.com/mooring-rpc/mooring/internal/webhook"
)

// maxWatched bounds the sessions of a watch.
const maxWatched = 100

// watchFlags are which notices are delivered, and how.
type watchFlags struct {
	command    watch.Command
	webhook    watch.WebhookConfig
	secretFile string
	on         []string
}

// Watch returns the command mooring watch.
func Watch(env *cli.Env) *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch REF…",
		Short: "Run a command, or call a webhook, when something is asked or answered, or a turn is over",
		Long: "Watch sessions for request.open (something is asked), request.answered and turn.finished:\n" +
			"ids and kinds, no contents. Each is printed as a line (with --json, as an object), unless there is\n" +
			"--exec or --webhook. How far these have come is kept in the home folder, so the same watch, run\n" +
			"again, begins with what happened meanwhile: each is delivered at least once, one at a time, and has the\n" +
			"same id if it is delivered again. A watch that was never run begins with the requests that are open.\n\n" +
			"--exec runs a command line by the shell for each, one at a time, until it succeeds (--tries, with\n" +
			"growing pauses). It finds MOORING_EVENT, MOORING_SESSION, MOORING_REQUEST, MOORING_KIND,\n" +
			"MOORING_MESSAGE and MOORING_ID in its environment, and all of it as a line of JSON on standard input.\n" +
			"What it has started ends with it.\n\n" +
			"--webhook POSTs each to a URL, signed as in Standard Webhooks with the secret in the first line of\n" +
			"--webhook-secret, which is made if the file is not there. It is tried for three days, with pauses up\n" +
			"to an hour. No redirect is followed, and no private address is dialled, unless --allow-private.\n\n" + home.RefHelp,
		Example: "  mooring watch ses_01J…\n  mooring watch @phone.ref --on request.open --exec 'notify-send \"$MOORING_KIND in $MOORING_SESSION\"'\n" +
			"  mooring watch ses_01J… --webhook https://example.org/hooks/7 --webhook-secret hook.secret",
		Args: cli.ArgCount(1, maxWatched),
	}
	h := home.AddFlags(env, cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.command.Line, "exec", "", "the command line to run for each")
	flags.StringSliceVar(&f.on, "on", notice.Types(), "the notices that are delivered")
	cli.DurationVar(flags, &f.command.Timeout, "exec-timeout", time.Minute, "how long the command may take")
	flags.IntVar(&f.command.Tries, "tries", 10, "how often the command is run for one; then it is reported, and the next is delivered")
	flags.StringVar(&f.webhook.URL, "webhook", "", "the URL to POST each to: https://HOST/PATH")
	flags.StringVar(&f.secretFile, "webhook-secret", "", "the file with the webhook's secret")
	flags.BoolVar(&f.webhook.AllowPrivate, "allow-private", false, "let the webhook be at a private address, and take http")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.RejectZeroLimits(flags, "exec-timeout"); err != nil {
			return err
		}
		if err := cli.CheckNotices(f.on); err != nil {
			return err
		}
		switch {
		case f.command.Tries < 1:
			return fault.Usage.With("--tries is at least 1")
		case f.command.Line != "" && f.webhook.URL != "":
			return fault.Usage.With("give --exec or --webhook, and run the other as a watch of its own")
		case (f.webhook.URL == "") != (f.secretFile == ""):
			return fault.Usage.With("--webhook and --webhook-secret go together")
		case f.webhook.URL == "" && flags.Changed("allow-private"):
			return fault.Usage.With("--allow-private is for --webhook, which is not set")
		}
		for _, name := range []string{"exec-timeout", "tries"} {
			if f.command.Line == "" && flags.Changed(name) {
				return fault.Usage.With("--%s is for --exec, which is not set", name)
			}
		}
		if f.webhook.URL != "" { // before a secret is made for it
			if err := webhook.CheckURL(f.webhook.URL, f.webhook.AllowPrivate, webhook.AllowedByWatch); err != nil {
				return err
			}
		}
		for _, arg := range args {
			if err := h.Arg(cmd.Context(), arg).Err; err != nil {
				return err
			}
		}
		return h.WithClient(cmd.Context(), func(ctx context.Context, c *client.Client) error { return runWatch(ctx, h, c, args, &f) })
	}
	h.CompleteRefs(cmd)
	return cmd
}

// runWatch watches the sessions until ctx ends, or none can be watched any more.
func runWatch(ctx context.Context, h *home.Folder, c *client.Client, args []string, f *watchFlags) error {
	sessions := make([]*client.Session, len(args))
	for i, arg := range args {
		s, err := h.Session(ctx, c, arg)
		if err != nil {
			return err
		}
		if first := slices.IndexFunc(sessions[:i], func(other *client.Session) bool { return other.ID() == s.ID() }); first >= 0 {
			return fault.Usage.With("REF %d is of %s, as REF %d is: name each session once", i+1, s.ID(), first+1)
		}
		sessions[i] = s
	}
	report := func(line string) { fmt.Fprintln(h.Env.Err, cli.SanitizeLine(line)) }
	dir, deliver, err := delivererOf(ctx, h, f, report)
	if err != nil {
		return err
	}
	var delivering sync.Mutex  // one at a time
	var watched errgroup.Group // one that ends does not end the others
	for _, s := range sessions {
		watched.Go(func() error {
			cfg := watch.Config{Session: s, Types: f.on, Trouble: sayTrouble(h, s.ID()), Deliver: func(ctx context.Context, n *notice.Notice) error {
				delivering.Lock()
				defer delivering.Unlock()
				return deliver(ctx, n)
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

// delivererOf returns what delivers a notice, and the folder of positions; "" keeps none.
func delivererOf(ctx context.Context, h *home.Folder, f *watchFlags, report func(string)) (dir string, deliver func(context.Context, *notice.Notice) error, err error) {
	f.command.Out, f.command.Report, f.webhook.Report = h.Env.Out, report, report
	switch {
	case f.webhook.URL != "":
		secret, err := h.Env.WebhookSecret(ctx, f.secretFile)
		if err != nil {
			return "", nil, err
		}
		secret.Announce()
		f.webhook.Secret = secret.Text
		f.webhook.Agent = "mooring/" + cli.Version()
		hook, err := watch.NewWebhook(f.webhook)
		if err != nil {
			return "", nil, err
		}
		deliver = hook.Deliver
	case f.command.Line != "":
		deliver = f.command.Deliver
	default:
		return "", func(_ context.Context, n *notice.Notice) error { return printNotice(h, n) }, nil
	}
	home, err := h.MakeDir()
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(home, "watches")
	return dir, deliver, privatedir.Make(dir, "the folder of watches")
}

// name tells apart the watches of one session.
func (f *watchFlags) name() string {
	sum := sha256.Sum256([]byte(f.command.Line + "\x00" + f.webhook.URL + "\x00" + strings.Join(f.on, ",")))
	return "-" + hex.EncodeToString(sum[:8])
}

// sayTrouble returns a function that reports the first of the errors that are retried, until there is another.
func sayTrouble(h *home.Folder, id string) func(error) {
	said := fault.None
	return func(err error) {
		if code := fault.CodeOf(err); code != said {
			said = code
			fmt.Fprintln(h.Env.Err, cli.SanitizeLine(fmt.Sprintf("%s: %v; it is tried again", id, err)))
		}
	}
}

// printNotice prints a notice as a line.
func printNotice(h *home.Folder, n *notice.Notice) error {
	if h.Env.JSON {
		return h.Env.PrintJSON(n)
	}
	about := n.Data.Message
	if n.Data.Request != "" {
		about = n.Data.Request + "\t" + n.Data.Kind
	}
	_, err := fmt.Fprintf(h.Env.Out, "%s\t%s\t%s\n", n.Type, n.Data.Session, about)
	return err
}
