package decide_test

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", strconv.Itoa(seed.Cases(100))); err != nil { // the command line is parsed later and wins
		panic(err)
	}
	os.Exit(m.Run())
}
