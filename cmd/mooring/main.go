// Command mooring is the one binary: the server and every client command. Each command has a file of
// this folder; this one has the root command, the exit codes, the --json flag and signals.
//
// Words:
//
//	REF          an argument: a ref's text, @FILE that holds one, or an id that the home folder knows (refarg.go)
//	home folder  the client's folder: outbox.db, owner's ref last used, seal key, import journals (home.go)
//	outbox       the durable queue of ops to send (package outbox)
//	op line      one op as JSON, the input of session append (opline.go)
//	journal      the batches that an import has committed (journal.go)
//	owner        the ref of a space under which sessions are created
//	advertise    the address that clients use, put into refs by the server
//
// # Lock order
//
// imports.lock of the home folder (home.Lock) is held while an import finds or creates its session,
// relay.lock while a relay runs. The databases lock for themselves.
//
// # Bounds
//
//	a file with a ref       4112 bytes (maxRefFile)
//	an op line              64 MiB (maxOpLine)
//	an input kept whole     1 GiB (maxInput)
//	a file of certificates  1 MiB (cli.MaxCertificateFile)
//	a limits file           64 KiB (maxLimitsFile)
//	deletes at once         128 (maxConcurrentDeletes)
//	waiting for a server    3 s (home.SendGrace), less if it is unreachable for 400 ms (home.GraceUnreachable)
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/agentcmd"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/outboxcmd"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/refcmd"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/servercmd"
	"github.com/mooring-rpc/mooring/fault"
)

// commands are the constructors of the subcommands, in the order of the help text.
var commands = []func(*cli.Env) *cobra.Command{
	servercmd.Serve,
	agentcmd.Relay,
	sessionCmd,
	agentcmd.Run,
	agentcmd.Attach,
	agentcmd.Watch,
	agentcmd.ACP,
	agentcmd.MCP,
	refcmd.Share,
	refcmd.Link,
	refcmd.Redeem,
	refcmd.Revoke,
	refcmd.Refs,
	refcmd.Rotate,
	refcmd.Key,
	refcmd.Audit,
	outboxcmd.Outbox,
	servercmd.Admin,
	versionCmd,
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process: it runs one command line and returns its exit code. Signals
// cancel the command's context.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return runEnv(ctx, &cli.Env{In: in, Out: cli.ForTerminal(out), Err: errOut, Signals: cli.CatchSignals(cancel)}, args)
}

// runContext is run with a context in place of signals.
func runContext(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	return runEnv(ctx, &cli.Env{In: in, Out: cli.ForTerminal(out), Err: errOut}, args)
}

func runEnv(ctx context.Context, env *cli.Env, args []string) int {
	root := newRoot(env)
	root.SetArgs(args)
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitOK
	}
	if !env.Parsed && !errors.Is(err, fault.Usage) { // cobra's errors about arguments
		label, like, _ := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
		if names := strings.Fields(like); len(names) > 0 {
			label += "; did you mean " + strings.Join(names, " or ") + "?"
		}
		err = fault.Usage.With("%s (see %s --help)", label, cmd.CommandPath())
	}
	if ctx.Err() != nil && fault.CodeOf(err) == fault.Internal { // an error caused by the cancellation that has no code
		err = fault.Canceled.Because(err, "stopped before it was done")
	}
	if !env.Parsed { // the flag may not have been parsed
		env.JSON = env.JSON || slices.Contains(args, "--json")
	}
	if fault.CodeOf(err) == fault.Plaintext {
		err = fault.Plaintext.Because(err, "%s", strings.Replace(cli.MessageOf(err), "say that plain text is allowed", "allow it with --allow-plaintext", 1))
	}
	env.Report(err)
	if errors.Is(err, fault.Usage) || errors.As(err, new(cli.UsageError)) {
		return cli.ExitUsage
	}
	return cli.ExitRefused
}

func newRoot(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "mooring",
		Short: "Agent sessions as objects that are reached only through a capability",
		Long: "Mooring keeps agents' sessions on a server and gives out capabilities to them. What an agent\n" +
			"appends is stored in a durable outbox first and arrives exactly once, also after offline\n" +
			"time and broken links.\n\n" +
			"All commands except serve, admin and version use a home folder with the outbox and the refs;\n" +
			"they have the flags --home DIR, --outbox-url URL, --tls-ca FILE and --allow-plaintext. In\n" +
			"--json output the field ref is a ref's id, and text is a whole ref with its secret.",
		SilenceErrors: true, // run reports errors, with their exit code
		SilenceUsage:  true,
		// A command that sets its own PersistentPreRunE must do this too.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.RejectEmptyFlags(cmd); err != nil {
				return err
			}
			env.Parsed = true
			return nil
		},
	}
	root.PersistentFlags().BoolVar(&env.JSON, "json", false, "print results and errors as JSON, one object a line")
	// Cobra's own flag prints by a template, and text/template has the linker keep every method there is.
	shown := root.Flags().BoolP("version", "v", false, "version for mooring")
	root.RunE = func(*cobra.Command, []string) error {
		if !*shown {
			return root.Help()
		}
		_, err := fmt.Fprintf(env.Out, "mooring %s\n", cli.Version())
		return err
	}
	root.SetFlagErrorFunc(cli.FlagError)
	for _, command := range commands {
		root.AddCommand(command(env))
	}
	return root
}
