//go:build unix

package main

// An editor, as a test drives it: it is on the pipes of a process of mooring acp.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mooring-rpc/mooring/internal/acpagent"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// editorMessage is a message that an editor gets.
type editorMessage struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
	}
}

// editor is an editor with its process of mooring acp.
type editor struct {
	*runRig
	dir   string // the project
	crash string // the step at which mooring acp is killed; "": none
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *os.File // unread while stopped

	mu      sync.Mutex
	msgs    []editorMessage
	reading *os.File
	gate    sync.Mutex    // who has it keeps the editor from reading on
	changed chan struct{} // closed and made anew when there is a message
	closed  bool
	calls   int
	seenIDs []string // of requests that asked has returned
}

// edits starts an editor's process for a scripted agent; it has said nothing yet.
func (r *cliRig) edits(script acpagent.Script, flags ...string) *editor {
	r.t.Helper()
	if script.Dir == "" {
		script.Dir = r.t.TempDir()
	}
	e := &editor{runRig: &runRig{cliRig: r, script: script, err: &lockbuf.Buffer{}}, dir: r.t.TempDir()}
	e.start(append([]string{"--owner", r.owner()}, flags...)...)
	return e
}

func (e *editor) start(flags ...string) {
	e.t.Helper()
	args := append([]string{"acp", "--home", e.home()}, flags...)
	e.cmd = exec.Command(mooringProgram(), append(append(args, "--"), e.agentCommand()...)...)
	e.cmd.Env = append(os.Environ(), crashpoint.Env+"="+e.crash)
	e.cmd.Stderr = e.err
	in, err := e.cmd.StdinPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		e.t.Fatal(err)
	}
	e.cmd.Stdout = theirs
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	_ = theirs.Close()
	e.mu.Lock()
	e.in, e.out, e.msgs, e.changed, e.closed, e.seenIDs = in, out, nil, make(chan struct{}), false, nil
	e.mu.Unlock()
	cmd := e.cmd
	e.t.Cleanup(func() {
		_ = in.Close()
		if cmd.ProcessState == nil {
			kill(cmd)
		}
		_ = out.Close()
	})
}

