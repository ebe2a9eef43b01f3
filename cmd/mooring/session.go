// mooring session: the commands about sessions.

package main

import (
	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/readcmd"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/transfercmd"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/writecmd"
)

func sessionCmd(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Create, import, export, fork, list, show, count, read, append to, follow, ask in, verify and end sessions",
		Long:  "Create, import, export, fork, list, show, count, read, append to, follow, ask in, verify and end sessions.\n\n" + home.RefHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	h := home.AddFlags(env, cmd)
	cmd.AddCommand(transfercmd.Commands(h)...)
	cmd.AddCommand(writecmd.Commands(h)...)
	cmd.AddCommand(readcmd.Commands(h)...)
	h.CompleteRefs(cmd)
	return cmd
}
