// mooring session verify: checks a session's log and state.

package readcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
)

func sessionVerifyCmd(h *home.Folder) *cobra.Command {
	return &cobra.Command{
		Use:   "verify REF",
		Short: "Check a session's log against its hash chain, and its state against the log",
		Long: "Read a session's whole log and check that its rows are those that were written, in order\n" +
			"(none changed, missing or moved by hand in the database). Fold it, and check that the\n" +
			"server's state is the same. Print the cursor, the hash of the last event and the state hash;\n" +
			"name faults and exit with 1. The log itself explains payloads that were purged. Keep cursor\n" +
			"and hash elsewhere to be able to detect a log that was written anew as a whole.\n\n" +
			"If the log was trimmed, or the ref shows only a part of it, that part is checked, and the\n" +
			"output says what was not.\n\n" + home.RefHelp,
		Example: "  mooring session verify ses_01J…\n  mooring session verify @owner-of-session.ref --json",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error { return verifySession(ctx, h, s) })
		},
	}
}

// shownFinding is one error found.
type shownFinding struct {
	Cursor uint64 `json:"cursor"`
	What   string `json:"what"`
}

// Verification is the output of verify.
type Verification struct {
	Session  string         `json:"session"`
	Verified bool           `json:"verified"`
	Events   int            `json:"events"`
	Purged   int            `json:"purged,omitempty"`
	From     uint64         `json:"from"`
	Cursor   uint64         `json:"cursor"`
	Head     string         `json:"head"`
	StateAt  uint64         `json:"state_cursor,omitempty"`
	State    string         `json:"state_hash,omitempty"`
	Findings []shownFinding `json:"findings,omitempty"`
	Differs  []string       `json:"differs,omitempty"`
	Open     []string       `json:"not_verified,omitempty"`
}

func verifySession(ctx context.Context, h *home.Folder, s *client.Session) error {
	var bar *cli.Progress
	v, err := s.Verify(ctx, func(cursor, end uint64) {
		if bar == nil {
			bar = cli.NewProgress(h.Env, "events", int(end))
		}
		bar.Set(int(cursor), int(end))
	})
	bar.FinishBar()
	if err != nil {
		return err
	}
	shown := Verification{Session: s.ID(), Verified: v.Err() == nil, Events: v.Events, Purged: v.Purged, From: v.From,
		Cursor: v.Cursor, Head: v.Head.String(), StateAt: v.StateCursor, Differs: v.Differences, Open: v.Unverified}
	if v.State != (client.Hash{}) {
		shown.State = v.State.String()
	}
	for _, f := range v.Findings {
		shown.Findings = append(shown.Findings, shownFinding(f))
	}
	if h.Env.JSON {
		return errors.Join(h.Env.PrintJSON(shown), v.Err())
	}
	rows := [][]string{{"session", shown.Session}, {"cursor", strconv.FormatUint(v.Cursor, 10)}, {"head", shown.Head}}
	if shown.State != "" {
		rows = append(rows, []string{"state", shown.State})
	}
	if err := cli.WriteTable(h.Env.Out, rows); err != nil {
		return err
	}
	for _, label := range v.Unverified {
		fmt.Fprintf(h.Env.Out, "not verified: %s\n", label)
	}
	if err := v.Err(); err != nil {
		return err
	}
	message := fmt.Sprintf("log of %s verified", cli.Plural(v.Events, "event"))
	if v.Purged > 0 {
		message += fmt.Sprintf(", %d of them purged", v.Purged)
	}
	if shown.State != "" {
		message += "; state hash " + shown.State
	}
	_, err = fmt.Fprintln(h.Env.Out, message)
	return err
}
