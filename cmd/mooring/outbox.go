// mooring outbox: what waits to be sent, and what became of it.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

func outboxCmd(sh *shared) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "See and tend what waits to be sent",
		Long:  "See and tend the outbox: the durable queue of everything that was appended here.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	h := withHome(sh, cmd)
	cmd.AddCommand(outboxStatusCmd(h), outboxListCmd(h), outboxDrainCmd(h), outboxRetryCmd(h), outboxDropCmd(h))
	return cmd
}

// look runs a body that only reads the outbox: nothing is sent meanwhile.
func (h *homeFlags) look(ctx context.Context, body func(ctx context.Context, c *client.Client) error) error {
	c, err := h.open(ctx, true)
	if err != nil {
		return err
	}
	return errors.Join(body(ctx, c), c.Close())
}

func outboxStatusCmd(h *homeFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Count ops by state and show what holds them up",
		Long:    "Count ops by state, and for each session that has unfinished ones show attempts, the next\nretry and the last error.",
		Example: "  mooring outbox status --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return h.look(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				st, err := c.Status(ctx)
				if err != nil {
					return err
				}
				return h.printStatus(&st)
			})
		},
	}
}

// shownStream is a session's queue as printed.
type shownStream struct {
	Session    string `json:"session"`
	Unfinished int    `json:"unfinished"`
	Attempts   int    `json:"attempts"`
	NextRetry  string `json:"next_retry,omitempty"`
	LastError  string `json:"last_error,omitempty"`
	Stopped    string `json:"stopped,omitempty"`
}

