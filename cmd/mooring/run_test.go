//go:build unix

// mooring run, with an agent that does as it is told.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// runRig is a run of an agent.
type runRig struct {
	*cliRig
	session string
	script  acpagent.Script
	err     *lockbuf.Buffer
	cancel  context.CancelFunc
	ended   chan int
}

// runs starts mooring run with a scripted agent.
func (r *cliRig) runs(script acpagent.Script, flags ...string) *runRig {
	r.t.Helper()
	if script.Dir == "" {
		script.Dir = r.t.TempDir()
	}
	g := &runRig{cliRig: r, script: script}
	g.begin(append([]string{"--owner", r.owner()}, flags...)...)
	return g
}

// agentCommand is the agent's command line.
func (g *runRig) agentCommand() []string { return []string{"env", g.script.Environ(), scriptedAgent()} }

func (g *runRig) begin(flags ...string) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var out lockbuf.Buffer
	g.err, g.cancel, g.ended = &lockbuf.Buffer{}, cancel, make(chan int, 1)
	args := append([]string{"run", "--home", g.home()}, flags...)
	args = append(append(args, "--"), g.agentCommand()...)
	ended := g.ended
	go func() { ended <- runContext(ctx, args, strings.NewReader(""), &out, g.err) }()
	g.t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			g.t.Error("the run does not end")
		}
		g.nothingLeft()
	})
	if !g.soon(func() bool { return strings.HasSuffix(out.String(), "\n") || len(ended) > 0 }) || out.String() == "" {
		g.t.Fatalf("the run did not begin: %s", g.err.String())
	}
	g.session = strings.TrimSpace(out.String())
}

// end ends the run, and returns its exit code.
func (g *runRig) end() int {
	g.cancel()
	code := <-g.ended
	g.ended <- code
	return code
}

// nothingLeft checks that no process of the agent runs.
func (g *runRig) nothingLeft() {
	g.t.Helper()
	text, _ := os.ReadFile(filepath.Join(g.script.Dir, "pids"))
	for line := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			g.t.Fatal(err)
		}
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && !strings.Contains(string(stat), ") Z ") {
			g.t.Errorf("process %d of the agent is left", pid)
		}
	}
}

// prompts are the prompts that the agent got.
func (g *runRig) prompts() (texts []string) {
	text, _ := os.ReadFile(filepath.Join(g.script.Dir, "prompts"))
	for line := range strings.Lines(string(text)) {
		_, said, _ := strings.Cut(strings.TrimSpace(line), " ")
		texts = append(texts, said)
	}
	return texts
}

// ask asks a prompt, and returns its id.
func (g *runRig) ask(text string, flags ...string) string {
	g.t.Helper()
	return strings.TrimSpace(g.ok(append([]string{"session", "ask", g.session, "prompt", text}, flags...)...))
}

