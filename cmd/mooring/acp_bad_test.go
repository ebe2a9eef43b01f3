//go:build unix

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
)

// TestBadEditors has editors that do not speak the protocol, and sessions that cannot be opened.
func TestBadEditors(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	e := r.edits(acpagent.Script{})
	e.reads()
	e.refused("initialize has to be", "session/new", map[string]any{})
	e.refused("not as the protocol", "initialize", []int{1})
	e.initialize()
	e.line("hello")
	e.line(`{"jsonrpc":"2.0","id":[1],"method":"x"}`)
	e.line(`{"id":"e","method":"session/prompt"}`)
	e.line(`{"id":99,"result":{}}`)
	e.line(strings.Repeat("x", 17<<20))
	for method, params := range map[string]map[string]any{
		"session/load": {"sessionId": "@/etc/passwd", "cwd": e.dir}, "session/resume": {"sessionId": "ses_01M8MK02RDB0SWBAT004N0XC4W", "cwd": e.dir},
		"session/new": {"cwd": "relative"}, "session/set_mode": {"sessionId": "ses_unknown"}, "session/prompt": {"sessionId": ""},
	} {
		m := e.answer(e.send(method, params))
		if m.Error == nil || m.Error.Message == "" {
			t.Errorf("%s %v is answered with %s", method, params, m.Result)
		}
	}
	e.refused("cwd", "session/new", map[string]any{"cwd": "/nowhere"})
	if got := r.ok("session", "list", "--owner", r.owner()); strings.Contains(got, "ses_") {
		t.Errorf("what could not work has made %s", got)
	}
	e.session = e.newSession()
	e.refused("empty", "session/prompt", map[string]any{"sessionId": e.session, "prompt": []any{}})
	e.refused("not as the protocol", "session/prompt", map[string]any{"sessionId": e.session, "prompt": "text"})
	e.answer(e.prompt("say:fine"))
	for range 1001 {
		e.line("hello")
	}
	if code := e.ends(); code != cli.ExitRefused || !strings.Contains(e.err.String(), "not of the protocol") {
		t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
	}
}

// TestEditorsThatLeave has editors that close their side, end, or are ended, in the middle of a turn, and mooring acp ended
// by a signal.
func TestEditorsThatLeave(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"closes", "dies", "interrupt", "deaf agent"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := newCLI(t, "").edits(acpagent.Script{Deaf: how == "deaf agent"}).opens()
			e.prompt("say:a fork:away wait")
			e.wait("the turn", func(m editorMessage) bool { return strings.Contains(string(m.Params), `"text":"a"`) })
			e.prompt("say:later")
			e.until("prompt", "open", "")
			switch how {
			case "dies":
				_ = e.out.Close()
				_ = e.in.Close()
			case "interrupt":
				_ = e.cmd.Process.Signal(syscall.SIGTERM)
			default:
				_ = e.in.Close()
			}
			if code := e.ends(); code != cli.ExitOK {
				t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
			}
			e.ok("outbox", "drain")
			if got := e.until("prompt", "answered", ""); !strings.Contains(fmt.Sprint(got["answer"]), "cancelled") {
				t.Errorf("it ended as %v", got)
			}
			e.until("prompt", "withdrawn", "")
			if got := e.value("agent"); !strings.Contains(got, `"ended"`) {
				t.Errorf("the agent is %s", got)
			}
			if n := len(e.prompts()); n != 1 {
				t.Errorf("the agent got %d prompts", n)
			}
		})
	}
}

// TestSessionsInUse has a session that another run has.
func TestSessionsInUse(t *testing.T) {
	t.Parallel()
	g := newCLI(t, "").runs(acpagent.Script{})
	e := g.edits(acpagent.Script{})
	e.initialize()
	e.session = g.session
	e.refused("another mooring run", "session/load", map[string]any{"sessionId": e.session, "cwd": e.dir, "mcpServers": []any{}})
	if code := g.end(); code != cli.ExitOK {
		t.Errorf("the run ended with %d", code)
	}
	e.load()
	e.answer(e.prompt("say:mine"))
	g.fails(cli.ExitRefused, "another mooring run", "run", "--session", g.session, "true")
	if code := e.leaves(); code != cli.ExitOK {
		t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
	}
}

