// mooring admin restored: marks a database as restored from a copy.

package servercmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

func restoredCmd(env *cli.Env) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "restored",
		Short: "Give a database that was restored from a copy a new history id",
		Long: "Give the database a new random history id, which /readyz, the answers of /api/v1 and hello\n" +
			"name: a client that knows another one can see that acknowledged data since the copy may be\n" +
			"missing. Run it once after each restore, before a server is started on the database: on\n" +
			"SQLite a running server makes it fail, on Postgres stop all servers first.",
		Example: "  mooring admin restored --data srv\n" +
			"  mooring admin restored --data srv --database-url postgres://…",
		Args: cli.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.restored(cmd.Context(), env)
		},
	}
	o.addDatabaseFlags(cmd)
	return cmd
}

func (o *serveOptions) restored(ctx context.Context, env *cli.Env) error {
	st, _, err := o.openForAdmin(ctx)
	if err != nil {
		return err
	}
	id, err := st.BeginHistory(ctx)
	if err = errors.Join(err, st.Close()); err != nil {
		return err
	}
	return env.Print(map[string]any{"history": id}, "the database's history is %s from now on\n", id)
}
