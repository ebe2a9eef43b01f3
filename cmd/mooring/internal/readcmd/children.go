// mooring session children: the sessions that were created under another.

package readcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
)

func sessionChildrenCmd(h *home.Folder) *cobra.Command {
	return &cobra.Command{
		Use:   "children REF",
		Short: "List the sessions that were created under another",
		Long: "List the living sessions that have another as their parent, as the runs of its sub-agents, by\n" +
			"id, with the message or part that started each. A ref that shows some keys alone shows the\n" +
			"children that these have started, one with --from none. With --json each line is an object.\n\n" + home.RefHelp,
		Example: "  mooring session children ses_01J…\n  mooring session children @reader.ref --json",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error { return listChildren(ctx, h, s) })
		},
	}
}

func listChildren(ctx context.Context, h *home.Folder, s *client.Session) error {
	rows := [][]string{{"ID", "CREATED", "STARTED BY"}}
	for child, err := range s.Children(ctx) {
		switch {
		case err != nil:
			return err
		case h.Env.JSON:
			if err := h.Env.PrintJSON(struct {
				ID      string `json:"id"`
				Key     string `json:"key,omitempty"`
				Created int64  `json:"created"` // Unix ms
			}{child.ID, child.Parent.Key, cli.UnixMs(child.Created)}); err != nil {
				return err
			}
		default:
			rows = append(rows, []string{child.ID, cli.FormatTime(child.Created), cli.OrDash(cli.ClipLine(child.Parent.Key))})
		}
	}
	return h.Env.PrintTable(rows, "the session has no children")
}
