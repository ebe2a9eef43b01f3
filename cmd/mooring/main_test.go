package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// asMooring makes the test binary run as the command itself, so that a test can
// kill it.
const asMooring = "MOORING_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asMooring) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse()))
}
