// The commands that write to sessions.

package writecmd

import (
	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
)

// Commands returns the subcommands of mooring session that make sessions, write to them and end them.
func Commands(h *home.Folder) []*cobra.Command {
	return []*cobra.Command{
		sessionCreateCmd(h), sessionForkCmd(h), sessionAppendCmd(h), sessionAbortTurnsCmd(h), sessionRevertCmd(h), sessionUnrevertCmd(h), sessionCompactCmd(h),
		sessionAskCmd(h), sessionAnswerCmd(h), sessionWithdrawCmd(h), sessionWebhookCmd(h), sessionPurgeCmd(h), sessionDeleteCmd(h),
	}
}
