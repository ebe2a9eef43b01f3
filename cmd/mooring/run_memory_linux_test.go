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

// TestFloodsTakeBoundedMemory measures a runner whose agent writes without end, which is ended for it, or lines of 16 MiB.
func TestFloodsTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	const most = 400 // MiB
	for prompt, want := range map[string]struct{ answer, turn string }{"say:a flood": {"wrote too much", `"Interrupted"`}, "long say:a": {"end_turn", `"finish":"stop"`}} {
		t.Run(prompt, func(t *testing.T) {
			t.Parallel()
			r := newCLI(t, "")
			g := &runRig{cliRig: r, script: acpagent.Script{Dir: t.TempDir()}, session: strings.TrimSpace(r.ok("session", "create", "--owner", r.owner()))}
			cmd, out := g.asProcess(t.Context())
			g.err = out
			defer kill(cmd)
			id := g.ask(prompt)
			if got := g.until("prompt", "answered", id); !strings.Contains(fmt.Sprint(got["answer"]), want.answer) {
				t.Errorf("it ended as %v", got)
			}
			if m := g.value("message/turn_" + id); !strings.Contains(m, want.turn) || !strings.Contains(m, `"completed":`) {
				t.Errorf("its turn is %s", m)
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			if err != nil {
				t.Fatal(err, out.String())
			}
			peak, err := strconv.Atoi(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(status))[1])
			if err != nil || peak > most<<10 {
				t.Errorf("the runner took %d KiB at most: %v", peak, err)
			}
			t.Logf("%d MiB at most", peak>>10)
			if got := g.until("prompt", "answered", g.ask("say:next")); !strings.Contains(fmt.Sprint(got["answer"]), "end_turn") {
				t.Errorf("the next one ended as %v", got)
			}
		})
	}
}
