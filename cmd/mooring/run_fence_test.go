//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// TestOneRunnerOfASession has two machines that run agents for one session.
func TestOneRunnerOfASession(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	g := r.runs(acpagent.Script{Resume: true})
	g.until("prompt", "answered", g.ask("say:a"))
	other := &runRig{cliRig: &cliRig{t: t, dir: t.TempDir()}, script: acpagent.Script{Dir: t.TempDir()}}
	there := r.owner() + "/" + g.session
	runs := func(g *runRig, ref string) result {
		var out, said lockbuf.Buffer
		code := runContext(t.Context(), append([]string{"run", "--home", g.home(), "--session", ref, "--"}, g.agentCommand()...), strings.NewReader(""), &out, &said)
		return result{code, out.String(), said.String()}
	}
	if got := runs(other, there); got.code != cli.ExitRefused || !strings.Contains(got.err, "in_use: another runner works in this session (owner, with the outbox") || !strings.Contains(got.err, "until ") {
		t.Errorf("it ended with %+v", got)
	}
	if _, err := os.Stat(filepath.Join(other.script.Dir, "pids")); err == nil {
		t.Error("the other's agent was started")
	}

	// An editor elsewhere is told the same.
	away := &editor{runRig: &runRig{cliRig: &cliRig{t: t, dir: filepath.Join(r.dir, "away")}, script: acpagent.Script{Dir: t.TempDir()}, err: &lockbuf.Buffer{}}, dir: t.TempDir()}
	away.start("--session", there)
	away.initialize()
	away.refused("another runner works in this session", "session/new", map[string]any{"cwd": away.dir, "mcpServers": []any{}})
	if code := away.leaves(); code != cli.ExitOK {
		t.Errorf("mooring acp ended with %d", code)
	}

	// When it has ended, the other may, and it not.
	if code := g.end(); code != cli.ExitOK {
		t.Errorf("the run ended with %d: %s", code, g.err.String())
	}
	away.start("--session", there)
	away.opens()
	away.answer(away.prompt("say:b"))
	if got := runs(g, g.session); got.code != cli.ExitRefused || !strings.Contains(got.err, "another runner works in this session") {
		t.Errorf("it ended with %+v", got)
	}
	if code := away.leaves(); code != cli.ExitOK {
		t.Errorf("mooring acp ended with %d: %s", code, away.err.String())
	}
}

// TestARunnerWhoseClaimIsGoneEnds has a runner whose claim was broken, and another's that came then: what it says of the agent does
// not apply any more, and it ends. One that nobody has replaced goes on.
func TestARunnerWhoseClaimIsGoneEnds(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	g := r.runs(acpagent.Script{})
	g.until("prompt", "answered", g.ask("say:a"))
	claim := func() string {
		t.Helper()
		var v struct {
			Claim struct{ Cursor json.Number }
		}
		if err := json.Unmarshal([]byte(g.ok("session", "get", g.session, "agent", "--json")), &v); err != nil || v.Claim.Cursor == "" {
			t.Fatalf("the claim is %+v: %v", v, err)
		}
		return v.Claim.Cursor.String()
	}
	away := filepath.Join(r.dir, "away")
	release := func() string { return fmt.Sprintf(`{"method":"release","key":"agent","claim":%s}`, claim()) }
	if got := r.runAs(away, release(), "session", "append", r.owner()+"/"+g.session, "--wait"); got.code != cli.ExitOK {
		t.Fatalf("the claim was not broken: %+v", got)
	}
	g.until("prompt", "answered", g.ask("say:b"))
	if !g.soon(func() bool { return strings.Contains(g.value("agent"), `"ready"`) }) {
		t.Errorf("the agent is %s", g.value("agent"))
	}
	theirs := release() + "\n" + `{"method":"claim","key":"agent","lease":600000}`
	if got := r.runAs(away, theirs, "session", "append", r.owner()+"/"+g.session, "--wait"); got.code != cli.ExitOK {
		t.Fatalf("the claim was not taken: %+v", got)
	}
	id := g.ask("say:c wait")
	code := <-g.ended
	g.ended <- code
	if code != cli.ExitRefused || !strings.Contains(g.err.String(), "in_use: another runner works in this session") {
		t.Errorf("the run ended with %d: %s", code, g.err.String())
	}
	g.nothingLeft()
	g.ok("outbox", "drain")
	g.until("prompt", "answered", id)
}

// A ref that cannot record runs no agent: prompts would be taken from who can.
func TestNoRunWithoutARecord(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	g := r.runs(acpagent.Script{})
	g.until("prompt", "answered", g.ask("say:a"))
	if code := g.end(); code != cli.ExitOK {
		t.Fatalf("the run ended with %d: %s", code, g.err.String())
	}
	for _, rights := range []string{"read,ask,answer", "read"} {
		other := &runRig{cliRig: &cliRig{t: t, dir: t.TempDir()}, script: acpagent.Script{Dir: t.TempDir()}}
		var out, said lockbuf.Buffer
		code := runContext(t.Context(), append([]string{"run", "--home", other.home(), "--session", r.shareTo(strings.ReplaceAll(rights, ",", "-"), g.session, "--rights", rights), "--"}, other.agentCommand()...), strings.NewReader(""), &out, &said)
		if code != cli.ExitRefused || !strings.Contains(said.String(), "cannot record what an agent does") {
			t.Errorf("with %s it ended with %d: %s", rights, code, said.String())
		}
		if _, err := os.Stat(filepath.Join(other.script.Dir, "pids")); err == nil {
			t.Errorf("with %s the agent was started", rights)
		}
	}
	id := g.ask("say:b")
	if i := slices.IndexFunc(g.requests(), func(q map[string]any) bool { return q["request"] == id }); g.requests()[i]["state"] != "open" {
		t.Error("somebody took the prompt")
	}
}
