package main

import (
	"context"
	"flag"
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/gobuild"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// The programs that tests start as processes of their own, to kill them.
var programs = struct{ mooring, agent gobuild.Once }{
	mooring: gobuild.Once{Folder: "cmd/mooring"},
	agent:   gobuild.Once{Folder: "internal/acpagent/acpagent"},
}

// mooringProgram returns the path of the command itself.
func mooringProgram() string { return must(programs.mooring.Path()) }

// scriptedAgent returns the path of the agent that does as its acpagent.Script says.
func scriptedAgent() string { return must(programs.agent.Path()) }

func must(path string, err error) string {
	if err != nil {
		panic(err)
	}
	return path
}

// runContext is run with a context in place of signals.
func runContext(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	return runEnv(ctx, &cli.Env{In: in, Out: cli.ForTerminal(out), Err: errOut}, args)
}

func TestMain(m *testing.M) {
	flag.Parse()
	if wait := flag.Lookup("test.parallel"); wait.Value.String() == wait.DefValue { // most of what runs here waits for a process
		_ = wait.Value.Set("4")
	}
	exit := pgtest.Reuse()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		programs.mooring.Remove()
		programs.agent.Remove()
		exit(code)
	}))
}
