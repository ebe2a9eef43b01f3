// mooring admin vacuum: returns the space of deleted rows to the disk.

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
)

func vacuumCmd(sh *cliEnv) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "vacuum",
		Short: "Give the disk back what a server's SQLite database does not use any more",
		Long: "Write the database in the data folder anew, without the space of what was purged, trimmed\n" +
			"or deleted. SQLite uses that again for what comes, but its file never shrinks by itself.\n" +
			"The server must be stopped first. The disk needs room for the database twice more meanwhile,\n" +
			"once in the data folder and once where temporary files go (SQLITE_TMPDIR, TMPDIR). Ctrl-C\n" +
			"leaves everything as it was.\n\n" +
			"Postgres makes such space free by itself, with autovacuum.",
		Example: "  mooring admin vacuum --data srv",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.vacuum(cmd.Context(), sh)
		},
	}
	o.addDatabaseFlags(cmd)
	return cmd
}

func (o *serveOptions) vacuum(ctx context.Context, sh *cliEnv) error {
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
	return sh.print(map[string]any{"before": before, "after": after}, "the database had %d bytes and has %d\n", before, after)
}
