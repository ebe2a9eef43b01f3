package fatal

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const childVar = "MOORING_FATAL_TEST_CHILD"

func hold() {
	defer OnPanic()
	panic("while it holds the turn")
}

// TestNobodyRecovers has a child whose caller recovers from every panic.
func TestNobodyRecovers(t *testing.T) {
	if os.Getenv(childVar) != "" {
		defer func() { _ = recover() }()
		hold()
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNobodyRecovers$")
	cmd.Env = append(os.Environ(), childVar+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "while it holds the turn") || !strings.Contains(string(out), "fatal.hold") {
		t.Errorf("%v\n%s", err, out)
	}
}
