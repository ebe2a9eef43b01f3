//go:build unix

// mooring acp, with an editor and an agent that do as they are told.

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
)

func TestEditorStory(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	phone := filepath.Join(r.dir, "phone.ref")
	e := r.edits(acpagent.Script{}, "--share-to", phone)
	said := e.initialize()
	for _, want := range []string{`"name":"tester"`, `"loadSession":true`, `"resume":{}`, `"image":true`, `"authMethods":[{"id":"key"`} {
		if !strings.Contains(said, want) {
			t.Errorf("initialize is %s, without %s", said, want)
		}
	}
	if got := e.noted("clients"); !strings.Contains(got, `"readTextFile":true`) || !strings.Contains(got, `"of":true`) || !strings.Contains(got, `"version":"3"`) {
		t.Errorf("the agent was told of %s", got)
	}
	e.session = e.newSession()
	if got := e.noted("params"); !strings.Contains(got, e.dir) || strings.Contains(got, "ses_") {
		t.Errorf("the agent's session is of %s", got)
	}

	// A prompt of the editor's is one of the session. What the agent does for it is shown as it is, and recorded.
	first := e.prompt("think:hm say:before odd ask:<make> read:/a/b file")
	p := e.asked("session/request_permission")
	if text := string(p.Params); !strings.Contains(text, `"sessionId":"`+e.session+`"`) || !strings.Contains(text, `"optionId":"always"`) {
		t.Errorf("the editor is asked %s", text)
	}
	if got := e.until("permission", "open", ""); !strings.Contains(fmt.Sprint(got["payload"]), "<make>") {
		t.Errorf("the permission is %v", got)
	}
	e.allows(p, "once")
	read := e.asked("fs/read_text_file")
	if got := string(read.Params); got != `{"_meta":{"n":1},"path":"/a/b","sessionId":"`+e.session+`"}` {
		t.Errorf("the editor is asked %s", got)
	}
	e.write(map[string]any{"id": read.ID, "result": map[string]any{"content": "unsaved", "more": []int{1}}})
	if got := string(e.answer(first).Result); got != `{"stopReason":"end_turn","usage":{"inputTokens":10,"outputTokens":2,"totalTokens":12}}` {
		t.Errorf("the prompt is answered with %s", got)
	}
	if got := e.seen("agent_message_chunk"); !strings.HasPrefix(got, `before<odd>[<make>:selected:once][{"jsonrpc":"2.0","id":"r1","result":{"content":"unsaved","more":[1]}}]no-files`) {
		t.Errorf("the editor has seen %s", got)
	}
	for _, want := range []string{`{"_meta":{"deep":[1,2]},"content":{"annotations":{"x":1},"text":"\u003codd\u003e","type":"text"},"later":"yes","sessionUpdate":"agent_message_chunk"}`,
		`{"sessionUpdate":"of_a_later_version","what":1000}`, `_test/says {"hm":true,"sessionId":"` + e.session + `"}`} {
		if got := e.texts(); !strings.Contains(got, want) {
			t.Errorf("the editor was not shown %s: %s", want, got)
		}
	}
	if got := e.seen("user_message_chunk"); got != "" {
		t.Errorf("the editor was shown its own prompt: %s", got)
	}
	answered := e.until("permission", "answered", "")
	if answered["choice"] != "once" {
		t.Errorf("the permission is %v", answered)
	}
	id := e.until("prompt", "answered", "")["request"].(string)
	for key, want := range map[string]string{
		"message/turn_" + id: `"input":10`, "message/user_" + id: `"role":"user"`, "agent": `"state":"ready"`,
		"part/turn_" + id + "/prt_000002": `before<odd>`, "part/user_" + id + "/prt_000001": `think:hm say:before`,
	} {
		if got := e.value(key); !strings.Contains(got, want) {
			t.Errorf("%s is %s, without %s", key, got, want)
		}
	}

	// A prompt from elsewhere is shown, with who asked it.
	other := strings.TrimSpace(r.ok("session", "ask", "@"+phone, "prompt", "say:there"))
	e.until("prompt", "answered", other)
	shown := e.wait("the other's prompt", func(m editorMessage) bool {
		return strings.Contains(string(m.Params), `"user_message_chunk"`)
	})
	if got := string(shown.Params); !strings.Contains(got, "say:there") || !strings.Contains(got, `"mooring":{"actor":"owner","request":"`+other+`"}`) {
		t.Errorf("the editor is shown %s", got)
	}
	e.wait("what the agent says to the other", func(m editorMessage) bool { return strings.Contains(string(m.Params), `"there"`) })

	// A turn that the editor cancels, and what is passed on.
	third := e.prompt("say:a wait")
	e.wait("the turn", func(m editorMessage) bool { return strings.Contains(string(m.Params), `"text":"a"`) })
	e.write(map[string]any{"method": "session/cancel", "params": map[string]string{"sessionId": e.session}})
	if got := string(e.answer(third).Result); !strings.Contains(got, `"cancelled"`) {
		t.Errorf("the prompt is answered with %s", got)
	}
	if got := e.call("session/set_mode", map[string]string{"sessionId": e.session, "modeId": "plan"}); got != `{"got":{"modeId":"plan","sessionId":"agent-session"}}` {
		t.Errorf("set_mode is answered with %s", got)
	}
	if !e.soon(func() bool { return strings.Contains(e.value("agent"), `"mode":"plan"`) }) {
		t.Errorf("the agent is %s", e.value("agent"))
	}
	if got := e.call("_test/echo", map[string]any{"sessionId": e.session, "x": "<"}); got != `{"got":{"sessionId":"agent-session","x":"\u003c"}}` {
		t.Errorf("the agent was asked %s", got)
	}
	e.write(map[string]any{"method": "_test/note", "params": map[string]any{"sessionId": e.session, "y": 1}})
	e.refused("no _test/nothing", "_test/nothing", map[string]any{"sessionId": e.session})
	if got := e.noted("notes"); got != `{"sessionId":"agent-session","y":1}`+"\n" {
		t.Errorf("the agent was told %s", got)
	}
	for method, words := range map[string]string{"session/fork": "none of the editor's", "session/list": "none of the editor's", "initialize": "before"} {
		e.refused(words, method, map[string]any{"sessionId": e.session})
	}

	// A second session has an own agent.
	one := e.session
	if e.session = e.newSession(); e.session == one {
		t.Error("there is one session")
	}
	e.answer(e.prompt("say:two"))
	if n := strings.Count(e.noted("pids"), "\n"); n != 2 {
		t.Errorf("there are %d agents", n)
	}
	if got := e.call("session/close", map[string]string{"sessionId": e.session}); got != "{}" {
		t.Errorf("close is answered with %s", got)
	}
	e.refused("no session", "session/prompt", map[string]any{"sessionId": e.session})
	e.session = one
	e.answer(e.prompt("say:still"))
	if code := e.leaves(); code != cli.ExitOK {
		t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
	}
	if got := e.value("agent"); !strings.Contains(got, `"state":"ended"`) || !strings.Contains(got, "closed the connection") {
		t.Errorf("the agent is %s", got)
	}
	if got := e.err.String(); !strings.HasPrefix(got, "session "+one+"\n") || strings.Count(got, "session ses_") != 2 {
		t.Errorf("mooring says %s", got)
	}
}