func (h *homeFlags) printStatus(st *outbox.Status) error {
	streams := make([]shownStream, len(st.Streams))
	for i, s := range st.Streams {
		streams[i] = shownStream{Session: s.Session, Unfinished: s.Unfinished, Attempts: s.Attempts, LastError: plainLine(s.LastError)}
		if !s.NextRetry.IsZero() {
			streams[i].NextRetry = when(s.NextRetry.UnixMilli())
		}
		if s.Stopped != fault.None {
			streams[i].Stopped = s.Stopped.String()
		}
	}
	if h.sh.json {
		return h.sh.printJSON(map[string]any{
			"outbox": st.Outbox, "incarnation": st.Incarnation, "bytes": st.Bytes, "streams": streams,
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
	if err := table(h.sh.out, rows); err != nil || len(streams) == 0 {
		return err
	}
	rows = [][]string{{"SESSION", "UNFINISHED", "ATTEMPTS", "NEXT RETRY", "LAST ERROR"}}
	for _, s := range streams {
		trouble := s.LastError
		if s.Stopped != "" {
			trouble = "stopped: " + trouble
		}
		rows = append(rows, []string{s.Session, strconv.Itoa(s.Unfinished), strconv.Itoa(s.Attempts), orDash(s.NextRetry), orDash(trouble)})
	}
	fmt.Fprintln(h.sh.out)
	return table(h.sh.out, rows)
}

func outboxListCmd(h *homeFlags) *cobra.Command {
	var states []string
	var f outbox.Filter
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List ops with state, attempts, next retry and last error",
		Long:    "List ops in the order they were committed. With --json one object a line, with the outcome.",
		Example: "  mooring outbox list --state pending,in_flight\n  mooring outbox list --state failed --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimiting(cmd.Flags(), "limit"); err != nil {
				return err
			}
			for _, name := range states {
				s, ok := outbox.ParseState(name)
				if !ok {
					return fault.Usage.With("--state: there are pending, in_flight, acked, failed, skipped and void")
				}
				f.States = append(f.States, s)
			}
			if _, err := ulid.ParseStrict(f.Batch); f.Batch != "" && err != nil {
				return fault.Usage.With("--batch: %q is no batch id: those have 26 letters and digits, and append --json shows them", plainLine(f.Batch))
			}
			return h.look(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				rows, err := c.Outbox().List(ctx, f)
				if err != nil {
					return err
				}
				return h.printRows(rows)
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only these states")
	cmd.Flags().StringVar(&f.Session, "session", "", "only this session's ops")
	cmd.Flags().StringVar(&f.Batch, "batch", "", "only this batch's ops")
	cmd.Flags().IntVar(&f.Limit, "limit", 0, "at most so many (default: all)")
	return cmd
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
}

func showRow(r *outbox.Row) shownRow {
	s := shownRow{
		Op: r.Op, Batch: r.Batch, Session: r.Session, Seq: r.Seq, Method: r.Method, State: r.State.String(), Attempts: r.Attempts,
		LastError: r.LastError, Dropping: r.Dropping, Retries: r.Retries, Committed: when(r.Committed.UnixMilli()),
	}
	if !r.NextRetry.IsZero() {
		s.NextRetry = when(r.NextRetry.UnixMilli())
	}
	if o := r.Outcome; o != nil {
		s.Outcome, s.Message, s.Cursor, s.Result, s.Cause = o.Status.String(), o.Message, o.Cursor, o.Result, o.Cause
		if o.Reason != fault.None {
			s.Reason = o.Reason.String()
		}
	}
	return s
}

func (h *homeFlags) printRows(rows []outbox.Row) error {
	lines := [][]string{{"OP", "SESSION", "METHOD", "STATE", "ATTEMPTS", "NEXT RETRY", "LAST ERROR"}}
	for i := range rows {
		s := showRow(&rows[i])
		if h.sh.json {
			if err := h.sh.printJSON(s); err != nil {
				return err
			}
			continue
		}
		trouble := s.LastError
		if s.Reason != "" {
			trouble = s.Reason + ": " + s.Message
		}
		lines = append(lines, []string{
			s.Op, s.Session, s.Method, s.State, strconv.Itoa(s.Attempts), orDash(s.NextRetry), orDash(oneLine(trouble)),
		})
	}
	if h.sh.json || len(lines) == 1 {
		return nil
	}
	return table(h.sh.out, lines)
}

func outboxDrainCmd(h *homeFlags) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Send what waits, and wait until all of it is answered",
		Long: "Send what waits, and wait until all of it is answered, showing progress. It goes on while\n" +
			"no server can be reached, until --timeout or Ctrl-C; nothing is lost by stopping it.",
		Example: "  mooring outbox drain --timeout 1m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimiting(cmd.Flags(), "timeout"); err != nil {
				return err
			}
			before, err := h.statusBefore(cmd.Context())
			if err != nil {
				return err
			}
			return h.work(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return h.drain(ctx, c, before, timeout)
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this long (default: never)")
	return cmd
}

// statusBefore is the outbox as it is before this process sends anything of it.
func (h *homeFlags) statusBefore(ctx context.Context) (outbox.Status, error) {
	c, err := h.open(ctx, true)
	if err != nil {
		return outbox.Status{}, err
	}
	st, err := c.Status(ctx)
	return st, errors.Join(err, c.Close())
}

func (h *homeFlags) drain(ctx context.Context, c *client.Client, before outbox.Status, timeout time.Duration) error {
	wait, stop := context.WithCancel(ctx)
	if timeout > 0 {
		wait, stop = context.WithTimeout(ctx, timeout)
	}
	defer stop()
	bar := newProgress(h.sh, "ops answered", before.Unfinished())
	defer bar.clear()
	go func() { // says what holds it up
		for told := ""; ; {
			select {
			case <-wait.Done():
				return
			case <-time.After(time.Second):
			}
			if err := heldUp(wait, c); err != nil && err.Error() != told && !h.sh.json {
				told = err.Error()
				fmt.Fprintln(h.sh.err, told)
			}
		}
	}()
	drained := 0
	err := c.Drain(wait, func(done, total int) {
		drained = done
		bar.set(done, total)
	})
	if err == nil {
		bar.finish()
	}
	after, statusErr := c.Status(context.WithoutCancel(ctx))
	switch {
	case err != nil && wait.Err() == nil:
		return err
	case err != nil:
		return fault.Canceled.With("%s not answered yet, and in the outbox still", counted(after.Unfinished(), "op"))
	case statusErr != nil:
		return statusErr
	}
	failed, skipped := max(after.Failed-before.Failed, 0), max(after.Skipped-before.Skipped, 0) // rows 30 days old may have gone
	if h.sh.json {
		err = h.sh.printJSON(map[string]int{"answered": max(drained, before.Unfinished()), "failed": failed, "skipped": skipped})
	} else {
		_, err = fmt.Fprintf(h.sh.out, "the outbox is empty: %s answered just now\n", counted(max(drained, before.Unfinished()), "op"))
	}
	if err == nil && failed+skipped > 0 {
		err = fmt.Errorf("%d of them did not apply: see mooring outbox list --state failed,skipped", failed+skipped)
	}
	return err
}

// checkOps sees that arguments are op ids, and takes what is around them away.
func checkOps(args []string) error {
	for i, op := range args {
		args[i] = strings.TrimSpace(op)
		if _, err := ulid.ParseStrict(args[i]); err != nil {
			return fault.Usage.With("%q is no op id: those have 26 letters and digits, and mooring outbox list shows them", plainLine(op))
		}
	}
	return nil
}

func outboxRetryCmd(h *homeFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "retry OP…",
		Short:   "Commit failed ops again, under new op ids",
		Long:    "Commit failed ops again. Each gets a new op id, which is printed; the old one keeps its\noutcome.",
		Example: "  mooring outbox retry 01J…",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOps(args); err != nil {
				return err
			}
			return h.work(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				for _, op := range args {
					t, err := c.Outbox().Retry(ctx, op)
					if err != nil {
						return err
					}
					if h.sh.json {
						err = h.sh.printJSON(map[string]any{"op": op, "batch": t.Batch, "ops": t.Ops})
					} else {
						_, err = fmt.Fprintln(h.sh.out, strings.Join(t.Ops, "\n"))
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func outboxDropCmd(h *homeFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "drop OP…",
		Short: "Give unfinished ops up",
		Long: "Give unfinished ops up. One that may have been sent is replaced by a void where the server\n" +
			"has not recorded it; where it has, its outcome stands.",
		Example: "  mooring outbox drop 01J…",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOps(args); err != nil {
				return err
			}
			return h.work(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				for _, op := range args {
					if err := c.Outbox().Drop(ctx, op); err != nil {
						return err
					}
					if h.sh.json {
						if err := h.sh.printJSON(map[string]string{"op": op, "state": "dropped"}); err != nil {
							return err
						}
					}
				}
				return nil
			})
		},
	}
}