// requests are the session's requests.
func (g *runRig) requests() (list []map[string]any) {
	g.t.Helper()
	for line := range strings.Lines(g.ok("session", "requests", g.session, "--all", "--json")) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			g.t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// until waits until a request of a kind is in a state, and returns it.
func (g *runRig) until(kind, state, id string) map[string]any {
	g.t.Helper()
	var found map[string]any
	if !g.soon(func() bool {
		for _, r := range g.requests() {
			if r["kind"] == kind && r["state"] == state && (id == "" || r["request"] == id) {
				found = r
				return true
			}
		}
		return false
	}) {
		g.t.Fatalf("no %s became %s: %v; the run says %s", kind, state, g.requests(), g.err.String())
	}
	return found
}

// value is the value of a key of the session.
func (g *runRig) value(key string) string {
	g.t.Helper()
	return g.ok("session", "get", g.session, key)
}

func TestRunStory(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	phone := filepath.Join(r.dir, "phone.ref")
	g := r.runs(acpagent.Script{}, "--share-to", phone)
	id := strings.TrimSpace(r.ok("session", "ask", "@"+phone, "prompt", "think:hm say:before ask:make say:after file"))
	p := g.until("permission", "open", "")
	if text := fmt.Sprint(p["payload"]); !strings.Contains(text, "make") || p["message"] != "turn_"+id {
		t.Errorf("the permission is %v", p)
	}
	r.ok("session", "answer", "@"+phone, p["request"].(string), "once")
	done := g.until("prompt", "answered", id)
	if text := fmt.Sprint(done["answer"]); !strings.Contains(text, "end_turn") || !strings.Contains(text, "no-files") {
		t.Errorf("the answer is %v", done)
	}
	for key, want := range map[string]string{
		"message/turn_" + id: `"input":10`, "message/user_" + id: `"role":"user"`, "agent": `"state":"ready"`, "session": `"title":"think:hm`,
		"part/turn_" + id + "/prt_000001": `"type":"reasoning"`, "part/turn_" + id + "/prt_000002": `"text":"before"`,
		"part/turn_" + id + "/prt_000003": `"status":"completed"`, "part/turn_" + id + "/prt_000004": `[make:selected:once]afterno-files`,
	} {
		if got := g.value(key); !strings.Contains(got, want) {
			t.Errorf("%s is %s, without %s", key, got, want)
		}
	}
	stopped := g.ask("say:a wait")
	g.until("prompt", "claimed", stopped)
	if !g.soon(func() bool { return strings.Contains(g.value("message/turn_"+stopped), "role") }) {
		t.Fatal("no turn")
	}
	g.ok("session", "ask", g.session, "stop", "--message", "turn_"+stopped)
	if done := g.until("prompt", "answered", stopped); !strings.Contains(fmt.Sprint(done["answer"]), "cancelled") {
		t.Errorf("the answer is %v", done)
	}
	g.fails(cli.ExitRefused, "was stopped before the agent was done", "session", "ask", g.session, "prompt", "say:a wait", "--id", stopped, "--wait")
	if got := g.prompts(); len(got) != 2 {
		t.Errorf("the agent got %q", got)
	}
	if code := g.end(); code != cli.ExitOK {
		t.Errorf("the run ended with %d: %s", code, g.err.String())
	}
	g.nothingLeft()
	if got := g.value("agent"); !strings.Contains(got, `"state":"ended"`) {
		t.Errorf("the agent is %s", got)
	}
	// The agent has ended: a prompt that it had taken waits for none, and another does.
	if got := g.runIn("", "session", "ask", g.session, "prompt", "later", "--expires", "1s", "--wait"); !strings.Contains(got.err, "no agent runs for the session at present") || !strings.Contains(got.err, "expired") {
		t.Errorf("of a prompt that nobody takes it says %s", got.err)
	}
	if got := g.runIn("", "session", "ask", g.session, "prompt", "say:a wait", "--id", stopped, "--wait"); strings.Contains(got.err, "no agent runs") {
		t.Errorf("of a prompt that was answered it says %s", got.err)
	}
}

// TestRunGoesOnWithOthersSessions has a session with a title and a message of somebody else's, and two runs that are spoken to
// unasked.
func TestRunGoesOnWithOthersSessions(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	g := &runRig{cliRig: r, script: acpagent.Script{Dir: t.TempDir()}, session: strings.TrimSpace(r.ok("session", "create", "--owner", r.owner()))}
	g.okIn(`{"method":"put","key":"session","payload":{"title":"Theirs"}}`, "session", "append", g.session, "--wait")
	for i := range 2 {
		g.begin("--session", g.session)
		id := g.ask("late")
		g.until("prompt", "answered", id)
		if !g.soon(func() bool {
			return strings.Count(g.ok("session", "ls", g.session, "message/"), "unasked_") == i+1
		}) {
			t.Errorf("what was said unasked is not there: %s", g.ok("session", "ls", g.session))
		}
		if code := g.end(); code != cli.ExitOK {
			t.Errorf("the run ended with %d: %s", code, g.err.String())
		}
	}
	if got := g.value("session"); !strings.Contains(got, "Theirs") {
		t.Errorf("the session's value is %s", got)
	}
}
