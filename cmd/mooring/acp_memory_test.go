//go:build unix && !race

package main

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
)

// TestASlowEditorIsGivenUp has an editor that does not read while its agent writes without end.
func TestASlowEditorIsGivenUp(t *testing.T) {
	t.Parallel()
	e := newCLI(t, "").edits(acpagent.Script{}).opens()
	e.gate.Lock()
	defer e.gate.Unlock()
	e.prompt("say:a long")
	if code := e.ends(); code != cli.ExitRefused || !strings.Contains(e.err.String(), "the editor does not read: 64 MiB wait for it") {
		t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
	}
	e.ok("outbox", "drain")
	e.until("prompt", "answered", "")
}
