// mooring admin: what takes no ref but the server's machine.

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/server"
)

func adminCmd(sh *shared) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Rescue a server's space, on the server's machine",
		Long:  "What takes no ref but the server's data folder or database.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fault.Usage.With("say what to do (see %s --help)", cmd.CommandPath())
		},
		Example: "  mooring admin rotate-owner --data srv",
	}
	cmd.AddCommand(rotateOwnerCmd(sh))
	return cmd
}

func rotateOwnerCmd(sh *shared) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "rotate-owner",
		Short: "Make a new owner's ref for a space whose own is lost or in wrong hands",
		Long: "Make a new owner's ref, write it to owner.ref in the data folder and kill the old one.\n" +
			"Sessions and refs that were made under the old one go on. With SQLite the server must\n" +
			"be stopped first; with Postgres it may run. The secret is not printed.",
		Example: "  mooring admin rotate-owner --data srv\n" +
			"  mooring admin rotate-owner --data srv --database-url postgres://…",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("database-url") {
				o.databaseURL = os.Getenv(envDatabaseURL)
			}
			return o.rotateOwner(cmd.Context(), sh)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.data, "data", "", "the server's data folder (default: "+defaultDataHint()+")")
	f.StringVar(&o.databaseURL, "database-url", "", "the Postgres it uses instead of SQLite, postgres://… (default: "+envDatabaseURL+")")
	f.StringVar(&o.advertise, "advertise", "", "where clients reach the server, if owner.ref is lost: mooring[s]://HOST[:PORT][,HOST…][/PREFIX]")
	return cmd
}

func (o *serveOptions) rotateOwner(ctx context.Context, sh *shared) (err error) {
	address := capability.Ref{Hosts: []string{"127.0.0.1:" + capability.DefaultPort}}
	if o.advertise != "" {
		if address, err = capability.ParseAddress(o.advertise); err != nil {
			return fault.Usage.Because(err, "--advertise: %v", err)
		}
	}
	if o.data == "" {
		if o.data, err = dataFolder(); err != nil {
			return err
		}
	}
	if _, err := os.Stat(o.data); err != nil {
		return fault.Usage.Because(err, "--data: %v", err)
	}
	o.unsafe = true // it is the server's to refuse such a database
	st, _, err := o.open(ctx, slog.New(slog.DiscardHandler))
	if errors.Is(err, fault.InUse) {
		return fault.InUse.Because(err, "a server has the data folder open: stop it first")
	}
	if err != nil {
		return err
	}
	done, err := server.RotateOwner(ctx, st, o.data, address)
	if err = errors.Join(err, st.Close()); err != nil {
		return err
	}
	if sh.json {
		return sh.printJSON(map[string]any{"owner_ref": done.Path, "space": done.Space, "ref": done.Ref, "replaced": done.Old})
	}
	_, err = fmt.Fprintf(sh.out, "the new owner's ref is in %s; the old one is dead, what was made under it goes on\n", done.Path)
	return err
}
