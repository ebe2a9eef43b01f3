// mooring admin: commands that take no ref, but run on the server's machine.

package servercmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
)

// Admin returns the command mooring admin, with its subcommands.
func Admin(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "admin",
		Short:   "Rescue, copy and compact a server's data, on the server's machine",
		Long:    "Commands that take the server's data folder or database instead of a ref.",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Example: "  mooring admin rotate-owner --data srv",
	}
	cmd.AddCommand(rotateOwnerCmd(env), backupCmd(env), checkCmd(env), restoredCmd(env), upgradeCmd(env), vacuumCmd(env))
	return cmd
}

func rotateOwnerCmd(env *cli.Env) *cobra.Command {
	var o serveOptions
	var session, file string
	cmd := &cobra.Command{
		Use:   "rotate-owner",
		Short: "Replace the owner's ref of a space, or of a session, that is lost or has leaked",
		Long: "Make a new owner's ref, write it to owner.ref in the data folder and end the old one.\n" +
			"Sessions and refs that were made under the old one stay valid. With SQLite the server must\n" +
			"be stopped first; with Postgres it may run. The secret is not printed.\n\n" +
			"With --session it makes the owner's ref of one session instead, named by its id or its\n" +
			"external id, and prints it. Sessions that opencode shared have none before.",
		Example: "  mooring admin rotate-owner --data srv\n" +
			"  mooring admin rotate-owner --data srv --database-url postgres://…\n" +
			"  mooring admin rotate-owner --data srv --session ses_… --to session.ref",
		Args: cli.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if session != "" {
				return o.rotateSessionOwner(cmd.Context(), env, session, file)
			}
			if file != "" {
				return fault.Usage.With("--to goes with --session: the space's owner's ref is kept in the data folder")
			}
			return o.rotateOwner(cmd.Context(), env)
		},
	}
	o.addDatabaseFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.server.Address, "advertise", "", "where clients reach the server, if owner.ref is lost: mooring[s]://HOST[:PORT][,HOST…][/PREFIX]")
	f.StringVar(&session, "session", "", "make the owner's ref of this session instead of the space's")
	f.StringVar(&file, "to", "", "write that ref to this new file (mode 0600) instead of printing it")
	return cmd
}

// addDatabaseFlags adds the flags that name a server's database.
func (o *serveOptions) addDatabaseFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.server.Dir, "data", "", "the server's data folder (default: "+defaultDataHint()+")")
	f.StringVar(&o.server.DatabaseURL, "database-url", "", "the Postgres it uses instead of SQLite, postgres://… (default: "+envDatabaseURL+", which a password belongs in)")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		if !cmd.Flags().Changed("database-url") {
			o.server.DatabaseURL = os.Getenv(envDatabaseURL)
		}
	}
}

// find locates the server's database if no flag names it, and checks it.
func (o *serveOptions) find(ctx context.Context) (err error) {
	if o.server.Dir == "" {
		if o.server.Dir, err = dataFolder(); err != nil {
			return err
		}
	}
	return o.checkServer(ctx)
}

// findSQLite is find for work on SQLite's file; instead says what to do with Postgres.
func (o *serveOptions) findSQLite(ctx context.Context, instead string) error {
	if o.server.DatabaseURL != "" {
		return fault.Incompatible.With("this is for SQLite databases, and this server's is in Postgres: %s", instead)
	}
	return o.find(ctx)
}

// checkServer checks that a server's database exists: opening would create one.
func (o *serveOptions) checkServer(ctx context.Context) error {
	if _, err := os.Stat(o.server.Dir); err != nil {
		return fault.Usage.With("--data: %v", cli.CannotRead(o.server.Dir, err))
	}
	if o.server.DatabaseURL == "" {
		if _, err := os.Stat(filepath.Join(o.server.Dir, sqlite.FileName)); err != nil {
			return fault.Usage.With("%s is not a server's data folder, it has no %s: give the right one with --data, or the server's Postgres with --database-url", o.server.Dir, sqlite.FileName)
		}
		return nil
	}
	if err := postgres.CheckURL(databaseURLFlag, o.server.DatabaseURL); err != nil {
		return err
	}
	has, err := postgres.HasServer(ctx, o.server.DatabaseURL)
	if err != nil {
		return postgres.Explain(databaseURLFlag, o.server.DatabaseURL, err)
	}
	if !has {
		return fault.Usage.With("the database of %s has no server's tables: name the one that the server uses", databaseURLFlag)
	}
	return nil
}

// openForAdmin opens the server's database, and returns the address for its refs: that of
// --advertise, or of owner.ref.
func (o *serveOptions) openForAdmin(ctx context.Context) (st *store.Store, address capability.Ref, err error) {
	address = capability.Ref{Hosts: []string{"127.0.0.1:" + capability.DefaultPort}}
	if err := o.find(ctx); err != nil {
		return nil, address, err
	}
	if text, err := os.ReadFile(filepath.Join(o.server.Dir, operator.OwnerFile)); err == nil {
		if ref, err := capability.ParseRef(strings.TrimSpace(string(text))); err == nil {
			address = ref.With("", capability.Secret{})
		}
	}
	if o.server.Address != "" {
		if address, err = parseAdvertise(o.server.Address); err != nil {
			return nil, address, err
		}
	}
	if url := o.server.DatabaseURL; url == "" {
		st, err = sqlite.Open(ctx, sqlite.Config{Dir: o.server.Dir})
	} else {
		// The server refuses an unsafe database, not this command.
		st, err = postgres.Open(ctx, postgres.Config{URL: url, AllowUnsafe: true, Log: slog.New(slog.DiscardHandler), Wait: true})
		err = postgres.Explain(databaseURLFlag, url, err)
	}
	if errors.Is(err, fault.InUse) {
		err = fault.InUse.Because(err, "a server has the data folder open: stop it first")
	}
	return st, address, err
}

func (o *serveOptions) rotateOwner(ctx context.Context, env *cli.Env) (err error) {
	st, address, err := o.openForAdmin(ctx)
	if err != nil {
		return err
	}
	done, err := operator.RotateOwner(ctx, st, o.server.Dir, address)
	if err = errors.Join(err, st.Close()); err != nil {
		return err
	}
	return env.Print(map[string]any{"owner_ref": done.Path, "space": done.Space, "ref": done.Ref, "replaced": done.Old},
		"the new owner's ref is in %s; the old one is dead, what was made under it stays valid\n", done.Path)
}

func (o *serveOptions) rotateSessionOwner(ctx context.Context, env *cli.Env, session, name string) (err error) {
	st, address, err := o.openForAdmin(ctx)
	if err != nil {
		return err
	}
	file, err := cli.NewRefFile(name, false)
	if err != nil {
		return errors.Join(err, st.Close())
	}
	var made capability.Ref
	old, err := operator.RotateSessionOwner(ctx, st, session, address, func(ref capability.Ref) error {
		made = ref
		return file.Write(ref)
	})
	if err == nil {
		err = file.Commit()
	} else {
		file.Discard()
	}
	if err = errors.Join(err, st.Close()); err != nil {
		return err
	}
	shown := map[string]any{"session": made.Target(), "ref": made.ID, "id": made.ID, "replaced": old}
	text := made.Text()
	if name == "" {
		shown["text"] = text
	} else {
		text = made.ID
		fmt.Fprintf(env.Err, "the ref is in %s\n", name)
	}
	return env.Print(shown, "%s\n", text)
}