// TestAgentsThatFailInAnEditor has agents that do not begin, that want a login first, and that end in a turn.
func TestAgentsThatFailInAnEditor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ at, what, words string }{
		{"initialize", "die", "exit status 9; it printed last: cannot go on: out of ideas"},
		{"initialize", "refuse", "I would rather not"},
		{"initialize", "version", "version 7"},
		{"initialize", "rubbish", "not of the protocol"},
		{"session/new", "die", "exit status 9"},
		{"session/new", "refuse", "refused a session"},
	} {
		t.Run(c.at+" "+c.what, func(t *testing.T) {
			t.Parallel()
			e := newCLI(t, "").edits(acpagent.Script{At: c.at, What: c.what})
			e.reads()
			m := e.answer(e.send("initialize", map[string]any{"protocolVersion": 1}))
			if c.at != "initialize" {
				m = e.answer(e.send("session/new", map[string]any{"cwd": e.dir, "mcpServers": []any{}}))
			}
			if m.Error == nil || !strings.Contains(m.Error.Message, c.words) {
				t.Errorf("%s is answered with %s %+v", c.at, m.Result, m.Error)
			}
			if code := e.leaves(); code != cli.ExitOK {
				t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
			}
		})
	}
	t.Run("login", func(t *testing.T) {
		t.Parallel()
		e := newCLI(t, "").edits(acpagent.Script{Auth: true})
		e.initialize()
		for range 2 {
			m := e.answer(e.send("session/new", map[string]any{"cwd": e.dir, "mcpServers": []any{}}))
			if m.Error == nil || m.Error.Code != -32000 {
				t.Errorf("session/new is answered with %s %+v", m.Result, m.Error)
			}
		}
		e.call("authenticate", map[string]string{"methodId": "key"})
		e.session = e.newSession()
		e.answer(e.prompt("say:in"))
		if got := e.noted("authenticated"); got != `{"methodId":"key"}`+"\n" {
			t.Errorf("the agent got %s", got)
		}
		if got := e.ok("session", "list", "--owner", e.owner()); strings.Count(got, "ses_") != 1 {
			t.Errorf("there are %s", got)
		}
	})
	t.Run("turn", func(t *testing.T) {
		t.Parallel()
		e := newCLI(t, "").edits(acpagent.Script{Resume: true}).opens()
		for text, words := range map[string]string{"die": "nobody knows", "say:a die": "exit status 9", "refuse": "I would rather not", "say:a wrong": "not as the protocol"} {
			if m := e.answer(e.prompt(text)); m.Error == nil || !strings.Contains(m.Error.Message, words) {
				t.Errorf("%q is answered with %s %+v", text, m.Result, m.Error)
			}
		}
		e.answer(e.prompt("say:again"))
		if got := e.seen("agent_message_chunk"); !strings.HasSuffix(got, "again") || !strings.Contains(got, "[mooring] the agent ended: exit status 9") {
			t.Errorf("the editor has seen %s", got)
		}
	})
}

// TestEditorWithoutAServer has prompts and a permission while the server is away.
func TestEditorWithoutAServer(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	e := r.edits(acpagent.Script{}).opens()
	asks := e.prompt("say:a ask:make say:b")
	p := e.asked("session/request_permission")
	e.until("permission", "open", "")
	r.stop()
	e.allows(p, "once")
	waits := func(what string) {
		e.wait("a notice", func(m editorMessage) bool {
			return strings.Contains(string(m.Params), "[mooring] Mooring's server") && strings.Contains(string(m.Params), what)
		})
	}
	waits("your answer waits for it")
	r.start()
	if got := string(e.answer(asks).Result); !strings.Contains(got, "end_turn") {
		t.Errorf("the prompt is answered with %s", got)
	}
	r.stop()
	one := e.prompt("say:one")
	waits("the prompt waits for it")
	e.write(map[string]any{"method": "session/cancel", "params": map[string]string{"sessionId": e.session}})
	if got := string(e.answer(one).Result); !strings.Contains(got, "cancelled") {
		t.Errorf("the prompt is answered with %s", got)
	}
	two := e.prompt("say:two")
	r.start()
	if got := string(e.answer(two).Result); !strings.Contains(got, "end_turn") {
		t.Errorf("the prompt is answered with %s", got)
	}
	if got := fmt.Sprint(e.prompts()); got != "[say:a ask:make say:b say:two]" {
		t.Errorf("the agent got %s", got)
	}
	e.until("prompt", "withdrawn", "")
	if code := e.leaves(); code != cli.ExitOK {
		t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
	}
}
