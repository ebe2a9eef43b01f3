// The commands that move sessions between a server and files.

package transfercmd

import (
	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
)

// Commands returns the subcommands of mooring session that read files of sessions and write them.
func Commands(h *home.Folder) []*cobra.Command {
	return []*cobra.Command{sessionImportCmd(h), sessionExportCmd(h)}
}
