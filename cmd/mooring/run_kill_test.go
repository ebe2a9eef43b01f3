//go:build unix

// Runs that are killed: a prompt is handed over at most once, and ends in one state.

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// asProcess starts a run as a process of its own.
func (g *runRig) asProcess(ctx context.Context, env ...string) (*exec.Cmd, *lockbuf.Buffer) {
	g.t.Helper()
	cmd := exec.CommandContext(ctx, mooringProgram(), append([]string{"run", "--home", g.home(), "--session", g.session, "--"}, g.agentCommand()...)...)
	cmd.Env = append(os.Environ(), env...)
	out := &lockbuf.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	return cmd, out
}

// TestRunsAreKilledAtEveryStep kills the runner at each step with one kind of agent, another at the next step.
func TestRunsAreKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	runsAreKilled(t, func(step, agent int) bool { return step%4 == agent })
}

// killedEnd is what becomes of a prompt whose runner is killed.
type killedEnd struct {
	words string
	got   int // how often the agent gets it
}

const (
	endAnswered    = "answered end_turn"
	endUnknown     = "unknown"
	endInterrupted = "answered error the runner was ended"
)

// killedEnds are the ends by the step at which the runner is killed.
var killedEnds = map[string]killedEnd{
	crashpoint.RunStartBefore: {endAnswered, 1},
	crashpoint.RunStartAfter:  {endAnswered, 1},
	crashpoint.RunClaimBefore: {endAnswered, 1},
	crashpoint.RunClaimAfter:  {endAnswered, 1},
	crashpoint.RunHandBefore:  {endAnswered, 1},
	crashpoint.RunHanding:     {endUnknown, 0},
	crashpoint.RunHanded:      {endUnknown, -1}, // it was written: whether the agent has read it depends on the agent
	crashpoint.RunHeard:       {endInterrupted, 1},
	crashpoint.RunEndBefore:   {endInterrupted, 1},
	crashpoint.RunEndAfter:    {endAnswered, 1},
}

// runsAreKilled kills the runner at each step of a prompt's way, with agents that load their sessions, resume them, or
// neither, and lets another go on. It leaves out what has no part.
func runsAreKilled(t *testing.T, has func(step, agent int) bool) {
	agents := []struct {
		name   string
		script acpagent.Script
	}{
		{"loads", acpagent.Script{Load: true}},
		{"loads, without ids", acpagent.Script{Load: true, NoIDs: true}},
		{"resumes, and is deaf", acpagent.Script{Resume: true, Deaf: true}},
		{"forgets", acpagent.Script{}},
	}
	for step, point := range crashpoint.OfRuns() {
		for i, agent := range agents {
			if !has(step, i) {
				continue
			}
			t.Run(point+" "+agent.name, func(t *testing.T) {
				t.Parallel()
				script := agent.script
				want, ok := killedEnds[point]
				if !ok {
					t.Fatal("the table has no end for it")
				}
				r := newCLI(t, "")
				script.Dir = t.TempDir()
				g := &runRig{cliRig: r, script: script, session: strings.TrimSpace(r.ok("session", "create", "--owner", r.owner()))}
				const text = "pause:100ms say:a" // all of it is written before the agent says something
				id := g.ask(text)
				cmd, out := g.asProcess(t.Context(), crashpoint.Env+"="+point)
				if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
					t.Fatalf("the run was not killed: %v: %s", err, out.String())
				}
				g.begin("--session", g.session)
				if !g.soon(func() bool {
					state := fmt.Sprint(g.requests()[0]["state"])
					return state == "answered" || state == "unknown"
				}) {
					t.Fatalf("it does not end: %v: %s", g.requests(), g.err.String())
				}
				got := g.requests()[0]
				end := fmt.Sprint(got["state"], " ", got["answer"], got["reason"])
				prompts := len(g.prompts())
				if want.got == -1 {
					if want.words = endUnknown; prompts == 1 && script.Load && !script.NoIDs {
						want.words = endInterrupted // its history has the prompt
					}
				} else if prompts != want.got {
					t.Errorf("the agent got it %d times", prompts)
				}
				if prompts > 1 {
					t.Errorf("the agent got %q", g.prompts())
				}
				for word := range strings.FieldsSeq(want.words) {
					if !strings.Contains(end, word) {
						t.Errorf("it ended as %s, without %q", end, word)
					}
				}
				if got := g.prompts(); want.words != endUnknown && (len(got) != 1 || got[0] != text) {
					t.Errorf("the agent got %q", got)
				}
				if m := g.runIn("", "session", "get", g.session, "message/turn_"+id).out; prompts == 1 && !strings.Contains(m, `"completed":`) {
					t.Errorf("its turn is %s", m)
				}
				next := g.ask("say:b")
				if got := g.until("prompt", "answered", next); !strings.Contains(fmt.Sprint(got["answer"]), "end_turn") {
					t.Errorf("the next one ended as %v", got)
				}
				if code := g.end(); code != cli.ExitOK {
					t.Errorf("the run ended with %d: %s", code, g.err.String())
				}
				if list := g.ok("outbox", "list", "--json"); strings.Contains(list, "rejected") || strings.Contains(list, "conflict") {
					t.Errorf("ops were refused:\n%s", list)
				}
			})
		}
	}
}
