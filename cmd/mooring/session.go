// mooring session: the commands about sessions, and their shared helpers.

package main

import (
	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
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
	cmd.AddCommand(
		sessionImportCmd(h), sessionExportCmd(h), sessionCreateCmd(h), sessionForkCmd(h), sessionAppendCmd(h), sessionTailCmd(h),
		sessionVerifyCmd(h), sessionAbortTurnsCmd(h), sessionRevertCmd(h), sessionUnrevertCmd(h), sessionCompactCmd(h), sessionAskCmd(h), sessionAnswerCmd(h), sessionWithdrawCmd(h), sessionRequestsCmd(h), sessionWebhookCmd(h), sessionPurgeCmd(h), sessionDeleteCmd(h),
	)
	cmd.AddCommand(sessionLookCmds(h)...)
	h.CompleteRefs(cmd)
	return cmd
}
