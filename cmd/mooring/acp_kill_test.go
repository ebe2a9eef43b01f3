//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// TestEditorsComeBackAfterKills kills mooring acp at each step of the way of an editor's prompt, and loads the session again: the
// prompt has the end that it has with mooring run.
func TestEditorsComeBackAfterKills(t *testing.T) {
	t.Parallel()
	for _, point := range crashpoint.OfRuns() {
		if point == crashpoint.RunStartBefore || point == crashpoint.RunStartAfter {
			continue // before there is a prompt
		}
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			want := killedEnds[point]
			r := newCLI(t, "")
			e := &editor{runRig: &runRig{cliRig: r, script: acpagent.Script{Dir: t.TempDir(), Load: true}, err: &lockbuf.Buffer{}}, dir: t.TempDir(), crash: point}
			e.start("--owner", r.owner())
			e.opens()
			e.prompt("pause:300ms say:a") // all of it is written before the agent says something
			if err := e.cmd.Wait(); err == nil || e.cmd.ProcessState.ExitCode() != -1 {
				t.Fatalf("mooring acp was not killed: %v: %s", err, e.err.String())
			}
			e.crash = ""
			e.start()
			e.initialize()
			e.load()
			if !e.soon(func() bool {
				state := fmt.Sprint(e.requests()[0]["state"])
				return state == "answered" || state == "unknown"
			}) {
				t.Fatalf("it does not end: %v: %s", e.requests(), e.err.String())
			}
			got := e.requests()[0]
			text := fmt.Sprint(got["state"], " ", got["answer"], got["reason"])
			prompts := len(e.prompts())
			if want.got == -1 {
				if prompts == 1 {
					want.words = endInterrupted // its history has the prompt
				}
			} else if prompts != want.got {
				t.Errorf("the agent got it %d times", prompts)
			}
			if prompts > 1 {
				t.Errorf("the agent got %q", e.prompts())
			}
			for word := range strings.FieldsSeq(want.words) {
				if !strings.Contains(text, word) {
					t.Errorf("it ended as %s, without %q", text, word)
				}
			}
			if m := e.answer(e.prompt("say:b")); !strings.Contains(string(m.Result), "end_turn") {
				t.Errorf("the next one is answered with %s %+v", m.Result, m.Error)
			}
			if code := e.leaves(); code != cli.ExitOK {
				t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
			}
			if list := e.ok("outbox", "list", "--json"); strings.Contains(list, "rejected") || strings.Contains(list, "conflict") {
				t.Errorf("ops were refused:\n%s", list)
			}
		})
	}
}
