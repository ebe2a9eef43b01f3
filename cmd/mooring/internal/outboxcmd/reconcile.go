// mooring outbox reconcile: commits again the ops that a session has lost.

package outboxcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

func outboxReconcileCmd(h *home.Folder) *cobra.Command {
	var yes, expecting bool
	cmd := &cobra.Command{
		Use:   "reconcile [SESSION]",
		Short: "Send again what a session has lost, in a new stream",
		Long: "Compare the logs of sessions with what this outbox appended in the last 30 days, and send\n" +
			"again what they lack: after a restore of the server, or for a session whose stream has\n" +
			"stopped (mooring outbox status). Without SESSION it does so for all sessions of the outbox.\n\n" +
			"Every op concerned is shown with what will be done:\n\n" +
			"  sent_again  it was answered, but is not in the log: it is committed again, as another op,\n" +
			"              in order, in the same batches; refs that it makes are the same ones\n" +
			"  waits       it was not answered yet, and is sent after those\n" +
			"  held_back   it is not sent, for the reason shown: it expects the session as it was (a cursor,\n" +
			"              a key's last change or claim, the length of a text), which --with-expectations overrides, or needs an op that is not sent\n" +
			"  in_log      it was not answered, but is in the log\n" +
			"  lost        its row is damaged, or no longer has its arguments\n\n" +
			"Ops that were refused or changed nothing are not sent again. It asks on a terminal;\n" +
			"otherwise it needs --yes. It may be interrupted and run again. A session that the server has\n" +
			"lost is made again by the home folder that made it: begin there.",
		Example: "  mooring outbox reconcile\n  mooring outbox reconcile ses_01J… --yes",
		Args:    cli.ArgCount(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.WithClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return reconcileAll(ctx, h, c, args, yes, expecting)
			})
		},
	}
	cli.YesFlag(cmd, &yes)
	cmd.Flags().BoolVar(&expecting, "with-expectations", false, "also send ops again that expect the session at a cursor, a key's value of a cursor or its claim, or a text of a length")
	h.CompleteStreams(cmd)
	return cmd
}

func reconcileAll(ctx context.Context, h *home.Folder, c *client.Client, args []string, yes, expecting bool) error {
	var sessions []string
	var err error
	if len(args) > 0 {
		sessions = make([]string, 1)
		sessions[0], err = resolveSession(ctx, c.Outbox(), args[0])
	} else {
		sessions, err = c.Outbox().Sessions(ctx)
	}
	if err != nil {
		return err
	}
	var failed error
	n := 0
	for _, session := range sessions {
		err := reconcileOne(ctx, h, c, session, yes, expecting)
		if err == nil {
			continue
		}
		if len(sessions) == 1 || ctx.Err() != nil {
			return err
		}
		if n++; failed == nil {
			failed = fmt.Errorf("session %s: %w", session, err)
		} else {
			fmt.Fprintf(h.Env.Err, "session %s: %s\n", session, cli.SanitizeLine(err.Error()))
		}
	}
	if n > 1 {
		failed = fmt.Errorf("%d of %s are not reconciled; %w", n, cli.Plural(len(sessions), "session"), failed)
	}
	return failed
}

func reconcileOne(ctx context.Context, h *home.Folder, c *client.Client, session string, yes, expecting bool) error {
	o := outbox.ReconcileOptions{DryRun: true}
	o.WithExpectations = expecting
	r, err := c.Reconcile(ctx, session, o)
	if err != nil {
		return err
	}
	if !r.Needed() {
		return printReconciled(h, &r, false, "")
	}
	if !yes {
		if err := printReconciled(h, &r, true, ""); err != nil {
			return err
		}
		again := r.Count(outbox.SentAgain)
		switch {
		case !h.Env.CanAsk():
			return fault.Canceled.With("nothing was sent: --yes sends %s again to session %s, and then those that are pending", cli.Plural(again, "op"), session)
		case !h.Env.Confirm(ctx, fmt.Sprintf("%s: send %s again, and then those that are pending?", session, cli.Plural(again, "op"))):
			return fault.Canceled.With("nothing was done")
		}
	}
	o.DryRun = false
	if r, err = c.Reconcile(ctx, session, o); err != nil {
		return err
	}
	message, refused := awaitReconciled(ctx, h, c, &r)
	if yes {
		err = printReconciled(h, &r, false, message)
	} else if !h.Env.JSON {
		_, err = fmt.Fprintln(h.Env.Out, message)
	}
	return errors.Join(err, refused)
}

