//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
	"github.com/mooring-rpc/mooring/internal/seed"
)

// TestPermissionsOfTwo has permissions that somebody else answers first, and that the editor and somebody else answer at once: the
// agent gets the answer that is recorded, once.
func TestPermissionsOfTwo(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(seed.Of(t), 0))
	e := newCLI(t, "").edits(acpagent.Script{}).opens()
	const rounds = 30
	first := map[string]int{}
	for i := range rounds {
		call := e.prompt(fmt.Sprintf("ask:r%d say:.", i))
		asked := e.asked("session/request_permission")
		id := e.until("permission", "open", "")["request"].(string)
		elsewhere := make(chan result, 1)
		answer := func() { elsewhere <- e.runIn("", "session", "answer", e.session, id, "no") }
		switch i % 3 {
		case 0: // somebody else alone, and the editor too late
			answer()
			e.wait("the question is taken back", func(m editorMessage) bool {
				return m.Method == "$/cancel_request" && strings.Contains(string(m.Params), string(asked.ID))
			})
			e.allows(asked, "once")
		case 1: // either may be first
			go answer()
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			e.allows(asked, "once")
			e.allows(asked, "always") // a second answer to the same is none
		case 2:
			e.allows(asked, "once")
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			go answer()
		}
		e.answer(call)
		other := <-elsewhere
		recorded := ""
		for _, r := range e.requests() {
			if r["request"] == id && r["state"] == "answered" {
				recorded = r["choice"].(string)
			}
		}
		first[recorded]++
		if (recorded == "no") != (other.code == cli.ExitOK) || recorded != "no" && recorded != "once" {
			t.Errorf("round %d: %q is recorded, and who answered elsewhere was told %+v", i, recorded, other)
		}
		if got := e.seen("agent_message_chunk"); strings.Count(got, fmt.Sprintf("[r%d:", i)) != 1 || !strings.Contains(got, fmt.Sprintf("[r%d:selected:%s]", i, recorded)) {
			t.Errorf("round %d: %q is recorded, and the agent said %s", i, recorded, got)
		}
	}
	t.Log(first)
	if code := e.leaves(); code != cli.ExitOK {
		t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
	}
}

// TestPermissionsEndInTheEditor has a permission that the editor dismisses, one whose turn it cancels, and one that it cannot
// answer, which somebody else does.
func TestPermissionsEndInTheEditor(t *testing.T) {
	t.Parallel()
	e := newCLI(t, "").edits(acpagent.Script{}).opens()
	call := e.prompt("ask:a")
	e.write(map[string]any{"id": e.asked("session/request_permission").ID, "result": map[string]any{"outcome": map[string]string{"outcome": "cancelled"}}})
	e.answer(call)
	e.until("permission", "withdrawn", "")

	call = e.prompt("ask:b")
	asked := e.asked("session/request_permission")
	e.write(map[string]any{"method": "session/cancel", "params": map[string]string{"sessionId": e.session}})
	e.wait("the question is taken back", func(m editorMessage) bool {
		return m.Method == "$/cancel_request" && strings.Contains(string(m.Params), string(asked.ID))
	})
	if got := string(e.answer(call).Result); !strings.Contains(got, "cancelled") {
		t.Errorf("the prompt is answered with %s", got)
	}

	call = e.prompt("ask:c")
	e.write(map[string]any{"id": e.asked("session/request_permission").ID, "error": map[string]any{"code": -32601, "message": "what?"}})
	e.ok("session", "answer", e.session, e.until("permission", "open", "")["request"].(string), "once")
	e.answer(call)
	if got := e.seen("agent_message_chunk"); got != "[a:selected:no][b:cancelled:][c:selected:once]" {
		t.Errorf("the agent said %s", got)
	}
}
