// mooring session delete and purge with --older-than: all old sessions of a space.

package writecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/humantime"
)

// olderHelp is in the help of both commands.
const olderHelp = "With --older-than, in all sessions of a space in which nothing has changed for that long, whoever\n" +
	"made them: --space is a ref of it with the right manage, such as the owner's. What counts is a\n" +
	"session's last event, as session list shows it (UPDATED), by the database's clock: any op is one,\n" +
	"and so are a share and a revoke; reading is none. Each session is looked at again as it is removed:\n" +
	"one that has changed meanwhile is left, and one in which a turn is running.\n" +
	"It says how many sessions there are before it asks; --dry-run lists them. It goes to the server\n" +
	"at once, some dozens of sessions a transaction, and not through the outbox: what is done stays\n" +
	"done, and after Ctrl-C, or an error, the same command goes on with the rest.\n"

// olderFlags are the flags of both commands for old sessions.
type olderFlags struct {
	age    time.Duration
	space  string
	dryRun bool
}

func (o *olderFlags) add(cmd *cobra.Command) {
	cli.DurationVar(cmd.Flags(), &o.age, "older-than", 0, "all sessions of --space in which nothing has changed for this long, such as 90d")
	cmd.Flags().StringVar(&o.space, "space", "", "with --older-than: a ref of the space, with the right manage: its text, @FILE or an id")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "with --older-than: list the sessions, and change nothing")
}

// given reports whether the command is about old sessions, which takes args arguments.
func (o *olderFlags) given(cmd *cobra.Command, args []string, want int, what string) (bool, error) {
	named := cmd.Flags().Changed("older-than")
	switch {
	case !named && (o.space != "" || o.dryRun):
		return false, fault.Usage.With("--space and --dry-run go with --older-than")
	case !named:
		return false, nil
	case o.age < time.Second:
		return false, fault.Usage.With("--older-than is how long nothing has changed in a session: a second or more, such as 90d")
	case o.space == "":
		return false, fault.Usage.With("--older-than takes --space, a ref of the space whose old sessions are meant")
	case len(args) != want:
		return false, fault.Usage.With("with --older-than the command takes %s, since the age says which sessions", what)
	}
	return true, nil
}

// RemovedOlder is the printed result.
type RemovedOlder struct {
	Before    int64 `json:"before"` // Unix ms
	Deleted   int   `json:"deleted,omitempty"`
	Purged    int   `json:"purged,omitempty"`
	Unchanged int   `json:"unchanged,omitempty"` // had nothing of the key
	Left      int   `json:"left,omitempty"`      // have changed meanwhile, or a turn is running
	Failed    int   `json:"failed,omitempty"`
}

// OldSession is a session as --dry-run prints it.
type OldSession struct {
	Session string `json:"session"`
	Updated int64  `json:"updated"` // Unix ms
	Events  uint64 `json:"events"`
	Bytes   uint64 `json:"bytes"`
	Left    string `json:"left,omitempty"` // why it would be left: a code
}

// removeOlder deletes the old sessions of a space or, if key is not "", purges it from each.
func removeOlder(ctx context.Context, h *home.Folder, f olderFlags, key string, yes bool) error {
	if !yes && !f.dryRun && !h.Env.CanAsk() {
		return fault.Usage.With("this cannot be undone, and there is no terminal to ask on: give --yes, or --dry-run to see what it would do")
	}
	return h.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		sp, err := h.Space(ctx, c, f.space, "--space", capability.Manage)
		if err != nil {
			return err
		}
		o := client.OlderOptions{Age: f.age}
		found, err := listOlder(ctx, h, sp, &o, f.dryRun)
		if err != nil {
			return err
		}
		if f.dryRun || found.sessions == 0 {
			return reportOlder(ctx, h, found, f, key)
		}
		do := "delete " + cli.Plural(found.sessions, "session") + found.extent() + ", with all refs to them,"
		if key != "" {
			do = "remove every payload of " + key + " from " + cli.Plural(found.sessions, "session")
		}
		if !yes && !h.Env.Confirm(ctx, fmt.Sprintf("%s: %s in which nothing has changed since %s (%s), for good?", sp.ID(), do, cli.FormatTime(o.Before), humantime.Duration(f.age))) {
			return fault.Canceled.With("nothing was done")
		}
		o.Remove, o.Key = client.DeleteOlder, key
		if key != "" {
			o.Remove = client.PurgeOlder
		}
		return removeListed(ctx, h, sp, o, found.sessions)
	})
}

// foundOlder is how much --older-than finds.
type foundOlder struct {
	sessions, running int
	events, bytes     uint64
}

func (f *foundOlder) extent() string {
	return fmt.Sprintf(" (%s, %d KiB)", cli.Plural(int(f.events), "event"), (f.bytes+1023)/1024)
}

