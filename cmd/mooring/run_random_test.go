//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/acpagent"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/seed"
)

func TestPromptsUnderRandomKills(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) { promptsUnderKills(t, database, 8) })
}

// killedRun is a server and a runner as processes, which are killed and started again.
type killedRun struct {
	*runRig
	server, runner *exec.Cmd
	out            *lockbuf.Buffer // of all runners
	kills          map[string]int
}

// serve starts the server's process.
func (k *killedRun) serve() {
	k.t.Helper()
	k.server = exec.Command(mooringProgram(), "serve", "--json", "--listen", "127.0.0.1:0", "--advertise", "mooring://"+k.proxy.Addr(), "--data", k.data())
	if k.database != "" {
		k.server.Args = append(k.server.Args, "--database-url", k.database)
	}
	out, err := k.server.StdoutPipe()
	if err == nil {
		err = k.server.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var started struct{ Listening string }
	if err == nil {
		err = json.Unmarshal(line, &started)
	}
	if err != nil {
		k.t.Fatal("the server did not start: ", err)
	}
	k.proxy.SetTarget(started.Listening)
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// run starts the runner's process.
func (k *killedRun) run() {
	k.runner, k.out = k.asProcess(k.t.Context())
}

// killAgent kills the newest process of the agent.
func (k *killedRun) killAgent() {
	text, _ := os.ReadFile(filepath.Join(k.script.Dir, "pids"))
	pids := strings.Fields(string(text))
	if len(pids) == 0 {
		return
	}
	pid, _ := strconv.Atoi(pids[len(pids)-1])
	if environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); strings.Contains(string(environ), k.script.Dir) {
		k.kills["agent"]++
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// promptsUnderKills asks n prompts, one after the other, while runner, agent and server are killed at random moments. No prompt is
// handed over twice, each has one end, and that says what the agent got.
func promptsUnderKills(t *testing.T, database string, n int) {
	random := rand.New(rand.NewPCG(seed.Of(t), 0))
	r := newCLI(t, database)
	script := acpagent.Script{Dir: t.TempDir(), Load: random.IntN(2) == 0, NoIDs: random.IntN(2) == 0, Resume: random.IntN(2) == 0, Deaf: random.IntN(4) == 0}
	k := &killedRun{runRig: &runRig{cliRig: r, script: script}, kills: map[string]int{}}
	k.session = strings.TrimSpace(r.ok("session", "create", "--owner", r.owner()))
	r.stop()
	k.serve()
	defer func() { kill(k.server) }()
	k.run()
	ids, ended := map[string]string{}, map[string]map[string]any{}
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("say:p%d pause:%dms say:x", i, random.IntN(300))
		ids[fmt.Sprint("p", i)] = texts[i]
	}
	asked := make(chan result, 1)
	go func() { // while the others are killed
		for i, text := range texts {
			if got := k.runIn("", "session", "ask", k.session, "prompt", text, "--id", fmt.Sprint("p", i)); got.code != cli.ExitOK {
				asked <- got
				return
			}
		}
		asked <- result{}
	}()
	read := func() {
		got := k.runIn("", "session", "requests", k.session, "--all", "--json")
		for line := range strings.Lines(got.out) {
			var r map[string]any
			if json.Unmarshal([]byte(line), &r) == nil && (r["state"] == "answered" || r["state"] == "unknown") {
				ended[r["request"].(string)] = r
			}
		}
	}
	for begun := time.Now(); len(ended) < n; read() {
		if time.Since(begun) > time.Duration(n)*20*time.Second {
			t.Fatalf("%d of %d have ended; the runner says %s", len(ended), n, k.out.String())
		}
		time.Sleep(time.Duration(20+random.IntN(500)) * time.Millisecond)
		switch random.IntN(4) {
		case 0:
			k.kills["server"]++
			kill(k.server)
			k.serve()
		case 1:
			k.killAgent()
		case 2:
			k.kills["runner"]++
			kill(k.runner)
			k.run()
		default: // it works for a while
		}
		if k.runner.ProcessState != nil {
			t.Fatalf("the runner has ended: %s", k.out.String())
		}
	}
	if !k.soon(func() bool { return k.out.String() != "" }) {
		t.Fatal("the last runner does not begin")
	}
	if got := <-asked; got.code != cli.ExitOK {
		t.Errorf("a prompt could not be asked: %v", got)
	}
	_ = k.runner.Process.Signal(syscall.SIGTERM)
	if err := k.runner.Wait(); err != nil {
		t.Errorf("the last runner: %v: %s", err, k.out.String())
	}
	k.nothingLeft()
	got := map[string]int{}
	for _, text := range k.prompts() {
		got[text]++
	}
	ends := map[string]int{}
	for id, text := range ids {
		answer := fmt.Sprint(ended[id]["answer"])
		what := fmt.Sprint(ended[id]["state"])
		atLeast, atMost := 1, 1
		switch {
		case what == "unknown":
			atLeast = 0
		case strings.Contains(answer, "did not get it"):
			what, atLeast, atMost = "refused", 0, 0
		case strings.Contains(answer, "error"):
			what = "interrupted"
		}
		ends[what]++
		if got[text] < atLeast || got[text] > atMost {
			t.Errorf("%q ended as %v, and the agent got it %d times", text, ended[id], got[text])
		}
		if m := k.runIn("", "session", "get", k.session, "message/turn_"+id); !strings.Contains(m.out, `"completed":`) {
			t.Errorf("the turn of %q is %s%s", text, m.out, m.err)
		}
	}
	t.Logf("%+v: %d prompts, ends %v, kills %v", script, n, ends, k.kills)
}
