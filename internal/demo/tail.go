// The second agent, which follows the session live.

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// tail is the second agent following the session live: a running
// "session tail --follow", read line by line.
type tail struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan struct{} // closed when the process has ended

	mu      sync.Mutex
	cursors []uint64
	lines   []string
	err     error
}

// follow starts the tail from the log's beginning.
func (w *world) follow(ctx context.Context, ref string) (*tail, error) {
	args := []string{"session", "tail", ref, "--from", "0", "--follow"}
	t := &tail{cmd: exec.CommandContext(ctx, w.bin, append([]string{"--home", w.viewerHome()}, args...)...), done: make(chan struct{})}
	t.cmd.Stderr = &t.stderr
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	w.tails = append(w.tails, t)
	go func() {
		defer close(t.done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			first, _, _ := strings.Cut(lines.Text(), "\t")
			cursor, err := strconv.ParseUint(first, 10, 64)
			t.mu.Lock()
			if err != nil && t.err == nil {
				t.err = fmt.Errorf("a line of the tail begins with no cursor: %w", err)
			}
			t.cursors = append(t.cursors, cursor)
			t.lines = append(t.lines, lines.Text())
			t.mu.Unlock()
		}
		_ = t.cmd.Wait() // its exit is read from ProcessState
	}()
	w.page.ran(w.short(args), "(goes on in the background)", "")
	return t, nil
}

// reached waits until the tail has shown cursor c.
func (t *tail) reached(ctx context.Context, c uint64) error {
	return poll(ctx, fmt.Sprintf("the tail to show cursor %d", c), func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return len(t.cursors) > 0 && t.cursors[len(t.cursors)-1] >= c
	})
}

// gapless says whether the tail has shown 1, 2, 3 … c and nothing else.
func (t *tail) gapless(c uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	if uint64(len(t.cursors)) != c {
		return fmt.Errorf("the tail showed %d events, the session has %d", len(t.cursors), c)
	}
	for i, got := range t.cursors {
		if got != uint64(i)+1 {
			return fmt.Errorf("the tail's event %d has cursor %d", i+1, got)
		}
	}
	return nil
}

// shown is all that the tail has printed.
func (t *tail) shown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// ended waits for the tail to end and gives its last words.
func (t *tail) ended(ctx context.Context) (string, error) {
	select {
	case <-t.done:
	case <-ctx.Done():
		return "", errors.New("the live tail did not end")
	}
	lines := strings.Split(strings.TrimSpace(t.stderr.String()), "\n")
	last := lines[len(lines)-1]
	if t.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(last, "revoked") {
		return "", fmt.Errorf("the tail ended with code %d and %q, not as revoked", t.cmd.ProcessState.ExitCode(), last)
	}
	return last, nil
}

func (t *tail) stop() {
	if t.cmd.Process != nil {
		_ = t.cmd.Process.Kill()
	}
	<-t.done
}
