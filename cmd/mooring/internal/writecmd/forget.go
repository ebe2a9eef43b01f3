// mooring session delete and purge, and how an op that is committed alone is shown.

package writecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func sessionDeleteCmd(h *home.Folder) *cobra.Command {
	var yes bool
	var older olderFlags
	cmd := &cobra.Command{
		Use:   "delete REF...",
		Short: "End sessions and all refs to them, for good",
		Long: "End sessions for good: their state and every payload of their logs are removed, all refs to\n" +
			"them answer session_deleted from then on, and their subscribers get that code. REF must be an\n" +
			"owner's ref. It goes through the outbox, after what was appended before. It asks on a\n" +
			"terminal; otherwise it needs --yes. Several sessions are deleted concurrently, and each has\n" +
			"a line of output. A REF of - reads more of them from standard input, one a line.\n\n" + olderHelp +
			"A session that is deleted leaves its children, and those that were forked from it.\n\n" + home.RefHelp,
		Example: "  mooring session delete ses_01J…\n  mooring session delete @owner-of-session.ref --yes\n" +
			"  mooring session delete --yes - < old-sessions.txt\n" +
			"  mooring session delete --older-than 90d --space @data/owner.ref --dry-run",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("older-than") {
				return nil
			}
			return cli.ArgCount(1, -1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if old, err := older.given(cmd, args, 0, "no REF"); old || err != nil {
				if err != nil {
					return err
				}
				return removeOlder(cmd.Context(), h, older, "", yes)
			}
			f := singleOp{
				what:    "delete the session with all refs to it",
				none:    nothingRemoved,
				op:      func(b *client.Batch) { b.Delete() },
				summary: func(r Result) string { return fmt.Sprintf("deleted at cursor %d", r.Cursor) },
			}
			if len(args) == 1 && args[0] != "-" {
				return runConfirmed(cmd.Context(), h, args[0], yes, f)
			}
			return deleteMany(cmd.Context(), h, args, yes, f)
		},
	}
	cli.YesFlag(cmd, &yes)
	older.add(cmd)
	return cmd
}

func sessionPurgeCmd(h *home.Folder) *cobra.Command {
	var yes bool
	var older olderFlags
	cmd := &cobra.Command{
		Use:   "purge REF KEY",
		Short: "Remove every payload of a key from log and state, for good",
		Long: "Remove every payload that a key ever had (a leaked secret, say) from the log, the state and\n" +
			"every row of the database, for good. The log's rows stay, with the payloads' hashes, so it\n" +
			"can still be verified; subscribers get an event. REF must be an owner's ref. KEY is session,\n" +
			"message/ID, part/MESSAGE/ID, session_diff or model/ID.\n\n" +
			"It cannot remove what has left the server: what subscribers received, forks (purge them\n" +
			"too), backups, and the outbox that sent it (which keeps batches for 30 days). SQLite's files\n" +
			"are overwritten at once; Postgres keeps old versions of rows until it vacuums.\n\n" +
			"It goes through the outbox. It asks on a terminal; otherwise it needs --yes.\n\n" + olderHelp +
			"It is the same purge, of one KEY in each: the sessions stay, and since a purge is an event, those\n" +
			"that had something of KEY have changed now. To remove all that is in old sessions, delete them.\n\n" + home.RefHelp,
		Example: "  mooring session purge ses_01J… part/msg_1/prt_3\n  mooring session purge @owner-of-session.ref message/msg_1 --yes\n" +
			"  mooring session purge env/secrets --older-than 30d --space @data/owner.ref",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("older-than") {
				return nil
			}
			return cli.ArgCount(2, 2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			old, err := older.given(cmd, args, 1, "KEY and no REF")
			if err != nil {
				return err
			}
			if _, bad := session.ParseKey(args[len(args)-1]); bad != nil {
				return fault.Usage.Because(bad, "%s", bad.Message)
			}
			if old {
				return removeOlder(cmd.Context(), h, older, args[0], yes)
			}
			return runConfirmed(cmd.Context(), h, args[0], yes, singleOp{
				what: "remove every payload of " + args[1],
				none: nothingRemoved,
				key:  args[1],
				op:   func(b *client.Batch) { b.Purge(args[1]) },
				summary: func(r Result) string {
					if r.Unchanged {
						return fmt.Sprintf("there is nothing of %s in the session", args[1])
					}
					return fmt.Sprintf("purged %s from the state and %s, at cursor %d", args[1], cli.Plural(r.Events, "event"), r.Cursor)
				},
			})
		},
	}
	cli.YesFlag(cmd, &yes)
	older.add(cmd)
	return cmd
}

