// mooring version: prints the version.

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

func versionCmd(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  mooring version --json",
		Args:    cli.ArgCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if env.JSON {
				return env.PrintJSON(map[string]string{"version": cli.Version(), "go": runtime.Version()})
			}
			note := ""
			if cli.Version() == cli.Unversioned {
				note = "; built without version control data: build from a git checkout to have a version"
			}
			_, err := fmt.Fprintf(env.Out, "mooring %s (%s%s)\n", cli.Version(), runtime.Version(), note)
			return err
		},
	}
}