// TestEditorsLoadSessions has an editor that comes back, with each kind of agent.
func TestEditorsLoadSessions(t *testing.T) {
	t.Parallel()
	const forgot = "\n[mooring] the agent: it cannot go on with an earlier session, so it does not remember what was before\n"
	for name, script := range map[string]acpagent.Script{"loads": {Load: true}, "resumes": {Resume: true}, "forgets": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newCLI(t, "").edits(script).opens()
			first := e.prompt("think:why say:<one> ask:make")
			e.allows(e.asked("session/request_permission"), "once")
			e.answer(first)
			if code := e.leaves(); code != cli.ExitOK {
				t.Fatalf("mooring acp ended with %d: %s", code, e.err.String())
			}
			e.start()
			e.initialize()
			e.load()
			if got := e.seen("user_message_chunk"); got != "think:why say:<one> ask:make" {
				t.Errorf("the editor has seen the prompts %q", got)
			}
			said := e.seen("agent_message_chunk")
			if script.Load && said != "as before" || !script.Load && !strings.HasPrefix(strings.TrimPrefix(said, forgot), "<one>[make:selected:once]") {
				t.Errorf("the editor has seen the messages %q", said)
			}
			if got := e.texts(); !script.Load && (e.seen("agent_thought_chunk") != "why" || !strings.Contains(got, `"rawInput":{"command":"make"}`) || !strings.Contains(got, `"status":"completed"`)) {
				t.Errorf("the editor has seen %s", got)
			}
			if strings.HasPrefix(said, forgot) != (name == "forgets") {
				t.Errorf("the editor has seen the messages %q", said)
			}
			if got := e.noted("opened"); !strings.Contains(got, map[string]string{"loads": "session/load", "resumes": "session/resume", "forgets": "session/new\nsession/new"}[name]) {
				t.Errorf("the agent's sessions were opened by %s", got)
			}
			e.refused("open already", "session/load", map[string]any{"sessionId": e.session, "cwd": e.dir, "mcpServers": []any{}})
			e.answer(e.prompt("say:two"))
			if got := e.seen("agent_message_chunk"); !strings.HasSuffix(got, "two") {
				t.Errorf("the editor has seen the messages %q", got)
			}
			if n := len(e.prompts()); n != 2 {
				t.Errorf("the agent got %d prompts", n)
			}
			if code := e.leaves(); code != cli.ExitOK {
				t.Errorf("mooring acp ended with %d: %s", code, e.err.String())
			}
		})
	}
}
