// Tests of the crash points: a process that arms one really dies by SIGKILL,
// at the hit it was armed for and not before.

package crashpoint

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// childVar makes the test binary run as the process that is to die.
const childVar = "MOORING_CRASHPOINT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		for i := 1; i <= 3; i++ {
			fmt.Println("step", i)
			Hit(ServerCommitBefore)
		}
		fmt.Println("survived")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runChild(t *testing.T, arm string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"=1", Env+"="+arm)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

func TestDiesAtTheNthHit(t *testing.T) {
	t.Parallel()
	for arm, steps := range map[string]int{
		ServerCommitBefore:        1,
		ServerCommitBefore + ":1": 1,
		ServerCommitBefore + ":3": 3,
	} {
		t.Run(arm, func(t *testing.T) {
			t.Parallel()
			out, _, err := runChild(t, arm)
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("ended with %v, want killed", err)
			}
			if got := strings.Count(out, "step"); got != steps || strings.Contains(out, "survived") {
				t.Fatalf("printed %q, want %d steps", out, steps)
			}
		})
	}
}

func TestSurvivesWhatIsNotArmed(t *testing.T) {
	t.Parallel()
	for _, arm := range []string{"", ServerCommitAfter, ServerCommitBefore + ":4"} {
		out, _, err := runChild(t, arm)
		if err != nil || !strings.Contains(out, "survived") {
			t.Errorf("%q: ended with %v, printed %q", arm, err, out)
		}
	}
}

func TestWrongVariableIsRefused(t *testing.T) {
	t.Parallel()
	for _, arm := range []string{"server.nowhere", ServerCommitBefore + ":0", ServerCommitBefore + ":x"} {
		out, stderr, err := runChild(t, arm)
		if err == nil || out != "" || !strings.Contains(stderr, Env) {
			t.Errorf("%q: ended with %v, printed %q, said %q", arm, err, out, stderr)
		}
	}
}
