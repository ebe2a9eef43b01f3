// mooring run: runs an agent for a session, by the Agent Client Protocol.

package agentcmd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/acprun"
	"github.com/mooring-rpc/mooring/internal/privatedir"
)

// runFlags are which agent is run, and for which session.
type runFlags struct {
	owner, session, shareTo, dir, label string
	permissionTimeout                   time.Duration
	startTimeout, stopTimeout           time.Duration
}

// Run returns the command mooring run.
func Run(env *cli.Env) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [--session REF] [--share-to FILE] -- COMMAND [ARGUMENT…]",
		Short: "Run an agent for a session: record what it does, hand it what is asked of it",
		Long: "Start COMMAND, an agent that speaks the Agent Client Protocol on standard input and output, and\n" +
			"record all that it does in a session: a new one, whose id is printed, or that of --session.\n" +
			"Prompts and stops that are asked in the session (mooring session ask, or a page) are handed to the\n" +
			"agent, each prompt at most once; permissions that the agent asks for are requests in the session,\n" +
			"which anybody may answer who has the right (mooring session answer). Ctrl-C ends the turn, the agent\n" +
			"and all that it has started.\n\n" +
			"Run again with --session, it goes on with the agent's own session, where the agent can. A prompt\n" +
			"that was being handed over when the run was killed is never handed over again: it ends as unknown.\n\n" + home.RefHelp,
		Example: "  mooring run --share-to phone.ref -- opencode acp\n  mooring run --session ses_01J… --permission-timeout 10m -- npx @zed-industries/claude-code-acp",
		Args:    cobra.ArbitraryArgs,
	}
	h := home.AddFlags(env, cmd)
	f.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.session != "" && f.owner != "" {
			return fault.Usage.With("--owner is for a new session: leave it out with --session")
		}
		return f.run(cmd, h, args, func(ctx context.Context, c *client.Client, dir string, file *cli.RefFile) error {
			return runAgent(ctx, h, c, &f, file, dir, args)
		})
	}
	return cmd
}

// run checks the command line and calls body with a client, the agent's folder, and the file of --share-to or nil.
func (f *runFlags) run(cmd *cobra.Command, h *home.Folder, args []string, body func(ctx context.Context, c *client.Client, dir string, file *cli.RefFile) error) error {
	dir, file, err := f.check(cmd, args)
	if err != nil {
		return err
	}
	defer file.Close()
	opened := func(ctx context.Context, c *client.Client) error { return body(ctx, c, dir, file) }
	if f.session == "" {
		return h.WithClient(cmd.Context(), opened)
	}
	return h.WithRef(cmd.Context(), f.session, opened)
}

func (f *runFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	cli.OwnerFlag(cmd, &f.owner)
	flags.StringVar(&f.session, "session", "", "a REF of the session to go on with (default: a new one)")
	flags.StringVar(&f.shareTo, "share-to", "", "write a ref to this new file (mode 0600) that reads the session, asks and answers in it")
	flags.StringVar(&f.dir, "dir", "", "the folder in which the agent works (default: this one)")
	flags.StringVar(&f.label, "label", "", "a name for people, of a new session's ref")
	cli.DurationVar(flags, &f.permissionTimeout, "permission-timeout", 0, "refuse a permission that nobody answers for so long, such as 10m (default: it stays open)")
	cli.DurationVar(flags, &f.startTimeout, "start-timeout", 2*time.Minute, "how long the agent may take for each answer until it is ready")
	cli.DurationVar(flags, &f.stopTimeout, "stop-timeout", 20*time.Second, "how long a turn may take to end when it is stopped; then the agent is ended")
}

// check checks the command line, so that what cannot work makes no session. It returns the agent's folder, and the file of
// --share-to.
func (f *runFlags) check(cmd *cobra.Command, args []string) (dir string, file *cli.RefFile, err error) {
	switch {
	case len(args) == 0:
		return "", nil, fault.Usage.With("say which agent to run, after --, such as %s -- opencode acp", cmd.CommandPath())
	case f.session != "" && f.label != "":
		return "", nil, fault.Usage.With("--label is for a new session: leave it out with --session")
	case cmd.Flags().Changed("permission-timeout") && (f.permissionTimeout < time.Second || f.permissionTimeout > cli.MaxRequestExpiry):
		return "", nil, fault.Usage.With("--permission-timeout %v: a permission is open for 1s to %s; leave the flag out for one that stays open", f.permissionTimeout, cli.MaxRequestExpiryText)
	}
	if err := cli.RejectZeroLimits(cmd.Flags(), "start-timeout", "stop-timeout"); err != nil {
		return "", nil, err
	}
	if dir, err = workDir(f.dir); err != nil {
		return "", nil, err
	}
	if err := checkProgram(dir, args[0]); err != nil {
		return "", nil, err
	}
	file, err = cli.NewRefFile(f.shareTo, false)
	return dir, file, err
}

