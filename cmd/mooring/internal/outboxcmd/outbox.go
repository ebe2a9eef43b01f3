// mooring outbox: pending ops, and the outcomes of finished ones.

package outboxcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

// Outbox returns the command mooring outbox, with its subcommands.
func Outbox(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "Show and manage what is pending",
		Long:  "Show and manage the outbox: the durable queue of everything that was appended in this home folder.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	h := home.AddFlags(env, cmd)
	cmd.AddCommand(outboxStatusCmd(h), outboxListCmd(h), outboxDrainCmd(h), outboxRetryCmd(h), outboxDropCmd(h), outboxReconcileCmd(h), outboxAbandonCmd(h))
	return cmd
}

// finishedHelp explains the finished states in help texts.
const finishedHelp = "Ops that are acked, failed, skipped or void are finished and block nothing: they are removed 30 days\n" +
	"after their answer. mooring outbox retry commits an op that did not apply again."

func outboxStatusCmd(h *home.Folder) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Count ops by state and show why they are pending",
		Long: "Count ops by state, and show attempts, next retry and last error of each session with\n" +
			"unfinished ops.\n\n" +
			finishedHelp,
		Example: "  mooring outbox status --json",
		Args:    cli.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return h.WithOfflineClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				st, err := c.Status(ctx)
				if err != nil {
					return err
				}
				full, err := atQuota(ctx, c.Outbox(), &st)
				if err != nil {
					return err
				}
				return printStatus(h, &st, full)
			})
		},
	}
}

// shownStream is a session's stream as printed.
type shownStream struct {
	Session    string `json:"session"`
	Unfinished int    `json:"unfinished"`
	Attempts   int    `json:"attempts"`
	NextRetry  string `json:"next_retry,omitempty"`
	LastError  string `json:"last_error,omitempty"`
	Stopped    string `json:"stopped,omitempty"`
	Blocking   string `json:"blocking,omitempty"` // the op that a quota refuses, for which all later ones wait
}

// atQuota returns, by session, the op that a quota refuses. Ops committed after it wait for it,
// though a quota would allow a remove or a purge.
func atQuota(ctx context.Context, box *outbox.Box, st *outbox.Status) (map[string]outbox.Row, error) {
	full := map[string]outbox.Row{}
	for _, s := range st.Streams {
		if s.Stopped != fault.None || !home.BlockedByQuota(s.LastError) {
			continue
		}
		rows, err := box.List(ctx, outbox.Filter{Session: s.Session, States: []outbox.State{outbox.Pending, outbox.InFlight}, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			full[s.Session] = rows[0]
		}
	}
	return full, nil
}

func printStatus(h *home.Folder, st *outbox.Status, full map[string]outbox.Row) error {
	streams := make([]shownStream, len(st.Streams))
	for i, s := range st.Streams {
		streams[i] = shownStream{Session: s.Session, Unfinished: s.Unfinished, Attempts: s.Attempts, LastError: cli.SanitizeLine(s.LastError), Blocking: full[s.Session].Op}
		if !s.NextRetry.IsZero() {
			streams[i].NextRetry = cli.FormatTime(s.NextRetry)
		}
		if s.Stopped != fault.None {
			streams[i].Stopped = s.Stopped.String()
		}
	}
	if h.Env.JSON {
		return h.Env.PrintJSON(map[string]any{
			"standing": st.BlockingPID, "outbox": st.Outbox, "incarnation": st.Incarnation, "bytes": st.Bytes, "streams": streams,
			"states": map[string]int{
				"pending": st.Pending, "in_flight": st.InFlight, "acked": st.Acked,
				"failed": st.Failed, "skipped": st.Skipped, "void": st.Void,
			},
		})
	}
	rows := [][]string{{"outbox", st.Outbox}}
	for _, s := range []struct {
		name string
		n    int
	}{
		{"pending", st.Pending}, {"in_flight", st.InFlight}, {"acked", st.Acked},
		{"failed", st.Failed}, {"skipped", st.Skipped}, {"void", st.Void},
	} {
		rows = append(rows, []string{s.name, strconv.Itoa(s.n)})
	}
	if err := cli.WriteTable(h.Env.Out, rows); err != nil {
		return err
	}
	if st.BlockingPID != 0 {
		fmt.Fprintf(h.Env.Err, "process %d has held its transaction since %s, and nobody else can write: if it is stopped (Ctrl-Z, a debugger, a paused container), continue or end it\n",
			st.BlockingPID, cli.FormatTime(st.BlockingSince))
	}
	if n := st.Failed + st.Skipped; n > 0 {
		fmt.Fprintf(h.Env.Err, "%s did not apply: mooring outbox list --state failed,skipped says why, and mooring outbox retry commits one again; they are forgotten after 30 days\n", cli.Plural(n, "op"))
	}
	if len(streams) == 0 {
		return nil
	}
	rows = [][]string{{"SESSION", "UNFINISHED", "ATTEMPTS", "NEXT RETRY", "LAST ERROR"}}
	for _, s := range streams {
		trouble := s.LastError
		if s.Stopped != "" {
			trouble = "stopped: " + trouble
		}
		rows = append(rows, []string{s.Session, strconv.Itoa(s.Unfinished), strconv.Itoa(s.Attempts), cli.OrDash(s.NextRetry), cli.OrDash(trouble)})
	}
	fmt.Fprintln(h.Env.Out)
	if err := cli.WriteTable(h.Env.Out, rows); err != nil {
		return err
	}
	for _, s := range streams {
		if op, at := full[s.Session]; at {
			fmt.Fprintf(h.Env.Err, "%s: op %s (%s) waits for room in the quota, and what was committed after it waits too, a remove or purge as well. "+
				"Purge from another home folder, or give it up first: mooring outbox drop %s\n", s.Session, op.Op, cli.SanitizeLine(op.Method), op.Op)
		}
	}
	return nil
}

func outboxDrainCmd(h *home.Folder) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Send everything pending, and wait for the answers",
		Long: "Send everything pending and wait until it is answered, showing progress. While no server can\n" +
			"be reached it keeps trying, until --timeout or Ctrl-C; stopping it loses nothing.",
		Example: "  mooring outbox drain --timeout 1m",
		Args:    cli.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.RejectZeroLimits(cmd.Flags(), "timeout"); err != nil {
				return err
			}
			before, err := statusBefore(cmd.Context(), h)
			if err != nil {
				return err
			}
			return h.WithClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return drainOutbox(ctx, h, c, before, timeout)
			})
		},
	}
	cli.DurationVar(cmd.Flags(), &timeout, "timeout", 0, "give up after this long (default: never)")
	return cmd
}

