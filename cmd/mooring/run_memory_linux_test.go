//go:build !race

package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/acpagent"
)

// TestFloodsTakeBoundedMemory measures a runner whose agent writes without end, or lines of 16 MiB.
func TestFloodsTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	const most = 400 // MiB
	for _, prompt := range []string{"say:a flood", "long say:a"} {
		t.Run(prompt, func(t *testing.T) {
			t.Parallel()
			r := newCLI(t, "")
			g := &runRig{cliRig: r, script: acpagent.Script{Dir: t.TempDir()}, session: strings.TrimSpace(r.ok("session", "create", "--owner", r.owner()))}
			cmd, out := g.asProcess(t.Context())
			defer kill(cmd)
			id := g.ask(prompt)
			g.until("prompt", "answered", id)
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			if err != nil {
				t.Fatal(err, out.String())
			}
			peak, err := strconv.Atoi(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(status))[1])
			if err != nil || peak > most<<10 {
				t.Errorf("the runner took %d KiB at most: %v", peak, err)
			}
			t.Logf("%d MiB at most", peak>>10)
		})
	}
}
