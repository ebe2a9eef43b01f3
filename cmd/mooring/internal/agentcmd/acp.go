// mooring acp: an agent for an editor, which runs another and records it.

package agentcmd

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/acpedit"
)

// ACP returns the command mooring acp.
func ACP(env *cli.Env) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "acp [--session REF] [--share-to FILE] -- COMMAND [ARGUMENT…]",
		Short: "Be an editor's agent: run another one, record it, and let others ask it, too",
		Long: "An editor starts this as its agent, by the Agent Client Protocol on standard input and output. It\n" +
			"runs COMMAND, the agent that does the work, as mooring run does: all that it does is recorded in a\n" +
			"session, a new one for each of the editor's; what is asked there reaches the agent, and the editor is\n" +
			"shown it; permissions are asked for in the session and in the editor, and the first answer counts.\n" +
			"The session's id, which is printed to standard error, is also the editor's: it loads the session\n" +
			"again by it. When the editor closes its side, the agents are ended, with all that they have started.\n\n" +
			"--session is for the first session that the editor makes, as is --share-to.\n\n" + home.RefHelp,
		Example: "  mooring acp -- opencode acp\n  mooring acp --share-to phone.ref --dir ~/project -- npx @zed-industries/claude-code-acp",
		Args:    cobra.ArbitraryArgs,
	}
	h := home.AddFlags(env, cmd)
	f.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.run(cmd, h, args, func(ctx context.Context, c *client.Client, dir string, file *cli.RefFile) error {
			if filepath.Base(args[0]) != args[0] && !filepath.IsAbs(args[0]) { // sessions have folders of their own
				args[0] = filepath.Join(dir, args[0])
			}
			return serveEditor(ctx, h, c, &f, file, dir, args)
		})
	}
	return cmd
}

func serveEditor(ctx context.Context, h *home.Folder, c *client.Client, f *runFlags, file *cli.RefFile, dir string, command []string) error {
	journals, err := journals(h)
	if err != nil {
		return err
	}
	opened := func(s *client.Session, before bool) acpedit.Session {
		fmt.Fprintf(h.Env.Err, "session %s\n", s.ID())
		return acpedit.Session{Session: s, Journal: filepath.Join(journals, s.ID()+".jsonl"), Before: before}
	}
	defer h.Env.Signals.OutliveReader()()
	err = acpedit.Serve(ctx, acpedit.Config{
		In: h.Env.In, Out: h.Env.Out, Run: runConfig(h, c, f, dir, command),
		New: func(ctx context.Context) (acpedit.Session, error) {
			s, err := sessionToRun(ctx, h, c, f, file)
			if err != nil {
				return acpedit.Session{}, err
			}
			before := f.session != ""
			f.session, file = "", nil // those after it are new
			return opened(s, before), nil
		},
		Open: func(ctx context.Context, id string) (acpedit.Session, error) {
			if !capability.IsSession(id) { // a ref's text and @FILE are for who types
				return acpedit.Session{}, fault.BadArgument.With("%q is no session's id", fault.Clip(id))
			}
			s, err := h.Session(ctx, c, id)
			if err != nil {
				return acpedit.Session{}, err
			}
			return opened(s, true), nil
		},
	})
	h.DrainBriefly(context.WithoutCancel(ctx), c) // the ends of the runs are the last that is known of them
	return err
}
