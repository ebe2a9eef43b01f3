//go:build unix

package acpagent

// The agent: what it answers, and how it misbehaves.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Env names the variable that has the Script.
const Env = "MOORING_TEST_ACP_AGENT"

// Script says how an agent is.
type Script struct {
	Dir    string // where it keeps what it got: the file prompts has a line for each prompt, pids one for each process
	Load   bool   // it knows session/load, and repeats its history
	Resume bool   // it knows session/resume
	NoIDs  bool   // its history has no ids of messages
	At     string // the method at which it does What
	What   string // die, hang, refuse, rubbish, auth, version, flood
	Auth   bool   // it opens no session before authenticate
	Deaf   bool   // it ignores SIGTERM and the end of its standard input
}

// Environ returns the variable of an environment for this agent.
func (s Script) Environ() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return Env + "=" + string(text)
}

type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  any             `json:"error,omitempty"`
}

type agent struct {
	Script
	in     *bufio.Scanner
	asked  int
	cancel bool
}

// Main is the agent, if the environment has a Script; it then does not return.
func Main() {
	text := os.Getenv(Env)
	if text == "" {
		return
	}
	a := &agent{in: bufio.NewScanner(os.Stdin)}
	a.in.Buffer(nil, 32<<20)
	if err := json.Unmarshal([]byte(text), &a.Script); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	a.note("pids", fmt.Sprint(os.Getpid()))
	if a.Deaf {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	}
	for a.in.Scan() {
		var m message
		if json.Unmarshal(a.in.Bytes(), &m) == nil && m.Method != "" {
			a.handle(m)
		}
	}
	if a.Deaf {
		hang()
	}
	os.Exit(0)
}

