// Command mooring is the one binary: the server and every client command. This folder has the root command, how an error becomes
// an exit code, and the commands session and version; packages below have the commands in groups, and what they share. Each says
// its words and its bounds:
//
//	internal/cli          the environment of a command line: output, exit codes, flags, inputs, files of refs, signals
//	internal/home         the client's side: the home folder, what a REF stands for, owners, waiting for a server
//	internal/servercmd    serve and admin
//	internal/refcmd       share, link, redeem, revoke, refs, rotate, key and audit
//	internal/outboxcmd    outbox
//	internal/agentcmd     run, acp, attach, relay, watch and mcp
//	internal/readcmd      of session, what looks at sessions: list, show, get, tail, verify, requests and others
//	internal/writecmd     of session, what makes, changes and ends them: create, append, ask, delete and others
//	internal/transfercmd  of session, import and export
//
// cli imports none of the others, and home imports cli alone. Groups import these two, and not each other, except that readcmd
// prints a grant as refcmd does, and writecmd a request as readcmd does.
//
// The tests in this folder run whole command lines, against servers of their own; those of one function are beside it.
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

// runEnv runs one command line in an environment, reports its error, and returns its exit code.
func runEnv(ctx context.Context, env *cli.Env, args []string) int {
	root := newRoot(env)
	refuseUnknownTopics(root)
	root.SetArgs(args)
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitOK
	}
	if !env.Parsed && !errors.Is(err, fault.Usage) { // cobra's errors about arguments
		err = argumentError(err, cmd)
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

// argumentError returns cobra's error about the arguments of a command, as a line.
func argumentError(err error, of *cobra.Command) error {
	label, like, _ := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if names := strings.Fields(like); len(names) > 0 {
		label += "; did you mean " + strings.Join(names, " or ") + "?"
	}
	return fault.Usage.With("%s (see %s --help)", label, of.CommandPath())
}

// refuseUnknownTopics has the help command refuse a command that is not there; cobra's prints so, and succeeds.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() == "help" {
			help.Args = func(_ *cobra.Command, args []string) error {
				of, rest, err := root.Find(args)
				switch {
				case err != nil:
					return argumentError(err, root)
				case len(rest) > 0:
					return fault.Usage.With("unknown command %q for %q (see %s --help)", rest[0], of.CommandPath(), of.CommandPath())
				}
				return nil
			}
		}
	}
}

// newRoot returns the root command with all others.
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
