//go:build crash && linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestManyStrangers has sixty-four strangers at each attack alone, with a small and the usual budget.
func TestManyStrangers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mooring")
	cmd := exec.Command("go", "build", "-o", path, "../../cmd/mooring")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, budget := range []int{16 << 20, 256 << 20} {
		b := newBesieged(t, path, budget, 16<<20)
		for _, a := range attacks {
			b.under(a.name, []attack{a}, 64, time.Second)
		}
		b.healthy()
	}
}
