// mooring outbox retry and drop: decisions about single ops.

package outboxcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

// checkOps checks that arguments are op ids, and trims them.
func checkOps(args []string) error {
	for i, op := range args {
		args[i] = strings.TrimSpace(op)
		if _, err := ulid.ParseStrict(args[i]); err != nil {
			return fault.Usage.With("%q is not an op id: op ids have 26 letters and digits, and mooring outbox list shows them", cli.SanitizeLine(op))
		}
	}
	return nil
}

func outboxRetryCmd(h *home.Folder) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "retry OP…",
		Short:   "Commit failed ops again, under new op ids",
		Long:    "Commit failed ops again. Each gets a new op id, which is printed; the old one keeps its\noutcome.",
		Example: "  mooring outbox retry 01J…",
		Args:    cli.ArgCount(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOps(args); err != nil {
				return err
			}
			return h.WithClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				for _, op := range args {
					t, err := c.Outbox().Retry(ctx, op)
					if err != nil {
						return explainState(ctx, h, c.Outbox(), op, err, "retry commits ops again that did not apply")
					}
					err = h.Env.Print(map[string]any{"op": op, "batch": t.Batch, "ops": t.Ops}, "%s\n", strings.Join(t.Ops, "\n"))
					if err == nil {
						err = checkNotStopped(ctx, c.Outbox(), op, "committed again and not sent")
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	h.CompleteOps(cmd, outbox.Failed, outbox.Skipped, outbox.Void)
	return cmd
}

func outboxDropCmd(h *home.Folder) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop OP…",
		Short: "Give up unfinished ops",
		Long: "Give up unfinished ops. One that may have been sent is replaced by a void, unless the server has\n" +
			"recorded it: then its outcome stands. The other ops of an atomic batch are given up with it.\n\n" +
			finishedHelp,
		Example: "  mooring outbox drop 01J…",
		Args:    cli.ArgCount(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOps(args); err != nil {
				return err
			}
			return h.WithClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				for _, op := range args {
					if err := c.Outbox().Drop(ctx, op); err != nil {
						return explainState(ctx, h, c.Outbox(), op, err, "drop gives up ops that are not answered yet")
					}
					left, err := printDropped(ctx, h, c.Outbox(), op)
					if err == nil && left {
						err = checkNotStopped(ctx, c.Outbox(), op, "given up, and its place in the stream not settled")
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	h.CompleteOps(cmd, outbox.Pending, outbox.InFlight)
	return cmd
}

// printDropped prints the state of a dropped op; left reports that a void must be sent in its
// place.
func printDropped(ctx context.Context, h *home.Folder, box *outbox.Box, op string) (left bool, err error) {
	rows, err := box.List(ctx, outbox.Filter{Op: op})
	if err != nil {
		return false, err
	}
	state, message := "void", "dropped: it will not be sent"
	if len(rows) > 0 && !rows[0].State.Finished() {
		left, state, message = true, "dropping", "may have been sent: a void takes its place, unless the server has recorded it already"
	}
	if h.Env.JSON {
		return left, h.Env.PrintJSON(map[string]string{"op": op, "state": state})
	}
	_, err = fmt.Fprintf(h.Env.Out, "%s  %s\n", op, message)
	return left, err
}

// checkNotStopped fails if a decision about an op has no effect because its stream has stopped.
func checkNotStopped(ctx context.Context, box *outbox.Box, op, label string) error {
	rows, err := box.List(ctx, outbox.Filter{Op: op})
	if err != nil || len(rows) == 0 {
		return err
	}
	still, err := box.Stopped(ctx, rows[0].Session)
	if err != nil || still == nil {
		return err
	}
	return fmt.Errorf("%s: %w", label, home.StoppedError(still))
}

// explainState adds to an error why an op's state does not allow what was asked, and which states
// do.
func explainState(ctx context.Context, h *home.Folder, box *outbox.Box, op string, err error, label string) error {
	if fault.CodeOf(err) != fault.Usage {
		return err
	}
	state := "finished"
	if rows, e := box.List(ctx, outbox.Filter{Op: op}); e == nil && len(rows) > 0 {
		state = rows[0].State.String()
	}
	then := ""
	if state == outbox.Failed.String() || state == outbox.Skipped.String() {
		then = "; it blocks nothing, mooring outbox retry commits it again, and it is removed 30 days after its answer"
	}
	return fault.BadArgument.With("op %s is %s: %s%s", op, state, label, then)
}
