// The commands that read sessions.

package readcmd

import (
	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
)

// Commands returns the subcommands of mooring session that look at sessions and change nothing.
func Commands(h *home.Folder) []*cobra.Command {
	return []*cobra.Command{
		sessionListCmd(h), sessionChildrenCmd(h), sessionShowCmd(h), sessionStatCmd(h), sessionLsCmd(h), sessionGetCmd(h), sessionSearchCmd(h),
		sessionTailCmd(h), sessionVerifyCmd(h), sessionRequestsCmd(h),
	}
}
