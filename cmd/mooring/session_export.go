// mooring session export: prints the folded session as an opencode export.

package main

import (
	"bufio"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/opencode"
)

func sessionExportCmd(h *homeFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "export REF",
		Short: "Print the folded session as an opencode export",
		Long: "Print the folded session as an opencode export: its info, then its messages, each with its\n" +
			"parts, in the session's order: by first put, or by creation time if opencode made the\n" +
			"session (imported or shared), and the values of kinds of your own by key, in a member state,\n" +
			"which session import reads back. Every value is printed byte for byte as it was put. The export\n" +
			"is always one JSON document of many lines; --json changes only errors.\n\n" + refHelp,
		Example: "  mooring session export ses_01J… > session.json\n" +
			"  mooring session export @reader.ref",
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.withSession(cmd.Context(), args[0], h.export)
		},
	}
}

func (h *homeFlags) export(ctx context.Context, s *client.Session) error {
	info, err := s.Describe(ctx)
	if err != nil {
		return err
	}
	state, err := s.Snapshot(ctx)
	if err != nil {
		return err
	}
	name := info.Session.External
	if name == "" {
		name = s.ID()
	}
	entries := make([]opencode.Put, len(state.Entries))
	for i, e := range state.Entries {
		entries[i] = opencode.Put{Key: e.Key, Payload: e.Payload}
	}
	doc := opencode.NewExport(entries, name)
	if doc.Orphans > 0 {
		fmt.Fprintf(h.env.err, "left out %s whose message is not there\n", plural(doc.Orphans, "part"))
	}
	out := bufio.NewWriter(h.env.out)
	if _, err := doc.WriteTo(out); err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	return out.Flush()
}
