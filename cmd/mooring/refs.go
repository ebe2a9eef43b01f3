// mooring refs: the commands about refs.

package main

import "github.com/spf13/cobra"

func refsCmd(sh *shared) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refs",
		Short: "Forget refs",
		Long:  "Forget refs.\n\n" + refHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	h := withHome(sh, cmd)
	cmd.AddCommand(refsForgetCmd(h))
	return cmd
}
