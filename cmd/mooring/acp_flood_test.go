//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
)

// TestEditorsThatFlood has an editor that asks more than it may at a time: each request is answered once, and what waits is
// withdrawn when it cancels.
func TestEditorsThatFlood(t *testing.T) {
	t.Parallel()
	e := newCLI(t, "").edits(acpagent.Script{}).opens()
	var echoes, prompts []string
	for i := range 300 {
		echoes = append(echoes, e.send("_test/echo", map[string]any{"sessionId": e.session, "n": i}))
	}
	for _, id := range echoes {
		if m := e.answer(id); m.Error != nil && !strings.Contains(m.Error.Message, "too many requests") {
			t.Errorf("%s is answered with %+v", id, m.Error)
		}
	}
	for range 100 {
		prompts = append(prompts, e.prompt("say:a wait"))
	}
	e.wait("the turn", func(m editorMessage) bool { return strings.Contains(string(m.Params), `"text":"a"`) })
	e.answer(prompts[99])
	e.write(map[string]any{"method": "session/cancel", "params": map[string]string{"sessionId": e.session}})
	ends := map[string]int{}
	for _, id := range prompts {
		if m := e.answer(id); m.Error != nil {
			ends[m.Error.Message]++
		} else {
			ends[strings.SplitAfter(string(m.Result), `,`)[0]]++
		}
	}
	if got := fmt.Sprint(ends); !strings.Contains(got, "64 prompts wait: cancel them first:36") {
		t.Errorf("the prompts are answered with %s", got)
	}
	seen := map[string]bool{}
	for _, m := range e.msgs {
		if m.Method == "" && seen[string(m.ID)] {
			t.Errorf("%s is answered twice", m.ID)
		}
		seen[string(m.ID)] = true
	}
	if n := len(e.prompts()); n != 1 {
		t.Errorf("the agent got %d prompts", n)
	}
	e.answer(e.prompt("say:after"))
	sessions := 1
	for ; sessions < 16; sessions++ {
		e.newSession()
	}
	e.refused("16 sessions are open", "session/new", map[string]any{"cwd": e.dir, "mcpServers": []any{}})
	if code := e.leaves(); code != cli.ExitOK {
		t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
	}
}

// TestEditorGoesOnWithASession names the session of the editor's first.
func TestEditorGoesOnWithASession(t *testing.T) {
	t.Parallel()
	g := newCLI(t, "").runs(acpagent.Script{Resume: true})
	g.until("prompt", "answered", g.ask("say:by-run"))
	dir := g.script.Dir
	if code := g.end(); code != cli.ExitOK {
		t.Fatalf("the run ended with %d", code)
	}
	e := &editor{runRig: &runRig{cliRig: g.cliRig, script: acpagent.Script{Dir: dir, Resume: true}, err: g.err}, dir: t.TempDir()}
	e.start("--session", g.session)
	e.opens()
	if e.session != g.session {
		t.Errorf("the session is %s", e.session)
	}
	e.wait("that the agent forgets", func(m editorMessage) bool {
		return strings.Contains(string(m.Params), "its earlier session is of the folder")
	})
	e.wait("what was before", func(m editorMessage) bool { return strings.Contains(string(m.Params), "by-run") })
	e.answer(e.prompt("say:by-editor"))
	if other := e.newSession(); other == g.session {
		t.Error("the second session is the first")
	}
	if code := e.leaves(); code != cli.ExitOK {
		t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
	}
}