// singleOp is an op that is committed alone, and whose outcome is shown.
type singleOp struct {
	what    string // what is asked about, of one that cannot be undone
	none    string // what is said if it was not done
	key     string
	op      func(*client.Batch)
	summary func(Result) string
}

const nothingRemoved = "nothing was removed"

// Result is the outcome of a single op, as --json prints it.
type Result struct {
	Session   string `json:"session"`
	Key       string `json:"key,omitempty"`
	Queued    bool   `json:"queued"`
	Cursor    uint64 `json:"cursor,omitempty"`
	Events    int    `json:"events,omitempty"`
	Unchanged bool   `json:"unchanged,omitempty"`
	To        string `json:"to,omitempty"` // of a revert
	Upto      string `json:"upto,omitempty"`
	Summary   string `json:"summary,omitempty"`
	Request   string `json:"request,omitempty"` // that was asked
}

func runConfirmed(ctx context.Context, h *home.Folder, arg string, yes bool, f singleOp) error {
	if !yes && !h.Env.CanAsk() {
		return fault.Usage.With("this cannot be undone, and there is no terminal to ask on: give --yes")
	}
	return h.WithRef(ctx, arg, func(ctx context.Context, c *client.Client) error {
		s, err := h.Session(ctx, c, arg)
		if err != nil {
			return err
		}
		if !yes && !h.Env.Confirm(ctx, fmt.Sprintf("%s: %s, for good?", s.ID(), f.what)) {
			return fault.Canceled.With("nothing was done")
		}
		return commitSingle(ctx, h, c, s, f)
	})
}

// commitSingle commits the op, waits for its outcome and prints it.
func commitSingle(ctx context.Context, h *home.Folder, c *client.Client, s *client.Session, f singleOp) error {
	wait, stop := home.WhileReachable(ctx, c, 0)
	defer stop()
	defer h.ReportWaiting(wait, c)()
	shown, err := commitAndAwait(ctx, wait, c, s, f)
	if err != nil {
		return err
	}
	if shown.Queued {
		h.ReportQueued(ctx, c, "it is done when it has arrived")
	}
	if h.Env.JSON {
		return h.Env.PrintJSON(shown)
	}
	if shown.Queued {
		return nil
	}
	_, err = fmt.Fprintln(h.Env.Out, f.summary(shown))
	return err
}

// commitAndAwait commits the op and waits for its outcome.
func commitAndAwait(ctx, wait context.Context, c *client.Client, s *client.Session, f singleOp) (shown Result, err error) {
	shown = Result{Session: s.ID(), Key: f.key}
	b := s.Batch()
	f.op(b)
	ticket, err := b.Commit(ctx)
	if err != nil {
		return shown, err
	}
	results, still, err := home.AwaitResults(ctx, wait, c, ticket)
	if err == nil {
		err = results.Err()
	}
	if err != nil {
		return shown, err
	}
	if still != nil { // else it would be applied later, when nobody expects it any more
		return shown, errors.Join(fmt.Errorf("%s: %w", f.none, home.StoppedError(still)), home.DropBatch(ctx, c, ticket))
	}
	if shown.Queued = results == nil; shown.Queued {
		return shown, nil
	}
	if err := json.Unmarshal(results[0].Result, &shown); err != nil {
		return shown, fault.Incompatible.Because(err, "the server's result cannot be read")
	}
	return shown, nil
}
