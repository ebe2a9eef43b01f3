//go:build unix

// Imports that are killed at named steps, as processes of their own.

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// killed runs a command that dies at a crash point; it gives false if it came to its end.
func (r *cliRig) killed(point string, args ...string) bool {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), mooringProgram(), append(args, "--home", r.home())...)
	cmd.Env = append(os.Environ(), crashpoint.Env+"="+point)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if cmd.ProcessState.ExitCode() != -1 { // a signal
		r.t.Fatalf("at %s: %v: %s", point, err, out)
	}
	return true
}

func TestAnImportThatIsKilledContinues(t *testing.T) {
	t.Parallel()
	const name = "d-revert-unshare-1.18.33"
	file := opencodetest.Path(t, name+".jsonl")
	whole := newCLI(t, "")
	want := whole.tailed(strings.TrimSpace(whole.ok("session", "import", file, "--owner", whole.owner())))
	for _, home := range []string{"sqlite", "postgres"} {
		t.Run("outbox on "+home, func(t *testing.T) {
			t.Parallel()
			r := newCLI(t, "")
			outbox := []string{}
			if home == "postgres" {
				url := pgtest.URL(t)
				outbox = []string{"--outbox-url", url}
			}
			points := []string{
				crashpoint.OutboxCommitBefore + ":1", crashpoint.OutboxCommitAfter + ":1", crashpoint.OutboxCommitAfter + ":2",
				crashpoint.OutboxCommitBefore + ":3", crashpoint.OutboxAckBefore + ":1",
			}
			if home == "sqlite" { // where who was killed is known to be gone, and its lease with it
				points = append(points, crashpoint.OutboxSeqBefore+":1", crashpoint.OutboxSeqAfter+":1", crashpoint.OutboxSendAfter+":1", crashpoint.OutboxAckAfter+":1")
			}
			kills := 0
			for _, point := range points {
				if r.killed(point, append([]string{"session", "import", file, "--owner", r.owner()}, outbox...)...) {
					kills++
				}
			}
			if kills < 4 {
				t.Errorf("only %d of the imports were killed", kills)
			}
			id := strings.TrimSpace(r.ok(append([]string{"session", "import", file}, outbox...)...))
			r.ok(append([]string{"outbox", "drain"}, outbox...)...)
			opencodetest.CheckExport(t, name, []byte(r.ok(append([]string{"session", "export", id}, outbox...)...)))
			ops := map[string]bool{}
			n := 0
			for line := range strings.Lines(r.ok(append([]string{"session", "tail", id, "--json"}, outbox...)...)) {
				var e struct {
					Cursor int
					Op     string
				}
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatal(err)
				}
				n++
				if e.Cursor != n || ops[e.Op] {
					t.Fatalf("event %d has cursor %d and op %s, seen before: %v", n, e.Cursor, e.Op, ops[e.Op])
				}
				ops[e.Op] = true
			}
			if n != want {
				t.Errorf("after %d kills there are %d events, an import in one go makes %d", kills, n, want)
			}
			if list := r.ok(append([]string{"session", "list", "--json"}, outbox...)...); strings.Count(list, fmt.Sprintf("%q", id)) != 1 || strings.Count(list, "\n") != 1 {
				t.Errorf("the sessions are\n%s", list)
			}
		})
	}
}
