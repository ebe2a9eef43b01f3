// mooring outbox list: the ops and their states.

package outboxcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

func outboxListCmd(h *home.Folder) *cobra.Command {
	var states []string
	var f outbox.Filter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List ops with state, attempts, next retry and last error",
		Long: "List ops in the order they were committed. With --json each line is an object, with the\n" +
			"outcome. Unproven ops were stored by an older version, without a digest that detects damage.\n\n" +
			finishedHelp,
		Example: "  mooring outbox list --state pending,in_flight\n  mooring outbox list --state failed --json",
		Args:    cli.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.RejectZeroLimits(cmd.Flags(), "limit"); err != nil {
				return err
			}
			for _, name := range states {
				s, ok := outbox.ParseState(name)
				if !ok {
					return fault.Usage.With("--state is pending, in_flight, acked, failed, skipped or void")
				}
				f.States = append(f.States, s)
			}
			if _, err := ulid.ParseStrict(f.Batch); f.Batch != "" && err != nil {
				return fault.Usage.With("--batch: %q is not a batch id: batch ids have 26 letters and digits, and append --json shows them", cli.SanitizeLine(f.Batch))
			}
			return h.WithOfflineClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				rows, err := listRows(ctx, h, c.Outbox(), f)
				if err != nil {
					return err
				}
				return printRows(h, rows)
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only these states")
	cmd.Flags().StringVar(&f.Session, "session", "", "only this session's ops")
	cmd.Flags().StringVar(&f.Batch, "batch", "", "only this batch's ops")
	cli.CompleteList(cmd, "state", stateNames()...)
	_ = cmd.RegisterFlagCompletionFunc("session", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) { // the flag exists
		return h.RefsWithPrefix(cmd.Context(), begun)
	})
	cmd.Flags().IntVar(&f.Limit, "limit", 0, "maximum number (default: all)")
	return cmd
}

// stateNames returns the states of an op.
func stateNames() (names []string) {
	for s := outbox.Pending; s <= outbox.Void; s++ {
		names = append(names, s.String())
	}
	return names
}

// listRows returns rows. A session or batch that is unknown here is an error, not an empty list.
func listRows(ctx context.Context, h *home.Folder, box *outbox.Box, f outbox.Filter) ([]outbox.Row, error) {
	unknown := func(err error) error {
		if fault.CodeOf(err) == fault.NotFound {
			return fault.NotFound.With("--session: neither the outbox nor the home folder knows %s", cli.SanitizeLine(f.Session))
		}
		return err
	}
	if f.Session = strings.TrimSpace(f.Session); f.Session != "" && !capability.IsSession(f.Session) {
		saved, err := h.SavedRef(ctx, box, f.Session, 0)
		if err != nil {
			return nil, unknown(err)
		}
		f.Session = saved.Target()
	}
	rows, err := box.List(ctx, f)
	if err != nil || len(rows) > 0 {
		return rows, err
	}
	if f.Batch != "" {
		if all, err := box.List(ctx, outbox.Filter{Batch: f.Batch}); err != nil || len(all) == 0 {
			return nil, cmp.Or(err, error(fault.NotFound.With("batch %s is not in this outbox", f.Batch)))
		}
	}
	if f.Session != "" {
		if all, err := box.List(ctx, outbox.Filter{Session: f.Session, Limit: 1}); err != nil || len(all) > 0 {
			return nil, err
		}
		_, err = h.SavedRef(ctx, box, f.Session, 0)
	}
	return nil, unknown(err)
}

// shownRow is a row as --json prints it.
type shownRow struct {
	Op        string          `json:"op"`
	Batch     string          `json:"batch"`
	Session   string          `json:"session"`
	Seq       uint64          `json:"seq,omitempty"`
	Method    string          `json:"method"`
	State     string          `json:"state"`
	Attempts  int             `json:"attempts"`
	NextRetry string          `json:"next_retry,omitempty"`
	LastError string          `json:"last_error,omitempty"`
	Dropping  bool            `json:"dropping,omitempty"`
	Retries   string          `json:"retries,omitempty"`
	Committed string          `json:"committed"`
	Outcome   string          `json:"outcome,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Message   string          `json:"message,omitempty"`
	Cursor    uint64          `json:"cursor,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Cause     string          `json:"cause,omitempty"`
	Unproven  bool            `json:"unproven,omitempty"`
}

func showRow(r *outbox.Row) shownRow {
	s := shownRow{
		Op: r.Op, Batch: r.Batch, Session: r.Session, Seq: r.Seq, Method: r.Method, State: r.State.String(), Attempts: r.Attempts,
		LastError: r.LastError, Dropping: r.Dropping, Retries: r.Retries, Committed: cli.FormatTime(r.Committed), Unproven: r.NoDigest,
	}
	if !r.NextRetry.IsZero() {
		s.NextRetry = cli.FormatTime(r.NextRetry)
	}
	if o := r.Outcome; o != nil {
		s.NextRetry, s.LastError = "", "" // of attempts that no longer count
		s.Outcome, s.Message, s.Cursor, s.Result, s.Cause = o.Status.String(), o.Message, o.Cursor, o.Result, o.Cause
		if o.Reason != fault.None {
			s.Reason = o.Reason.String()
		}
	}
	return s
}

func printRows(h *home.Folder, rows []outbox.Row) error {
	lines := [][]string{{"OP", "SESSION", "METHOD", "STATE", "ATTEMPTS", "NEXT RETRY", "LAST ERROR"}}
	for i := range rows {
		s := showRow(&rows[i])
		if h.Env.JSON {
			if err := h.Env.PrintJSON(s); err != nil {
				return err
			}
			continue
		}
		trouble := s.LastError
		if s.Reason != "" {
			trouble = s.Reason + ": " + s.Message
		}
		state := s.State
		if s.Unproven {
			state += ", unproven"
		}
		lines = append(lines, []string{
			s.Op, s.Session, s.Method, state, strconv.Itoa(s.Attempts), cli.OrDash(s.NextRetry), cli.OrDash(cli.ClipLine(trouble)),
		})
	}
	if h.Env.JSON || len(lines) == 1 {
		return nil
	}
	return cli.WriteTable(h.Env.Out, lines)
}
