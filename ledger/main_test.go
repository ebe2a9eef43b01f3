package ledger_test

// The property tests here are cheap: many cases by default, and no files left
// behind, since a failure prints its seed.

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(seed.Cases(1000)), "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil { // the command line is parsed later and wins
			panic(err)
		}
	}
	os.Exit(m.Run())
}