// statusBefore returns the outbox's status before this process sends any of its ops.
func statusBefore(ctx context.Context, h *home.Folder) (outbox.Status, error) {
	c, err := h.Open(ctx, true)
	if err != nil {
		return outbox.Status{}, err
	}
	st, err := c.Status(ctx)
	return st, errors.Join(err, c.Close())
}

func drainOutbox(ctx context.Context, h *home.Folder, c *client.Client, before outbox.Status, timeout time.Duration) error {
	wait, stop := context.WithCancel(ctx)
	if timeout > 0 {
		wait, stop = context.WithTimeout(ctx, timeout)
	}
	defer stop()
	bar := cli.NewProgress(h.Env, "ops answered", before.Unfinished())
	defer bar.Clear()
	defer h.ReportWaiting(wait, c)()
	drained := 0
	err := c.Drain(wait, func(done, total int) {
		drained = done
		bar.Set(done, total)
	})
	if err == nil {
		bar.Finish()
	}
	var still *outbox.StreamStoppedError
	after, statusErr := c.Status(context.WithoutCancel(ctx))
	switch {
	case errors.As(err, &still):
		return home.WithNextSteps(err, still)
	case err != nil && wait.Err() == nil:
		return err
	case err != nil:
		why := ""
		if cause := home.WaitReason(context.WithoutCancel(ctx), c); cause != nil {
			why = ": " + cause.Error()
		}
		return fault.Canceled.With("%s not answered yet, and still in the outbox%s", cli.Plural(after.Unfinished(), "op"), why)
	case statusErr != nil:
		return statusErr
	}
	failed, skipped := max(after.Failed-before.Failed, 0), max(after.Skipped-before.Skipped, 0) // rows 30 days old may have been deleted
	err = h.Env.Print(map[string]int{"answered": max(drained, before.Unfinished()), "failed": failed, "skipped": skipped},
		"the outbox is empty: %s answered just now\n", cli.Plural(max(drained, before.Unfinished()), "op"))
	if err == nil && failed+skipped > 0 {
		err = fmt.Errorf("%d of them did not apply: see mooring outbox list --state failed,skipped", failed+skipped)
	}
	return err
}
