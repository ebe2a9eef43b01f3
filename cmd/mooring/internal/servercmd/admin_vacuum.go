// mooring admin vacuum: returns the space of deleted rows to the disk.

package servercmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
)

func vacuumCmd(env *cli.Env) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "vacuum",
		Short: "Return unused space of a server's SQLite database to the disk",
		Long: "Rewrite the database in the data folder without the space of purged, trimmed or deleted\n" +
			"data. SQLite reuses that space, but its file never shrinks by itself. The server must be\n" +
			"stopped first. Meanwhile the disk needs room for the database twice more, in the data folder\n" +
			"and in the folder of temporary files (SQLITE_TMPDIR, TMPDIR). Ctrl-C leaves everything\n" +
			"unchanged.\n\n" +
			"Postgres frees such space by itself, with autovacuum.",
		Example: "  mooring admin vacuum --data srv",
		Args:    cli.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.vacuum(cmd.Context(), env)
		},
	}
	o.addDatabaseFlags(cmd)
	return cmd
}

func (o *serveOptions) vacuum(ctx context.Context, env *cli.Env) error {
	err := o.findSQLite(ctx, "that uses the space of what is gone again by itself (autovacuum); VACUUM FULL gives it back to the disk, "+
		"for which the servers have to wait")
	if err != nil {
		return err
	}
	before, after, err := sqlite.Vacuum(ctx, o.server.Dir)
	if errors.Is(err, fault.InUse) {
		err = fault.InUse.Because(err, "a server has the data folder open: stop it first")
	}
	if err != nil {
		return err
	}
	return env.Print(map[string]any{"before": before, "after": after}, "the database had %d bytes and has %d\n", before, after)
}
