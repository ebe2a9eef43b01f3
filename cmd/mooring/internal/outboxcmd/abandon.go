// mooring outbox abandon: gives up a session's stream.

package outboxcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

func outboxAbandonCmd(h *home.Folder) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "abandon SESSION",
		Short: "Give up everything pending for a session, and begin a new stream",
		Long: "Give up everything pending for a session: its ops end as void, and ops of other sessions\n" +
			"that need one of them as skipped. Later ops are sent in a new stream. Use it for a session\n" +
			"whose stream has stopped (mooring outbox status) if nothing of it is to be sent any more;\n" +
			"mooring outbox reconcile loses nothing. Other sessions continue.\n\n" +
			"It is done at once and needs no server. Whether the server has applied ops that were sent\n" +
			"will not be known here. It asks on a terminal; otherwise it needs --yes.",
		Example: "  mooring outbox abandon ses_01J…",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes && !h.Env.CanAsk() {
				return fault.Usage.With("this cannot be undone, and there is no terminal to ask on: give --yes")
			}
			return h.WithOfflineClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return abandonStream(ctx, h, c.Outbox(), args[0], yes)
			})
		},
	}
	cli.YesFlag(cmd, &yes)
	h.CompleteStreams(cmd)
	return cmd
}

func abandonStream(ctx context.Context, h *home.Folder, box *outbox.Box, arg string, yes bool) error {
	session, err := resolveSession(ctx, box, arg)
	if err != nil {
		return err
	}
	if !yes {
		rows, err := box.List(ctx, outbox.Filter{Session: session, States: []outbox.State{outbox.Pending, outbox.InFlight}})
		if err != nil {
			return err
		}
		if !h.Env.Confirm(ctx, fmt.Sprintf("%s: give up %s that are pending, for good?", session, cli.Plural(len(rows), "op"))) {
			return fault.Canceled.With("nothing was done")
		}
	}
	ops, err := box.Abandon(ctx, session)
	if err != nil {
		return err
	}
	if h.Env.JSON {
		if ops == nil {
			ops = []string{}
		}
		return h.Env.PrintJSON(map[string]any{"session": session, "abandoned": ops})
	}
	for _, op := range ops {
		if _, err := fmt.Fprintf(h.Env.Out, "%s  abandoned\n", op); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(h.Env.Out, "%s begins a new stream; %s given up\n", session, cli.Plural(len(ops), "op"))
	return err
}

// resolveSession returns the id of a session given by its id or external id.
func resolveSession(ctx context.Context, box *outbox.Box, arg string) (string, error) {
	arg = strings.TrimSpace(arg)
	if capability.IsSession(arg) {
		return arg, nil
	}
	saved, err := box.RefFor(ctx, arg, 0)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		err = fault.NotFound.Because(err, "the home folder knows no session %s: give an id that mooring outbox status lists, or another --home", fault.Clip(arg))
	case err == nil && !capability.IsSession(saved.Target()):
		err = fault.BadArgument.With("%s is no session", cli.SanitizeLine(arg))
	}
	return saved.Target(), err
}