// reads has the editor read what it is sent.
func (e *editor) reads() {
	out := e.out
	e.mu.Lock()
	reading := e.reading
	e.reading = out
	e.mu.Unlock()
	if reading == out {
		return
	}
	go func() {
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			e.gate.Lock()
			var m editorMessage
			if err == nil && json.Unmarshal(line, &m) != nil {
				e.t.Errorf("the editor gets what is no message: %q", line)
			}
			e.mu.Lock()
			switch {
			case e.out != out: // of a process before
			case err != nil:
				e.closed = true
			default:
				e.msgs = append(e.msgs, m)
			}
			close(e.changed)
			e.changed = make(chan struct{})
			e.mu.Unlock()
			e.gate.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

// wait waits until one of the messages is as wanted, and returns it.
func (e *editor) wait(what string, wanted func(m editorMessage) bool) editorMessage {
	e.t.Helper()
	limit := time.After(60 * time.Second)
	for {
		e.mu.Lock()
		msgs, changed, closed := e.msgs, e.changed, e.closed
		e.mu.Unlock()
		for _, m := range msgs {
			if wanted(m) {
				return m
			}
		}
		if closed {
			e.t.Fatalf("the connection is over, without %s: %s", what, e.err.String())
		}
		select {
		case <-changed:
		case <-limit:
			e.t.Fatalf("no %s: the editor got %s; mooring says %s", what, e.texts(), e.err.String())
		}
	}
}

func (e *editor) texts() string {
	var all strings.Builder
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.msgs {
		fmt.Fprintf(&all, "\n%s %s %s%s %+v", m.ID, m.Method, m.Params, m.Result, m.Error)
	}
	return all.String()
}

// seen returns the texts of the session's chunks of a kind so far, together, without that a slow server is waited for.
func (e *editor) seen(kind string) string {
	var all strings.Builder
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.msgs {
		var p struct {
			Update struct {
				SessionUpdate string
				Content       struct{ Text string }
			}
		}
		if m.Method == "session/update" && json.Unmarshal(m.Params, &p) == nil && p.Update.SessionUpdate == kind && !strings.HasPrefix(p.Update.Content.Text, "\n[mooring] Mooring's server") {
			all.WriteString(p.Update.Content.Text)
		}
	}
	return all.String()
}

// line writes a line.
func (e *editor) line(text string) {
	e.t.Helper()
	if _, err := io.WriteString(e.in, text+"\n"); err != nil {
		e.t.Fatalf("write to mooring acp: %v: %s", err, e.err.String())
	}
}

func (e *editor) write(m map[string]any) {
	e.t.Helper()
	m["jsonrpc"] = "2.0"
	text, err := json.Marshal(m)
	if err != nil {
		e.t.Fatal(err)
	}
	e.line(string(text))
}

// send sends a request, and returns its id.
func (e *editor) send(method string, params any) string {
	e.t.Helper()
	e.calls++
	id := fmt.Sprintf("%q", fmt.Sprint("call-", e.calls))
	e.write(map[string]any{"id": json.RawMessage(id), "method": method, "params": params})
	return id
}

// answer waits for the answer to a request.
func (e *editor) answer(id string) editorMessage {
	e.t.Helper()
	return e.wait("answer to "+id, func(m editorMessage) bool { return m.Method == "" && string(m.ID) == id })
}

// call sends a request that is to succeed, and returns its result.
func (e *editor) call(method string, params any) string {
	e.t.Helper()
	m := e.answer(e.send(method, params))
	if m.Error != nil {
		e.t.Fatalf("%s: %+v: %s", method, m.Error, e.err.String())
	}
	return string(m.Result)
}

// refused sends a request that is to fail.
func (e *editor) refused(words, method string, params any) {
	e.t.Helper()
	if m := e.answer(e.send(method, params)); m.Error == nil || !strings.Contains(m.Error.Message, words) {
		e.t.Errorf("%s: %s %+v, without %q", method, m.Result, m.Error, words)
	}
}

func (e *editor) initialize() string {
	e.t.Helper()
	e.reads()
	return e.call("initialize", map[string]any{"protocolVersion": 1, "clientInfo": map[string]string{"name": "tester", "version": "3"},
		"clientCapabilities": map[string]any{"fs": map[string]bool{"readTextFile": true}, "_meta": map[string]bool{"of": true}}})
}

// opens starts a session.
func (e *editor) opens() *editor {
	e.t.Helper()
	e.initialize()
	e.session = e.newSession()
	return e
}

func (e *editor) newSession() string {
	e.t.Helper()
	var opened struct{ SessionID string }
	if err := json.Unmarshal([]byte(e.call("session/new", map[string]any{"cwd": e.dir, "mcpServers": []any{}})), &opened); err != nil || !strings.HasPrefix(opened.SessionID, "ses_") {
		e.t.Fatalf("the session is %q: %v", opened.SessionID, err)
	}
	return opened.SessionID
}

func (e *editor) load() string {
	e.t.Helper()
	return e.call("session/load", map[string]any{"sessionId": e.session, "cwd": e.dir, "mcpServers": []any{}})
}

// prompt sends a prompt, and returns the id of the call.
func (e *editor) prompt(text string) string {
	e.t.Helper()
	return e.send("session/prompt", map[string]any{"sessionId": e.session, "prompt": []any{map[string]string{"type": "text", "text": text}}})
}

// ends waits for the end of the process, and returns its exit code.
func (e *editor) ends() int {
	e.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- e.cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		e.t.Errorf("mooring acp does not end: %s", e.err.String())
		_ = e.cmd.Process.Signal(syscall.SIGQUIT)
		<-ended
	}
	e.nothingLeft()
	return e.cmd.ProcessState.ExitCode()
}

// leaves closes the editor's side.
func (e *editor) leaves() int {
	e.t.Helper()
	_ = e.in.Close()
	return e.ends()
}

// noted are the lines of a file of the agent.
func (e *editor) noted(name string) string {
	text, _ := os.ReadFile(filepath.Join(e.script.Dir, name))
	return string(text)
}

// asked waits for a request of the agent that the editor was not asked before.
func (e *editor) asked(method string) editorMessage {
	e.t.Helper()
	m := e.wait("request "+method, func(m editorMessage) bool { return m.Method == method && !slices.Contains(e.seenIDs, string(m.ID)) })
	e.seenIDs = append(e.seenIDs, string(m.ID))
	return m
}

// allows answers a permission that the editor was asked for.
func (e *editor) allows(m editorMessage, option string) {
	e.t.Helper()
	e.write(map[string]any{"id": m.ID, "result": map[string]any{"outcome": map[string]string{"outcome": "selected", "optionId": option}}})
}