// listOlder counts the old sessions, prints them if print is set, and sets o.Before.
func listOlder(ctx context.Context, h *home.Folder, sp *client.Space, o *client.OlderOptions, print bool) (found foundOlder, err error) {
	rows := [][]string{{"ID", "UPDATED", "EVENTS", "BYTES"}}
	for page, err := range sp.RemoveOlder(ctx, *o) {
		if err != nil {
			return found, err
		}
		o.Before = page.Before
		for _, s := range page.Sessions {
			if s.Err != nil {
				found.running++
			} else {
				found.sessions, found.events, found.bytes = found.sessions+1, found.events+s.Events, found.bytes+s.Bytes
			}
			switch {
			case !print:
			case h.Env.JSON:
				shown := OldSession{Session: s.ID, Updated: cli.UnixMs(s.Updated), Events: s.Events, Bytes: s.Bytes}
				if s.Err != nil {
					shown.Left = fault.CodeOf(s.Err).String()
				}
				if err := h.Env.PrintJSON(shown); err != nil {
					return found, err
				}
			default:
				rows = append(rows, []string{s.ID, cli.FormatTime(s.Updated), strconv.FormatUint(s.Events, 10), strconv.FormatUint(s.Bytes, 10)})
			}
		}
	}
	if print && len(rows) > 1 {
		err = cli.WriteTable(h.Env.Out, rows)
	}
	return found, err
}

// reportOlder ends a dry run, or a run that has nothing to do.
func reportOlder(_ context.Context, h *home.Folder, found foundOlder, f olderFlags, key string) error {
	line := "there is no session in which nothing has changed for " + humantime.Duration(f.age)
	if found.sessions > 0 {
		line = fmt.Sprintf("%s would be deleted%s", cli.Plural(found.sessions, "session"), found.extent())
		if key != "" {
			line = fmt.Sprintf("%s would be purged from those of %s that have it", key, cli.Plural(found.sessions, "session"))
		}
	}
	if found.running > 0 {
		line += fmt.Sprintf("; %d left, since a turn is running in them", found.running)
	}
	fmt.Fprintln(h.Env.Err, line)
	if h.Env.JSON && !f.dryRun {
		return h.Env.PrintJSON(RemovedOlder{})
	}
	return nil
}

// removalGrace is how long the request under way may take once the command is to stop: what it does is
// counted then.
const removalGrace = 5 * time.Second

// removeListed does what o says to the old sessions, of which total were counted, and prints the sum.
func removeListed(ctx context.Context, h *home.Folder, sp *client.Space, o client.OlderOptions, total int) error {
	calls, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(removalGrace, giveUp) })()
	label := "sessions deleted"
	if o.Remove == client.PurgeOlder {
		label = "sessions purged"
	}
	bar := cli.NewProgress(h.Env, label, total)
	defer bar.Clear()
	sum := RemovedOlder{}
	var stopped, first error
	for page, err := range sp.RemoveOlder(calls, o) {
		sum.Before = max(sum.Before, cli.UnixMs(page.Before))
		if o.Remove == client.DeleteOlder {
			sum.Deleted += page.Done
		} else {
			sum.Purged += page.Done
		}
		sum.Unchanged += page.Unchanged
		for _, s := range page.Sessions {
			if code := fault.CodeOf(s.Err); code == fault.Conflict || code == fault.TurnOpen {
				sum.Left++
				continue
			}
			sum.Failed++
			first = cmp.Or(first, s.Err)
			fmt.Fprintf(h.Env.Err, "%s: %s\n", s.ID, cli.SanitizeLine(s.Err.Error()))
		}
		bar.Set(min(sum.Deleted+sum.Purged+sum.Unchanged+sum.Left+sum.Failed, total), total)
		if stopped = err; err == nil && ctx.Err() != nil && page.Next != "" {
			stopped = fault.Canceled.With("stopped")
		}
		if stopped != nil {
			break
		}
	}
	bar.FinishBar()
	err := printRemoved(h, sum, o)
	switch {
	case stopped != nil:
		return fault.CodeOf(stopped).Because(stopped, "%s; the same command goes on with the rest", cli.MessageOf(stopped))
	case sum.Failed > 0:
		return errors.Join(err, fmt.Errorf("%s failed; the first: %w", cli.Plural(sum.Failed, "session"), first))
	}
	return err
}

func printRemoved(h *home.Folder, sum RemovedOlder, o client.OlderOptions) error {
	if h.Env.JSON {
		return h.Env.PrintJSON(sum)
	}
	line := "deleted " + cli.Plural(sum.Deleted, "session")
	if o.Remove == client.PurgeOlder {
		line = fmt.Sprintf("purged %s from %s", o.Key, cli.Plural(sum.Purged, "session"))
	}
	parts := []string{line}
	for _, part := range []struct {
		n   int
		say string
	}{{sum.Unchanged, "have nothing of it"}, {sum.Left, "left: changed meanwhile, or a turn is running"}, {sum.Failed, "failed"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.say))
		}
	}
	_, err := fmt.Fprintln(h.Env.Out, strings.Join(parts, "; "))
	return err
}