// note adds a line to a file of the agent.
func (a *agent) note(name, line string) {
	f, err := os.OpenFile(filepath.Join(a.Dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, line)
		_ = f.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

func write(m map[string]any) {
	m["jsonrpc"] = "2.0"
	text, err := json.Marshal(m)
	if err == nil {
		_, err = os.Stdout.Write(append(text, '\n'))
	}
	if err != nil {
		os.Exit(3)
	}
}

func (a *agent) answer(m message, result any) {
	if m.ID != nil {
		write(map[string]any{"id": m.ID, "result": result})
	}
}

func update(u map[string]any) {
	write(map[string]any{"method": "session/update", "params": map[string]any{"sessionId": "agent-session", "update": u}})
}

func say(text string) {
	update(map[string]any{"sessionUpdate": "agent_message_chunk", "content": map[string]string{"type": "text", "text": text}})
}

// misbehave does what the script says.
func (a *agent) misbehave(m message, what string) {
	switch what {
	case "die":
		fmt.Fprintln(os.Stderr, "cannot go on: out of ideas")
		os.Exit(9)
	case "hang":
		hang()
	case "refuse":
		write(map[string]any{"id": m.ID, "error": map[string]any{"code": -32603, "message": "I would rather not"}})
	case "auth":
		write(map[string]any{"id": m.ID, "error": map[string]any{"code": -32000, "message": "log in"}})
	case "version":
		a.answer(m, map[string]any{"protocolVersion": 7})
	case "wrong":
		a.answer(m, []int{1})
	case "rubbish":
		for {
			fmt.Println("Welcome to the agent! {")
		}
	case "flood":
		for {
			say(strings.Repeat("flood ", 2000))
		}
	}
}

func (a *agent) handle(m message) {
	if a.At == m.Method {
		a.misbehave(m, a.What)
		return
	}
	switch m.Method {
	case "initialize":
		a.note("clients", string(m.Params))
		session := map[string]any{}
		if a.Resume {
			session["resume"] = map[string]any{}
		}
		a.answer(m, map[string]any{"protocolVersion": 1, "agentInfo": map[string]string{"name": "tester", "version": "1"},
			"agentCapabilities": map[string]any{"loadSession": a.Load, "sessionCapabilities": session, "promptCapabilities": map[string]bool{"image": true}},
			"authMethods":       []map[string]string{{"id": "key", "name": "A key"}}})
	case "authenticate":
		a.note("authenticated", string(m.Params))
		a.answer(m, map[string]any{})
	case "session/new", "session/load", "session/resume":
		if _, err := os.Stat(filepath.Join(a.Dir, "authenticated")); a.Auth && err != nil {
			a.misbehave(m, "auth")
			return
		}
		if m.Method == "session/load" {
			a.history()
		}
		a.note("opened", m.Method)
		a.note("params", string(m.Params))
		a.answer(m, map[string]any{"sessionId": "agent-session"})
	case "session/prompt":
		a.prompt(m)
	case "session/cancel":
		a.cancel = true
	case "session/set_mode", "_test/echo":
		a.answer(m, map[string]any{"got": m.Params})
	case "_test/note":
		a.note("notes", string(m.Params))
	default:
		if m.ID == nil {
			return
		}
		write(map[string]any{"id": m.ID, "error": map[string]any{"code": -32601, "message": "no " + m.Method}})
	}
}

// history repeats the prompts that the agent got.
func (a *agent) history() {
	text, _ := os.ReadFile(filepath.Join(a.Dir, "prompts"))
	for line := range strings.Lines(string(text)) {
		id, said, _ := strings.Cut(strings.TrimSpace(line), " ")
		u := map[string]any{"sessionUpdate": "user_message_chunk", "content": map[string]string{"type": "text", "text": said}}
		if !a.NoIDs {
			u["messageId"] = id
		}
		update(u)
		say("as before")
	}
}

// prompt does what the words of the prompt say.
func (a *agent) prompt(m message) {
	var p struct {
		MessageID string
		Prompt    []struct{ Text string }
	}
	_ = json.Unmarshal(m.Params, &p)
	text := p.Prompt[0].Text
	a.note("prompts", p.MessageID+" "+text)
	a.cancel = false
	for word := range strings.FieldsSeq(text) {
		verb, arg, _ := strings.Cut(word, ":")
		switch verb {
		case "say":
			say(arg)
		case "think":
			update(map[string]any{"sessionUpdate": "agent_thought_chunk", "content": map[string]string{"type": "text", "text": arg}})
		case "ask":
			a.ask(arg)
		case "wait": // until it is cancelled
			for !a.cancel && a.in.Scan() {
				var c message
				if json.Unmarshal(a.in.Bytes(), &c) == nil && c.Method == "session/cancel" {
					a.cancel = true
				}
			}
		case "pause":
			d, _ := time.ParseDuration(arg)
			time.Sleep(d)
		case "fork":
			child := exec.Command("sleep", "1000")
			child.SysProcAttr = &syscall.SysProcAttr{Setsid: arg == "away"}
			if child.Start() == nil {
				a.note("pids", fmt.Sprint(child.Process.Pid))
			}
		case "noise":
			for range 20 {
				fmt.Println("npm warn deprecated")
			}
		case "late":
			a.answer(m, map[string]any{"stopReason": "end_turn"})
			say("one-more-thing")
			a.answer(m, map[string]any{"stopReason": "end_turn"})
			return
		case "file": // it was told that there are no files
			write(map[string]any{"id": "f1", "method": "fs/write_text_file", "params": map[string]string{"path": "/x", "content": "y"}})
			for a.in.Scan() {
				if strings.Contains(a.in.Text(), "-32601") {
					say("no-files")
					break
				}
			}
		case "read": // a file of the editor's
			write(map[string]any{"id": "r1", "method": "fs/read_text_file", "params": map[string]any{"sessionId": "agent-session", "path": arg, "_meta": map[string]int{"n": 1}}})
			for a.in.Scan() {
				if r := a.in.Text(); strings.Contains(r, `"r1"`) {
					say("[" + r + "]")
					break
				}
			}
		case "odd": // an update with what nobody knows
			update(map[string]any{"sessionUpdate": "agent_message_chunk", "content": map[string]any{"type": "text", "text": "<odd>", "annotations": map[string]int{"x": 1}}, "_meta": map[string]any{"deep": []int{1, 2}}, "later": "yes"})
			update(map[string]any{"sessionUpdate": "of_a_later_version", "what": 1e3})
			write(map[string]any{"method": "_test/says", "params": map[string]any{"sessionId": "agent-session", "hm": true}})
		case "long": // lines that are too long, and some that are just not
			for range 5 {
				say(strings.Repeat("x", 17<<20))
				update(map[string]any{"sessionUpdate": "tool_call", "toolCallId": "big", "title": "big", "rawInput": strings.Repeat("[],", 5<<20)})
				update(map[string]any{"sessionUpdate": "tool_call", "toolCallId": "big", "rawInput": make([]struct{}, 4<<20)})
			}
		case "die", "hang", "refuse", "rubbish", "flood", "wrong":
			a.misbehave(m, verb)
			if verb != "rubbish" {
				return
			}
		}
	}
	reason := "end_turn"
	if a.cancel {
		reason = "cancelled"
	}
	a.answer(m, map[string]any{"stopReason": reason, "usage": map[string]int{"inputTokens": 10, "outputTokens": 2, "totalTokens": 12}})
}

// ask asks for permission to run a command, and says what the answer was.
func (a *agent) ask(command string) {
	a.asked++
	call := fmt.Sprintf("call_%d", a.asked)
	update(map[string]any{"sessionUpdate": "tool_call", "toolCallId": call, "title": command, "kind": "execute", "status": "pending", "rawInput": map[string]string{"command": command}})
	write(map[string]any{"id": 1000 + a.asked, "method": "session/request_permission", "params": map[string]any{"sessionId": "agent-session",
		"toolCall": map[string]any{"toolCallId": call}, "options": []map[string]string{{"optionId": "once", "name": "Allow once", "kind": "allow_once"},
			{"optionId": "always", "name": "Always", "kind": "allow_always"}, {"optionId": "no", "name": "Reject", "kind": "reject_once"}}}})
	for a.in.Scan() {
		var r struct {
			Method string
			Result *struct {
				Outcome struct{ Outcome, OptionID string }
			}
		}
		if json.Unmarshal(a.in.Bytes(), &r) != nil {
			continue
		}
		if r.Method == "session/cancel" {
			a.cancel = true
		}
		if r.Result != nil {
			say("[" + command + ":" + r.Result.Outcome.Outcome + ":" + r.Result.Outcome.OptionID + "]")
			status := "completed"
			if r.Result.Outcome.OptionID != "once" {
				status = "failed"
			}
			update(map[string]any{"sessionUpdate": "tool_call_update", "toolCallId": call, "status": status})
			return
		}
	}
	os.Exit(0)
}
