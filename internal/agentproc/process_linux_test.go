package agentproc

// A process is known by its start time on Linux alone.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/until"
)

// TestWhatAKilledRunnerLeft kills a runner, and ends its agent by what it wrote down.
func TestWhatAKilledRunnerLeft(t *testing.T) {
	for _, c := range []struct {
		act      string
		markOnly bool // the runner had no time to write down the process
		doubtful bool
	}{
		{act: "deaf,rest"}, {act: "deaf,fork,rest"}, {act: "deaf,escape,rest"}, {act: "fork,exit"}, {act: "escape,exit"},
		{act: "deaf,escape,fork,rest", markOnly: true}, {act: "deaf,bare,rest"}, {act: "bare,exit", doubtful: true},
	} {
		t.Run(c.act, func(t *testing.T) {
			runner := exec.Command(os.Args[0])
			runner.Env = append(os.Environ(), actVar+"=runner:"+c.act)
			out, err := runner.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := runner.Start(); err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(out)
			if err := runner.Wait(); err == nil || err.Error() != "signal: killed" {
				t.Fatalf("the runner: %v\n%s", err, text)
			}
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			var id Identity
			if err := json.Unmarshal([]byte(lines[0]), &id); err != nil || id.Start == 0 || id.Boot == "" {
				t.Fatalf("%v: %s", err, text)
			}
			pids := []int{id.PID}
			for _, l := range lines[1:] {
				pids = append(pids, pid(t, l))
			}
			if c.act != "deaf,rest" && gone(pids[len(pids)-1]) {
				t.Fatal("nothing is left to be ended")
			}
			if c.markOnly {
				id.PID, id.Start = 0, 0
			}
			if c.doubtful {
				until.True(t, "the leader's end", func() bool { return errors.Is(syscall.Kill(id.PID, 0), syscall.ESRCH) })
				err := EndLeft(id, time.Millisecond)
				if !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), fmt.Sprint(pids[1])) || gone(pids[1]) {
					t.Errorf("a process that may be another's: %v", err)
				}
				_ = syscall.Kill(pids[1], syscall.SIGKILL)
				until.True(t, "its end", func() bool { return gone(pids[1]) })
			}
			if err := EndLeft(id, time.Millisecond); err != nil {
				t.Error(err)
			}
			for _, pid := range pids {
				if !gone(pid) {
					t.Errorf("process %d is left", pid)
				}
			}
		})
	}
}

// TestAnothersNumber has an identity whose number another process has.
func TestAnothersNumber(t *testing.T) {
	p := start(t, "deaf say:here rest", nil)
	readLine(t, p)
	for _, id := range []Identity{
		{Mark: NewMark(), PID: p.Identity().PID, Start: p.Identity().Start - 1, Boot: p.Identity().Boot},
		{Mark: p.Identity().Mark, PID: p.Identity().PID, Start: p.Identity().Start, Boot: "another"},
		NewIdentity(NewMark()), {Mark: "", Boot: p.Identity().Boot},
	} {
		if err := EndLeft(id, time.Millisecond); err != nil {
			t.Error(err)
		}
		if gone(p.Identity().PID) {
			t.Fatalf("%+v ended another's process", id)
		}
	}
}
