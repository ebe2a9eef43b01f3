// mooring version: prints the version.

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func versionCmd(sh *cliEnv) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  mooring version --json",
		Args:    argCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if sh.json {
				return sh.printJSON(map[string]string{"version": version(), "go": runtime.Version()})
			}
			note := ""
			if version() == unversioned {
				note = "; built without version control data: build from a git checkout to have a version"
			}
			_, err := fmt.Fprintf(sh.out, "mooring %s (%s%s)\n", version(), runtime.Version(), note)
			return err
		},
	}
}
