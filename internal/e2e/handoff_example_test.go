package e2e

// The example of one agent that gives tasks to another, with both killed at random.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/seed"
)

func TestHandoffExample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := buildExample(t, dir, "handoff")
	startServer(t, serverConfig{Data: filepath.Join(dir, "srv")})
	run := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(bounded(t), program, args...)
		cmd.Dir, cmd.Env = dir, environment("")
		return cmd
	}
	if out, err := run("new", "srv/owner.ref", "lead.ref", "worker.ref").CombinedOutput(); err != nil {
		t.Fatalf("new: %v\n%s", err, out)
	}
	var tasks []string
	for i := range 40 {
		tasks = append(tasks, fmt.Sprint("task-", i))
	}
	rnd := rand.New(rand.NewPCG(seed.Of(t), 0))
	// keepRunning runs the program until it ends by itself, and kills it some times.
	keepRunning := func(kills []time.Duration, args ...string) string {
		for i := 0; ; i++ {
			cmd := run(args...)
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return ""
			}
			if i < len(kills) {
				kill := time.AfterFunc(kills[i], func() { _ = cmd.Process.Kill() })
				defer kill.Stop()
			}
			if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
				if err != nil {
					t.Errorf("%v: %v\n%s", args, err, out.String())
				}
				return out.String()
			}
		}
	}
	kills := func(n int) (list []time.Duration) {
		for range n {
			list = append(list, time.Duration(50+rnd.IntN(400))*time.Millisecond)
		}
		return list
	}
	ofLead, ofBob, ofCyd := kills(4), kills(8), kills(8)
	var workers sync.WaitGroup
	stop := make(chan struct{})
	for name, kills := range map[string][]time.Duration{"bob": ofBob, "cyd": ofCyd} {
		workers.Go(func() {
			for i := 0; ; i++ {
				cmd := run("work", "worker.ref", name)
				var out strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &out
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				var killed <-chan time.Time
				if i < len(kills) {
					killed = time.After(kills[i])
				}
				select {
				case <-stop:
					_ = cmd.Process.Signal(os.Interrupt)
					if err := <-ended; err != nil {
						t.Errorf("work %s, stopped: %v\n%s", name, err, out.String())
					}
					return
				case <-killed:
					_ = cmd.Process.Kill()
					<-ended
				case err := <-ended:
					t.Errorf("work %s ended: %v\n%s", name, err, out.String())
				}
			}
		})
	}
	said := keepRunning(ofLead, append([]string{"ask", "lead.ref", "ann"}, tasks...)...)
	close(stop)
	workers.Wait()

	var done []string
	begun := map[string]bool{} // and not known to be done
	for _, name := range []string{"bob", "cyd"} {
		text, _ := os.ReadFile(filepath.Join(dir, name+"-done"))
		done = append(done, strings.Fields(string(text))...)
		journal, _ := os.ReadFile(filepath.Join(dir, name+"-journal"))
		for line := range strings.Lines(string(journal)) {
			what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			id, _, _ := strings.Cut(rest, " ")
			begun[id] = what == "begun"
		}
	}
	slices.Sort(done)
	if twice := len(done) - len(slices.Compact(slices.Clone(done))); twice > 0 {
		t.Errorf("%d tasks were done twice: %v", twice, done)
	}
	lines := splitLines(said)
	if len(lines) != len(tasks) {
		t.Fatalf("the lead says\n%s", said)
	}
	unknown := 0
	for i, line := range lines {
		task, end, _ := strings.Cut(line, ": ")
		did := slices.Contains(done, task)
		switch {
		case task != tasks[i]:
			t.Errorf("line %d is %q", i, line)
		case strings.HasPrefix(end, "answered ") && did:
		case strings.HasPrefix(end, "unknown ") && begun[fmt.Sprint("ann-", i+1)]:
			unknown++
		default:
			t.Errorf("%s, and it was done: %v", line, did)
		}
	}
	t.Logf("%d tasks over 20 kills: %d are unknown", len(tasks), unknown)
}