// workDir returns the agent's folder as an absolute path.
func workDir(name string) (string, error) {
	dir, err := filepath.Abs(name)
	if err != nil {
		return "", fmt.Errorf("--dir: %w", err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fault.Usage.With("--dir: there is no folder %s", dir)
	}
	return dir, nil
}

// checkProgram refuses a command that cannot be started in the agent's folder.
func checkProgram(dir, name string) error {
	if filepath.Base(name) != name && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	if _, err := exec.LookPath(name); err != nil {
		return fault.Usage.Because(err, "the agent cannot be started: %v", err)
	}
	return nil
}

func runAgent(ctx context.Context, h *home.Folder, c *client.Client, f *runFlags, file *cli.RefFile, dir string, command []string) error {
	journals, err := journals(h)
	if err != nil {
		return err
	}
	s, err := sessionToRun(ctx, h, c, f, file)
	if err != nil {
		return err
	}
	if err := h.Env.Print(map[string]any{"session": s.ID(), "ref": s.Ref().ID}, "%s\n", s.ID()); err != nil {
		return err
	}
	cfg := runConfig(h, c, f, dir, command)
	cfg.Session, cfg.Journal = s, filepath.Join(journals, s.ID()+".jsonl")
	err = whileReporting(ctx, h, c, func(ctx context.Context) error { return acprun.Run(ctx, cfg) })
	h.DrainBriefly(context.WithoutCancel(ctx), c) // the end of the run is the last that is known of it
	return err
}

// runConfig returns what runs have in common.
func runConfig(h *home.Folder, c *client.Client, f *runFlags, dir string, command []string) acprun.Config {
	return acprun.Config{
		Client: c, Command: command, Dir: dir, Version: cli.Version(),
		PermissionTimeout: f.permissionTimeout, StartWait: f.startTimeout, StopWait: f.stopTimeout,
		Report: func(line string) { fmt.Fprintln(h.Env.Err, cli.SanitizeLine(line)) },
	}
}

// journals returns the folder of the runs' journals, and makes it if it is missing.
func journals(h *home.Folder) (string, error) {
	home, err := h.MakeDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, "runs")
	return dir, privatedir.Make(dir, "the folder of runs")
}

// sessionToRun returns the session of --session, or a new one. A ref to it is written to the file, if there is one.
func sessionToRun(ctx context.Context, h *home.Folder, c *client.Client, f *runFlags, file *cli.RefFile) (s *client.Session, err error) {
	if f.session != "" {
		s, err = h.Session(ctx, c, f.session)
	} else {
		s, err = newSessionToRun(ctx, h, c, f)
	}
	if err == nil {
		err = shareRun(ctx, h, c, s, file)
	}
	if err == nil {
		err = h.RememberOwner()
	}
	return s, err
}

func newSessionToRun(ctx context.Context, h *home.Folder, c *client.Client, f *runFlags) (*client.Session, error) {
	space, err := h.Owner(ctx, c, f.owner, capability.Create)
	if err != nil {
		return nil, err
	}
	s, b := space.Create(client.CreateOptions{Label: f.label})
	_, refused, err := h.CommitRef(ctx, c, b, s.Ref(), nil, "creation", "the agent is started meanwhile, and what it does arrives later")
	if refused != nil {
		err = refused
	}
	return s, err
}

// shareRun writes a ref of the session to a file, for who watches and steers the agent; nil is none.
func shareRun(ctx context.Context, h *home.Folder, c *client.Client, s *client.Session, file *cli.RefFile) error {
	if file == nil {
		return nil
	}
	b := s.Batch()
	ref, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Ask | capability.Answer, Label: "run"})
	_, refused, err := h.CommitRef(ctx, c, b, ref, file, "share", "the ref works as soon as it has arrived")
	if refused != nil {
		err = refused
	}
	return err
}
