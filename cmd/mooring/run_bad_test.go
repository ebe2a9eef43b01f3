//go:build unix

// Agents that misbehave: each ends in one clear state, and leaves nothing.

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
)

// TestAgentsThatDoNotBegin has agents that fail before they are ready: the run ends and says why, and the session does.
func TestAgentsThatDoNotBegin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ at, what, code, words string }{
		{"initialize", "die", "unavailable", "exit status 9; it printed last: cannot go on: out of ideas"},
		{"initialize", "refuse", "unavailable", "I would rather not"},
		{"initialize", "version", "incompatible", "version 7"},
		{"initialize", "wrong", "incompatible", "not as the protocol has it"},
		{"initialize", "rubbish", "incompatible", "not of the protocol"},
		{"session/new", "die", "unavailable", "exit status 9"},
		{"session/new", "auth", "unavailable", "log in"},
		{"session/new", "refuse", "unavailable", "refused a session"},
		{"session/new", "wrong", "incompatible", "not as the protocol has it"},
		{"session/new", "rubbish", "incompatible", "not of the protocol"},
	} {
		t.Run(c.at+" "+c.what, func(t *testing.T) {
			t.Parallel()
			g := newCLI(t, "").runs(acpagent.Script{At: c.at, What: c.what, Deaf: c.what == "rubbish"})
			code := <-g.ended
			g.ended <- code
			if code != cli.ExitRefused || !strings.Contains(g.err.String(), c.words) || !strings.Contains(g.err.String(), "mooring: "+c.code+": ") {
				t.Errorf("the run ended with %d: %s", code, g.err.String())
			}
			g.nothingLeft()
			g.ok("outbox", "drain")
			if got := g.value("agent"); !strings.Contains(got, `"state":"failed"`) || !strings.Contains(got, c.words[:min(10, len(c.words))]) {
				t.Errorf("the agent is %s", got)
			}
		})
	}
}

// TestAgentsThatFailAtAPrompt has agents that fail when they have got a prompt. The next prompt is answered by another process.
func TestAgentsThatFailAtAPrompt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ prompt, state, words, message string }{
		{"die", "unknown", "", `"error"`},
		{"say:a die", "answered", "exit status 9", `"Interrupted"`},
		{"refuse", "answered", "I would rather not", `"AgentError"`},
		{"say:a wrong", "answered", "not as the protocol", `"AgentError"`},
		{"say:a rubbish", "answered", "not of the protocol", `"Interrupted"`},
		{"noise say:a", "answered", "end_turn", `"finish":"stop"`},
		{"fork fork:away say:a die", "answered", "exit status 9", `"Interrupted"`},
		{"late", "answered", "end_turn", `"finish":"stop"`},
		{"file", "answered", "no-files", `"finish":"stop"`},
	} {
		t.Run(c.prompt, func(t *testing.T) {
			t.Parallel()
			g := newCLI(t, "").runs(acpagent.Script{})
			id := g.ask(c.prompt)
			got := g.until("prompt", c.state, id)
			if text := fmt.Sprint(got["answer"], got["reason"]); !strings.Contains(text, c.words) {
				t.Errorf("it ended as %v", got)
			}
			if m := g.value("message/turn_" + id); !strings.Contains(m, c.message) || !strings.Contains(m, `"completed":`) {
				t.Errorf("its turn is %s", m)
			}
			next := g.ask("say:next")
			if got := g.until("prompt", "answered", next); !strings.Contains(fmt.Sprint(got["answer"]), "end_turn") {
				t.Errorf("the next one ended as %v", got)
			}
			if n := len(g.prompts()); n != 2 {
				t.Errorf("the agents got %d prompts", n)
			}
			if code := g.end(); code != cli.ExitOK {
				t.Errorf("the run ended with %d: %s", code, g.err.String())
			}
		})
	}
}

// TestAHungAgentIsStopped has an agent that answers nothing any more.
func TestAHungAgentIsStopped(t *testing.T) {
	t.Parallel()
	g := newCLI(t, "").runs(acpagent.Script{Deaf: true})
	id := g.ask("say:a fork:away hang")
	if !g.soon(func() bool {
		return strings.Contains(g.runIn("", "session", "get", g.session, "part/turn_"+id+"/prt_000001").out, `"a"`)
	}) {
		t.Fatal("it said nothing")
	}
	if code := g.end(); code != cli.ExitOK {
		t.Errorf("the run ended with %d: %s", code, g.err.String())
	}
	g.nothingLeft()
	g.ok("outbox", "drain")
	if got := g.until("prompt", "answered", id); !strings.Contains(fmt.Sprint(got["answer"]), "mooring run was ended") {
		t.Errorf("it ended as %v", got)
	}
}

