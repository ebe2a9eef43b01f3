package capability_test

// Values that the tests share. The property tests are cheap: many cases by
// default, and no files left behind, since a failure prints its seed.

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/seed"
)

const (
	session1   = "ses_01J00000000000000000000001"
	session2   = "ses_01J00000000000000000000002"
	space1     = "spc_01J00000000000000000000003"
	secretText = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8" // bytes 0, 1, … 31
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(seed.Cases(2000)), "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil { // the command line is parsed later and wins
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func mustSecret(t testing.TB, text string) capability.Secret {
	t.Helper()
	s, err := capability.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func codeOf(err *fault.Error) fault.Code {
	if err == nil {
		return fault.None
	}
	return err.Code
}
