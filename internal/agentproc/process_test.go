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
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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