// TestAgentsThatNeverAnswer has agents that hang before they are ready, and one that does not stop.
func TestAgentsThatNeverAnswer(t *testing.T) {
	t.Parallel()
	for at, limit := range map[string]string{"initialize": "300ms", "session/new": "10s"} { // within which initialize is answered
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			g := newCLI(t, "").runs(acpagent.Script{At: at, What: "hang", Deaf: true}, "--start-timeout", limit)
			code := <-g.ended
			g.ended <- code
			if code != cli.ExitRefused || !strings.Contains(g.err.String(), "did not answer "+at) {
				t.Errorf("the run ended with %d: %s", code, g.err.String())
			}
		})
	}
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		g := newCLI(t, "").runs(acpagent.Script{Deaf: true}, "--stop-timeout", "300ms")
		id := g.ask("say:a hang")
		if !g.soon(func() bool {
			return strings.Contains(g.runIn("", "session", "get", g.session, "part/turn_"+id+"/prt_000001").out, `"a"`)
		}) {
			t.Fatal("it said nothing")
		}
		g.ok("session", "ask", g.session, "stop", "--message", "turn_"+id)
		if got := g.until("prompt", "answered", id); !strings.Contains(fmt.Sprint(got["answer"]), "asked to stop") {
			t.Errorf("it ended as %v", got)
		}
		if m := g.ok("session", "show", g.session); !strings.Contains(m, "aborted") {
			t.Errorf("the session is %s", m)
		}
		g.until("prompt", "answered", g.ask("say:b"))
	})
}

// TestPermissions has the ends of permissions.
func TestPermissions(t *testing.T) {
	t.Parallel()
	nobody := newCLI(t, "").runs(acpagent.Script{}, "--permission-timeout", "1s")
	if got := nobody.until("prompt", "answered", nobody.ask("ask:ls")); !strings.Contains(fmt.Sprint(got["answer"]), "[ls:selected:no]") {
		t.Errorf("what nobody answered ended as %v", got)
	}
	g := newCLI(t, "").runs(acpagent.Script{})
	for _, c := range []struct{ what, words string }{
		{"once", "[ls:selected:once]"}, {"always", "[ls:selected:always]"}, {"no", "[ls:selected:no]"},
		{"withdraw", "[ls:selected:no]"}, {"stop", "[ls:cancelled:]"},
	} {
		id := g.ask("ask:ls")
		p := g.until("permission", "open", "")["request"].(string)
		switch c.what {
		case "stop":
			g.ok("session", "ask", g.session, "stop", "--message", "turn_"+id)
		case "withdraw":
			g.okIn(`{"method":"withdraw","request":"`+p+`"}`, "session", "append", g.session, "--wait")
		default:
			g.ok("session", "answer", g.session, p, c.what)
		}
		if got := g.until("prompt", "answered", id); !strings.Contains(fmt.Sprint(got["answer"]), c.words) {
			t.Errorf("%s: it ended as %v", c.what, got)
		}
		for _, r := range g.requests() {
			if r["kind"] == "permission" && r["state"] == "open" {
				t.Errorf("%s: a permission is open: %v", c.what, r)
			}
		}
	}
}

func TestRunUsage(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	r.fails(cli.ExitUsage, "which agent", "run")
	r.fails(cli.ExitUsage, "no folder", "run", "--dir", "/nowhere", "true")
	for _, timeout := range []string{"0s", "-1s", "300ms", "721h"} {
		r.fails(cli.ExitUsage, "--permission-timeout "+timeout, "run", "--permission-timeout", timeout, "true")
	}
	r.fails(cli.ExitUsage, "--label", "run", "--session", "ses_1", "--label", "x", "true")
	r.fails(cli.ExitUsage, "no such file", "run", "--owner", r.owner(), "/nowhere/agent")
	r.fails(cli.ExitUsage, "not found", "run", "--owner", r.owner(), "no-such-agent")
	r.fails(cli.ExitUsage, "no such file", "run", "--owner", r.owner(), "--dir", t.TempDir(), "./agent")
	r.fails(cli.ExitRefused, "exists already", "run", "--owner", r.owner(), "--share-to", r.file("there.ref", "x"), "true")
	if got := r.ok("session", "list", "--owner", r.owner()); strings.Contains(got, "ses_") {
		t.Errorf("what could not work has made %s", got)
	}
	g := r.runs(acpagent.Script{})
	r.fails(cli.ExitRefused, "another mooring run", "run", "--session", g.session, "true")
	bad := strings.TrimSpace(g.ok("session", "ask", g.session, "prompt", "--payload", `{"words":1}`))
	if got := g.until("prompt", "answered", bad); !strings.Contains(fmt.Sprint(got["answer"]), "payload") {
		t.Errorf("it ended as %v", got)
	}
}

// TestPromptsThatWaitForAnAgentThatDies has prompts that were asked before the agent died: they go on with its next process, and nothing else has to happen.
func TestPromptsThatWaitForAnAgentThatDies(t *testing.T) {
	t.Parallel()
	for _, dies := range []string{"pause:1s die", "say:a pause:1s die"} {
		t.Run(dies, func(t *testing.T) {
			t.Parallel()
			g := newCLI(t, "").runs(acpagent.Script{})
			g.ask(dies)
			second := g.ask("say:second")
			g.until("prompt", "answered", second)
			if code := g.end(); code != cli.ExitOK {
				t.Errorf("the run ended with %d: %s", code, g.err.String())
			}
		})
	}
}
