package e2e

// Building the binary once, and the child mode in which this test binary is an
// agent's process.

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/gobuild"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// mooring is the path of the binary that TestMain built.
var mooring string

func TestMain(m *testing.M) {
	if plan := os.Getenv(agentVar); plan != "" {
		os.Exit(agentMain(plan))
	}
	flag.Parse()
	wait := flag.Lookup("test.parallel")
	if wait.Value.String() == wait.DefValue { // most of what runs here waits
		_ = wait.Value.Set("8")
	}
	dir, err := os.MkdirTemp("", "mooring-e2e-")
	if err == nil {
		mooring = filepath.Join(dir, "mooring")
		err = gobuild.Program(mooring, "cmd/mooring")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	exit := pgtest.Reuse()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		exit(code)
	}))
}
