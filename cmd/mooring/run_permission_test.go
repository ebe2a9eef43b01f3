//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
)

// TestAPermissionEndsWithItsRun kills a runner while its agent waits for a permission: nobody can answer it any more, and the next
// process asks for itself.
func TestAPermissionEndsWithItsRun(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	g := &runRig{cliRig: r, script: acpagent.Script{Dir: t.TempDir(), Load: true}, session: strings.TrimSpace(r.ok("session", "create", "--owner", r.owner()))}
	cmd, out := g.asProcess(t.Context())
	first := g.ask("ask:make")
	old := g.until("permission", "open", "")["request"].(string)
	kill(cmd)
	g.begin("--session", g.session)
	if got := g.until("prompt", "answered", first); !strings.Contains(fmt.Sprint(got["answer"]), "error") {
		t.Errorf("it ended as %v: %s", got, out.String())
	}
	g.until("permission", "withdrawn", old)
	g.fails(cli.ExitRefused, "request_ended", "session", "answer", g.session, old, "always")
	second := g.ask("ask:make")
	g.ok("session", "answer", g.session, g.until("permission", "open", "")["request"].(string), "once")
	if got := g.until("prompt", "answered", second); !strings.Contains(fmt.Sprint(got["answer"]), "[make:selected:once]") {
		t.Errorf("it ended as %v", got)
	}
}

// TestAnAnswerIsBoundToWhatWasShown has answers that name another digest, none, or no right to answer.
func TestAnAnswerIsBoundToWhatWasShown(t *testing.T) {
	t.Parallel()
	g := newCLI(t, "").runs(acpagent.Script{})
	id := g.ask("ask:make")
	p := g.until("permission", "open", "")["request"].(string)
	g.fails(cli.ExitRefused, "conflict", "session", "answer", g.session, p, "once", "--shown", strings.Repeat("0", 64))
	watcher := strings.TrimSpace(g.ok("share", g.session, "--rights", "read,ask,append"))
	g.fails(cli.ExitRefused, "missing_right", "session", "answer", watcher, p, "once")
	g.ok("session", "answer", g.session, p, "once")
	g.fails(cli.ExitRefused, "conflict", "session", "answer", g.session, p, "no")
	if got := g.until("prompt", "answered", id); !strings.Contains(fmt.Sprint(got["answer"]), "[make:selected:once]") {
		t.Errorf("it ended as %v", got)
	}
}
