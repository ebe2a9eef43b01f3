// mooring admin upgrade: the end of an upgrade of the servers that share a database.

package servercmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

func upgradeCmd(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Finish an upgrade of the servers that share a Postgres database",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(upgradeFinishCmd(env))
	return cmd
}

func upgradeFinishCmd(env *cli.Env) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "finish",
		Short: "Say that every server of the database runs this version",
		Long: "Say that no server of an earlier version runs on the database any more. New features come into\n" +
			"use when every server knows them, which servers of earlier versions do not say. Until then ops\n" +
			"that need one are answered unsupported, and wait in their outboxes. Run it once, when all\n" +
			"servers are replaced; they notice within 15 seconds. On SQLite, where a database has one\n" +
			"server, it is not needed.",
		Example: "  mooring admin upgrade finish --data srv --database-url postgres://…",
		Args:    cli.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.finishUpgrade(cmd.Context(), env)
		},
	}
	o.addDatabaseFlags(cmd)
	return cmd
}

func (o *serveOptions) finishUpgrade(ctx context.Context, env *cli.Env) error {
	st, _, err := o.openForAdmin(ctx)
	if err != nil {
		return err
	}
	pending, err := st.FinishUpgrade(ctx)
	if err = errors.Join(err, st.Close()); err != nil {
		return err
	}
	line := "there was no upgrade to finish: all features are in use already"
	if pending {
		line = "the upgrade is finished: the servers use all features within 15 seconds"
	}
	return env.Print(map[string]any{"finished": pending}, "%s\n", line)
}
