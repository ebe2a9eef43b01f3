package e2e

// The CLI as a user has it: a command, its output and its exit code.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// home is a user's home folder; its methods run commands there.
type home struct {
	t   testing.TB
	dir string
	env []string

	wrap []string // a command that runs the home's commands, its last arguments
	path string   // of the binary, if it is another
}

func newHome(t testing.TB) *home {
	t.Helper()
	return &home{t: t, dir: filepath.Join(t.TempDir(), "home")}
}

// said is what a command printed and its exit code.
type said struct {
	out, err string
	code     int
}

// command prepares a command of the home's.
func (h *home) command(ctx context.Context, args ...string) *exec.Cmd {
	line := slices.Concat(h.wrap, []string{cmp.Or(h.path, mooring)}, args)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = append(environment(""), "MOORING_HOME="+h.dir)
	cmd.Env = append(cmd.Env, h.env...)
	return cmd
}

// try runs a command with what it reads on standard input.
func (h *home) try(stdin string, args ...string) said {
	h.t.Helper()
	cmd := h.command(bounded(h.t), args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatalf("mooring %s: %v", strings.Join(args, " "), err)
	}
	return said{out: out.String(), err: errOut.String(), code: cmd.ProcessState.ExitCode()}
}

// do runs a command that must do what it is told, and gives what it printed.
func (h *home) do(args ...string) string {
	h.t.Helper()
	return h.feed("", args...)
}

// feed is do with a standard input.
func (h *home) feed(stdin string, args ...string) string {
	h.t.Helper()
	s := h.try(stdin, args...)
	if s.code != 0 {
		h.t.Fatalf("mooring %s: exit code %d\n%s%s", strings.Join(args, " "), s.code, s.out, s.err)
	}
	return s.out
}

// refused runs a command that must fail with a code's name and words that say
// what to do.
func (h *home) refused(stdin, code string, words []string, args ...string) said {
	h.t.Helper()
	return h.refusedWith(1, stdin, code, words, args...)
}

// refusedWith is refused with another exit code.
func (h *home) refusedWith(exit int, stdin, code string, words []string, args ...string) said {
	h.t.Helper()
	s := h.try(stdin, args...)
	line := strings.Join(args, " ")
	if s.code != exit || !strings.Contains(s.err, code) {
		h.t.Errorf("mooring %s: exit code %d, want %d and %q\n%s%s", line, s.code, exit, code, s.out, s.err)
	}
	for _, w := range words {
		if !strings.Contains(s.err, w) {
			h.t.Errorf("mooring %s: the refusal does not say %q:\n%s", line, w, s.err)
		}
	}
	return s
}

// follow starts a command that goes on, killed when the test ends.
func (h *home) follow(args ...string) *process {
	h.t.Helper()
	p, err := launch(h.command(context.Background(), args...))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(p.kill)
	return p
}

// tailed is a line of "session tail --json".
type tailed struct {
	Cursor uint64 `json:"cursor"`
	Method string `json:"method"`
	Key    string `json:"key"`
	Actor  string `json:"actor"`
	Op     string `json:"op"`
}

// tailedLines reads what a tail printed.
func tailedLines(t testing.TB, lines []string) []tailed {
	t.Helper()
	var events []tailed
	for _, l := range lines {
		var e tailed
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatalf("tail printed %q: %v", l, err)
		}
		events = append(events, e)
	}
	return events
}

// gapless fails the test unless the cursors are from+1 … to.
func gapless(t testing.TB, who string, events []tailed, from, to uint64) {
	t.Helper()
	if uint64(len(events)) != to-from {
		t.Errorf("%s: %d events, want %d", who, len(events), to-from)
	}
	for i, e := range events {
		if e.Cursor != from+uint64(i)+1 {
			t.Fatalf("%s: event %d has cursor %d, want %d", who, i, e.Cursor, from+uint64(i)+1)
		}
	}
}

// splitLines cuts output into lines.
func splitLines(text string) []string {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func containsAll(text string, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
