// mooring session abort-turns: ends turns left open.

package writecmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
)

func sessionAbortTurnsCmd(h *home.Folder) *cobra.Command {
	var dead bool
	cmd := &cobra.Command{
		Use:   "abort-turns REF",
		Short: "End open turns as aborted, those of others too",
		Long: "End all open turns of a session (streaming or interrupted) as aborted: turns whose writers\n" +
			"are gone. Open turns count for the limits at which a begin waits, and keep the log from\n" +
			"being trimmed. What was written to them stays; an agent that still writes to one is refused\n" +
			"(turn_ended), and continues with another message. It needs the rights to read and to revoke.\n\n" +
			"With --dead it ends only turns that were begun under refs which are dead now: revoked,\n" +
			"expired or of an earlier epoch. They no longer count for the limits, and their agents may\n" +
			"have got other refs. Unless REF is an owner's, only the refs that were made from it can be\n" +
			"seen to be dead; other turns are left.\n\n" +
			"It is sent to the server at once, before anything pending in the outbox.\n\n" + home.RefHelp,
		Example: "  mooring session abort-turns ses_01J… --dead\n  mooring session abort-turns @owner-of-session.ref --json",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error {
				return abortTurns(ctx, h, s, dead)
			})
		},
	}
	cmd.Flags().BoolVar(&dead, "dead", false, "only turns that were begun under refs which are dead now")
	return cmd
}

// AbortedTurns is the printed result.
type AbortedTurns struct {
	Session string `json:"session"`
	Dead    bool   `json:"dead"`
	Aborted int    `json:"aborted"`
	Ended   int    `json:"ended,omitempty"`   // by others, meanwhile
	Left    int    `json:"left,omitempty"`    // their refs are not known to be dead
	Refused int    `json:"refused,omitempty"` // could not be ended
}

func abortTurns(ctx context.Context, h *home.Folder, s *client.Session, dead bool) error {
	var bar *cli.Progress
	a, err := s.AbortTurns(ctx, client.AbortOptions{DeadOnly: dead, Progress: func(done, total int) {
		if bar == nil {
			bar = cli.NewProgress(h.Env, "turns aborted", total)
		}
		bar.Set(done, total)
	}})
	bar.FinishBar()
	if err != nil && a == (client.AbortedTurns{}) {
		return err // nothing was done
	}
	shown := AbortedTurns{Session: s.ID(), Dead: dead, Aborted: a.Aborted, Ended: a.AlreadyEnded, Left: a.Skipped, Refused: a.Refused}
	said := error(nil)
	if h.Env.JSON {
		said = h.Env.PrintJSON(shown)
	} else {
		_, said = fmt.Fprintln(h.Env.Out, shown.text())
	}
	if err == nil {
		err = said
	}
	return err
}

// text returns the result on one line.
func (a *AbortedTurns) text() string {
	message := []string{"aborted " + cli.Plural(a.Aborted, "turn")}
	if a.Aborted+a.Ended+a.Left+a.Refused == 0 {
		return "no turn is open"
	}
	if a.Ended > 0 {
		message = append(message, fmt.Sprintf("%d had ended meanwhile", a.Ended))
	}
	if a.Left > 0 {
		message = append(message, fmt.Sprintf("%d left, not of refs known to be dead", a.Left))
	}
	if a.Refused > 0 {
		message = append(message, fmt.Sprintf("%d refused", a.Refused))
	}
	return strings.Join(message, "; ")
}
