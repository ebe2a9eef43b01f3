// mooring session create: a new session without content, which may be a child of another.

package writecmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
)

// newSessionFlags are where a new session is made and where its ref goes.
type newSessionFlags struct {
	owner, file string
	options     client.CreateOptions
}

func (f *newSessionFlags) register(cmd *cobra.Command) {
	cli.OwnerFlag(cmd, &f.owner)
	flags := cmd.Flags()
	flags.StringVar(&f.options.External, "external", "", "the id another system knows the new session by")
	flags.StringVar(&f.options.Label, "label", "", "a name for people, of the new session's ref")
	flags.StringVar(&f.file, "to", "", "write the new session's ref to this new file (mode 0600), too")
}

func sessionCreateCmd(h *home.Folder) *cobra.Command {
	var f newSessionFlags
	var parent string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a session, which may be a child of another",
		Long: "Make a session in an owner's space and print its id. Its ref is stored in the home folder.\n" +
			"--parent REF makes it a child of another session of the space, as the run of a sub-agent; REF\n" +
			"must allow to append to that. --part says which message or part of the parent starts it. The\n" +
			"session is durable in the outbox, with or without a server.\n\n" + home.RefHelp,
		Example: "  mooring session create --label notes\n  mooring session create --parent ses_01J… --part part/msg_01/prt_02 --to child.ref",
		Args:    cli.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.options.Part != "" && parent == "" {
				return fault.Usage.With("--part is of --parent: name that too")
			}
			body := func(ctx context.Context, c *client.Client) error { return createSession(ctx, h, c, parent, &f) }
			if parent == "" {
				return h.WithClient(cmd.Context(), body)
			}
			return h.WithRef(cmd.Context(), parent, body)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&parent, "parent", "", "a REF of the session whose child it is")
	cmd.Flags().StringVar(&f.options.Part, "part", "", "what starts it: message/ID or part/MESSAGE/ID of the parent")
	return cmd
}

func createSession(ctx context.Context, h *home.Folder, c *client.Client, parent string, f *newSessionFlags) error {
	space, err := h.Owner(ctx, c, f.owner, capability.Create)
	if err == nil && parent != "" {
		f.options.Parent, err = h.PassedSession(ctx, c, parent)
	}
	if err != nil {
		return err
	}
	if err := sameServer(f.options.Parent, space); err != nil {
		return err
	}
	s, b := space.Create(f.options)
	shown := map[string]any{"session": s.ID(), "ref": s.Ref().ID}
	if f.options.Parent != nil {
		shown["parent"] = f.options.Parent.ID()
	}
	return commitNew(ctx, h, c, s, b, f.file, "creation", shown)
}
