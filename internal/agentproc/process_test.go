//go:build unix

package agentproc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/until"
)

// start starts an agent that does act.
func start(t *testing.T, act string, change func(*Config)) *Process {
	t.Helper()
	cfg := Config{Command: []string{os.Args[0]}, Env: append(os.Environ(), actVar+"="+act), Mark: NewMark(), Grace: 50 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	p, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, p) })
	return p
}

func end(t *testing.T, p *Process) {
	t.Helper()
	read := make(chan struct{})
	go func() {
		defer close(read)
		for err := error(nil); err == nil || err == ErrLongLine; _, err = p.ReadLine() {
		}
	}()
	if err := p.End(context.Background()); err != nil {
		t.Error(err)
	}
	<-read
}

// readLine reads a line.
func readLine(t *testing.T, p *Process) string {
	t.Helper()
	b, err := p.ReadLine()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func pid(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// gone reports whether a process runs no more. A zombie that nobody waits for does not run.
func gone(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		return bytes.Contains(stat[bytes.LastIndexByte(stat, ')'):], []byte(" Z "))
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestLines(t *testing.T) {
	p := start(t, "echo complain", func(c *Config) { c.Grace = time.Minute }) // it ends by itself
	wrote := make(chan error, 2)
	for _, s := range []string{"one", ""} {
		if err := p.Send([]byte(s), func(err error) { wrote <- err }); err != nil {
			t.Fatal(err)
		}
		if got := readLine(t, p); got != s {
			t.Errorf("%q came back as %q", s, got)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	}
	end(t, p)
	if got := p.ExitText(); got != "exit status 0" {
		t.Error(got)
	}
	if s := p.Stderr(); !strings.HasSuffix(s, "complaint 1999\n") || !strings.HasPrefix(s, "complaint ") || len(s) > 16<<10 {
		t.Errorf("%d bytes of standard error: %.40q…", len(s), s)
	}
	if err := p.Send([]byte("late"), nil); err == nil {
		t.Error("a line was taken after the end")
	}
}

func TestLongLinesAreLeftOut(t *testing.T) {
	p := start(t, "say:a long say:b part:c", func(c *Config) { c.MaxLine = 1000 })
	if got := readLine(t, p); got != "a" {
		t.Error(got)
	}
	if _, err := p.ReadLine(); err != ErrLongLine {
		t.Error(err)
	}
	if got := readLine(t, p); got != "b" {
		t.Error(got)
	}
	if got, err := p.ReadLine(); err != io.EOF {
		t.Errorf("a line that is cut off: %q, %v", got, err)
	}
}

func TestNoSuchProgram(t *testing.T) {
	if _, err := Start(Config{Command: []string{"/nowhere/agent"}, Mark: NewMark()}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	p := start(t, "exit", nil)
	<-p.Exited()
	if got := p.ExitText(); got != "exit status 7" {
		t.Error(got)
	}
}

// TestItReadsNothing has an agent that does not read: what waits for it is bounded, and so is the wait.
func TestItReadsNothing(t *testing.T) {
	p := start(t, "rest", func(c *Config) { c.WriteWait = 20 * time.Millisecond })
	failed := make(chan error, 10)
	if err := p.Send(bytes.Repeat([]byte("x"), queuedBytes), func(err error) { failed <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != ErrStuck {
		t.Error(err)
	}
	if err := p.Send([]byte("x"), nil); err != ErrStuck {
		t.Error(err)
	}
	p = start(t, "rest", nil)
	var err error
	n := 0
	for ; err == nil; n++ {
		err = p.Send(bytes.Repeat([]byte("x"), 1<<20), nil)
	}
	if err != ErrStuck || n > queuedBytes>>20+3 {
		t.Errorf("after %d lines: %v", n, err)
	}
}

// TestNothingIsLeft ends agents that do not want to end.
func TestNothingIsLeft(t *testing.T) {
	acts := []string{"rest", "deaf rest", "fork rest", "deaf fork fork rest", "fork exit", "deaf flood", "fork:flood rest"}
	if runtime.GOOS == "linux" {
		acts = append(acts, "deaf escape rest", "escape:escape exit", "bare rest")
	}
	for _, act := range acts {
		t.Run(act, func(t *testing.T) {
			p := start(t, act, nil)
			pids := []int{p.Identity().PID}
			for range strings.Count(act, "fork") + strings.Count(act, "escape") + strings.Count(act, "bare") {
				if l := readLine(t, p); !strings.HasPrefix(l, "y") {
					pids = append(pids, pid(t, l))
				}
			}
			end(t, p)
			for _, pid := range pids {
				if !gone(pid) {
					t.Errorf("process %d is left", pid)
				}
			}
		})
	}
}

// startAndDie is a runner that is killed: it prints the identity of the agent that it started, and what that printed.
func startAndDie(act string) {
	os.Setenv(actVar, act)
	p, err := Start(Config{Command: []string{os.Args[0]}, Mark: NewMark()})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _ := json.Marshal(p.Identity())
	fmt.Println(string(text))
	for range strings.Count(act, "fork") + strings.Count(act, "escape") + strings.Count(act, "bare") {
		l, _ := p.ReadLine()
		fmt.Println(string(l))
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// TestWhatAKilledRunnerLeft kills a runner, and ends its agent by what it wrote down.
func TestWhatAKilledRunnerLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a process is known by its start time on Linux alone")
	}
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
	if runtime.GOOS != "linux" {
		t.Skip("a process is known by its start time on Linux alone")
	}
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