// awaitReconciled waits, while the server is reachable, for the ops committed again, and
// describes their outcomes. The error is about ops that no longer apply.
func awaitReconciled(ctx context.Context, h *home.Folder, c *client.Client, r *outbox.Reconciliation) (message string, refused error) {
	wait, stop := home.WhileReachable(ctx, c, 0)
	defer stop()
	defer h.ReportWaiting(wait, c)()
	applied, bad, waiting := 0, 0, 0
	var first error
	for _, batch := range r.Batches {
		results, err := c.Ticket(batch).Wait(wait)
		if err != nil {
			for i := range r.Ops {
				if r.Ops[i].NewBatch == batch {
					waiting++
				}
			}
		}
		for i := range results {
			if err := results[i].Err(); err == nil {
				applied++
			} else if bad++; first == nil {
				first = err
			}
		}
	}
	message = fmt.Sprintf("%s: %s sent again and in the log", r.Session, cli.Plural(applied, "op"))
	if waiting > 0 {
		message += fmt.Sprintf(", %d not answered yet", waiting)
	}
	if n := r.Count(outbox.HeldBack); n > 0 {
		message += fmt.Sprintf(", %d held back", n)
	}
	if n := r.Count(outbox.Lost); n > 0 {
		message += fmt.Sprintf(", %d lost", n)
	}
	if first != nil {
		refused = fmt.Errorf("%d of %s sent again did not apply (mooring outbox list --session %s --state failed,skipped): %w",
			bad, cli.Plural(applied+bad, "op"), r.Session, first)
	}
	return message, refused
}

// shownReconciled is an op as reconcile prints it with --json.
type shownReconciled struct {
	Session string `json:"session"`
	Op      string `json:"op,omitempty"`
	Batch   string `json:"batch"`
	Method  string `json:"method,omitempty"`
	Key     string `json:"key,omitempty"`
	Fate    string `json:"fate"`
	As      string `json:"as,omitempty"`
	Why     string `json:"why,omitempty"`
}

// printReconciled prints a reconciliation op by op, and what was done, or with plan what would be
// done.
func printReconciled(h *home.Folder, r *outbox.Reconciliation, plan bool, message string) error {
	if h.Env.JSON {
		for i := range r.Ops {
			c := &r.Ops[i]
			err := h.Env.PrintJSON(shownReconciled{r.Session, c.Op, c.Batch, c.Method, c.Key, c.Fate.String(), c.NewOp, c.Reason})
			if err != nil {
				return err
			}
		}
		counts := map[string]any{"session": r.Session, "needed": r.Needed(), "done": r.Needed() && !plan, "gone": r.Gone}
		for f := outbox.SentAgain; f <= outbox.Lost; f++ {
			counts[f.String()] = r.Count(f)
		}
		return h.Env.PrintJSON(counts)
	}
	for i := range r.Ops {
		c := &r.Ops[i]
		line := []string{c.Fate.String(), c.Op, cli.SanitizeLine(strings.TrimSpace(c.Method + " " + c.Key))}
		if c.Op == "" {
			line[1], line[2] = c.Batch, "a batch"
		}
		if c.NewOp != "" {
			line = append(line, "as "+c.NewOp)
		}
		if c.Reason != "" {
			line = append(line, cli.ClipLine(c.Reason))
		}
		if _, err := fmt.Fprintln(h.Env.Out, strings.Join(line, "  ")); err != nil {
			return err
		}
	}
	if !r.Needed() {
		message = r.Session + ": nothing is missing"
		if n := r.Count(outbox.HeldBack) + r.Count(outbox.Lost); n > 0 {
			message = fmt.Sprintf("%s: nothing is to be sent; %s held back or lost", r.Session, cli.Plural(n, "op"))
		}
	}
	if message == "" {
		return nil
	}
	_, err := fmt.Fprintln(h.Env.Out, message)
	return err
}
