// mooring admin backup and check: copies a server's SQLite database while it runs, and checks a
// copy.

package servercmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
)

func backupCmd(env *cli.Env) *cobra.Command {
	var o serveOptions
	var fast bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy a server's SQLite database to a new file, while the server runs",
		Long: "Copy the database in the data folder, as it is at one moment, to a new file of mode 0600,\n" +
			"while the server runs. The file gets its name when it is complete, on disk and checked; an\n" +
			"existing file is never replaced, and Ctrl-C leaves none. It has the hashes of refs' secrets\n" +
			"and every session: protect it like the data folder.\n\n" +
			"It is copied in pieces, with pauses, so that commits are hardly slower. Meanwhile the\n" +
			"database's write-ahead log grows by what is committed. --fast leaves out the pauses.\n\n" +
			"Copy a database in Postgres with Postgres's own tools.",
		Example: "  mooring admin backup --data srv /backups/mooring.db",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.backup(cmd.Context(), env, args[0], fast)
		},
	}
	o.addDatabaseFlags(cmd)
	cmd.Flags().BoolVar(&fast, "fast", false, "copy without pauses: the server's commits are slower meanwhile")
	return cmd
}

func (o *serveOptions) backup(ctx context.Context, env *cli.Env, file string, fast bool) error {
	err := o.findSQLite(ctx, "that is copied with its own tools (pg_dump while it runs, or a base backup with its write-ahead log for a "+
		"restore to any moment): see docs/operating.md")
	if err != nil {
		return err
	}
	var bar *cli.Progress
	made, err := sqlite.Backup(ctx, o.server.Dir, file, sqlite.BackupOptions{Fast: fast, Progress: func(done, total int64) {
		if bar == nil {
			bar = cli.NewProgress(env, "MiB copied", int(total>>20))
		}
		bar.Set(int(done>>20), int(total>>20))
	}})
	if bar != nil {
		bar.Clear()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fault.Canceled.Because(err, "stopped before the copy was complete: there is no %s", file)
	case err != nil:
		return err
	}
	return env.Print(map[string]any{"file": file, "bytes": made.Bytes, "schema_version": made.Version},
		"%s has the database of %s: %s\n", file, filepath.Clean(o.server.Dir), made)
}

func checkCmd(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a copy of a server's SQLite database",
		Long: "Check a copy that admin backup made, or a mooring.db, without changing it: SQLite's\n" +
			"integrity_check, whether this binary can start on its version, and whether event logs and\n" +
			"audits are as they were written (their hash chains, and the hashes of their payloads).\n" +
			"Faults are printed, one a line, and the exit code is then 1.",
		Example: "  mooring admin check /backups/mooring.db",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := args[0]
			if info, err := os.Stat(file); err != nil {
				return fault.Usage.With("%v", cli.CannotRead(file, err))
			} else if !info.Mode().IsRegular() {
				return fault.Usage.With("%s is not a file: give a copy that admin backup made", file)
			}
			made, found, err := sqlite.Check(cmd.Context(), file)
			switch {
			case errors.Is(err, fs.ErrPermission):
				return fault.Usage.With("%v", cli.CannotRead(file, err))
			case err != nil:
				return fmt.Errorf("%s: %w", file, err)
			}
			for _, flaw := range found.Flaws {
				err = env.Print(map[string]any{"flaw": flaw}, "%s\n", flaw)
				if err != nil {
					return err
				}
			}
			if n := len(found.Flaws) + found.More; n > 0 {
				return fault.Internal.With("%s differs from what was written, in %s: see above", file, cli.Plural(n, "place"))
			}
			return env.Print(map[string]any{"file": file, "bytes": made.Bytes, "schema_version": made.Version,
				"sessions": found.Sessions, "events": found.Events, "audit_rows": found.AuditRows},
				"%s is good: %s; %s, %s and %s are as they were written\n", file, made,
				cli.Plural(found.Sessions, "session"), cli.Plural(found.Events, "event"), cli.Plural(found.AuditRows, "audit row"))
		},
	}
}
