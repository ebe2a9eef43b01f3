package e2e

// The README, taken at its word: its Go program runs, and the commands of its tour
// print what it says they print.

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// readme is the text after a heading, to the next of its rank.
func readme(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("the README has no %q", heading)
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	return section
}

// buildProgram builds a program that a document shows, and returns where in dir it is.
func buildProgram(t *testing.T, program, dir string) string {
	t.Helper()
	source, err := os.MkdirTemp(".", "testprogram-") // below the module, so that it resolves as its own packages do
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(source) })
	if err := os.WriteFile(filepath.Join(source, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-o", path, "./"+source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	_, rest, ok := strings.Cut(readme(t, "The Go client in 30 lines"), "```go\n")
	if !ok {
		t.Fatal("no program")
	}
	program, _, _ := strings.Cut(rest, "```")
	dir := t.TempDir()
	path := buildProgram(t, program, dir)
	startServer(t, serverConfig{Data: filepath.Join(dir, "srv")})
	cmd := exec.CommandContext(bounded(t), path)
	cmd.Dir, cmd.Env = dir, environment("")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the program: %v\n%s", err, out)
	}
	lines := splitLines(string(out))
	want := []string{`1 create ref/`, `2 begin message/msg_1`, `3 put part/msg_1/prt_1`, `4 appendText part/msg_1/prt_1`,
		`5 appendText part/msg_1/prt_1`, `6 finalize message/msg_1`, `7 share ref/`, `done with ses_`}
	if len(lines) != len(want) {
		t.Fatalf("the program printed\n%s", out)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %d is %q, not %q …", i+1, line, want[i])
		}
	}
}

// tourStep is a command of the tour with what the README says it prints, or a
// sentence that tells the reader to do something.
type tourStep struct {
	command string
	prints  []string
	stop    bool // the server is to be stopped
}

// tour reads the README's steps.
func tour(t *testing.T) (steps []tourStep) {
	t.Helper()
	console := false
	for line := range strings.Lines(readme(t, "A five-minute tour")) {
		line = strings.TrimSuffix(line, "\n")
		last := len(steps) - 1
		switch {
		case strings.HasPrefix(line, "```"):
			console = line == "```console"
		case !console && strings.Contains(line, "Stop the server."):
			steps = append(steps, tourStep{stop: true})
		case !console:
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, tourStep{command: strings.TrimPrefix(line, "$ ")})
		case last >= 0 && strings.HasSuffix(steps[last].command, "|"):
			steps[last].command += "\n" + line
		default:
			steps[last].prints = append(steps[last].prints, line)
		}
	}
	if len(steps) < 10 {
		t.Fatalf("the tour has %d steps only", len(steps))
	}
	return steps
}

func TestReadmeTour(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testdata, err := filepath.Abs("../../testdata")
	if err == nil {
		err = os.Symlink(testdata, filepath.Join(dir, "testdata"))
	}
	if err != nil {
		t.Fatal(err)
	}
	env := append(environment(""), "PATH="+filepath.Dir(mooring)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+dir, "XDG_CONFIG_HOME="+filepath.Join(dir, "config"))
	var serving *process
	listen := "127.0.0.1:0" // as the README has it, but for the port
	for _, step := range tour(t) {
		switch {
		case step.stop:
			if err := serving.cmd.Process.Signal(syscall.SIGTERM); err != nil || !within(patience, serving.done) {
				t.Fatalf("the server does not stop: %v", err)
			}
		case strings.HasSuffix(step.command, " &"):
			line := strings.Fields(strings.TrimSuffix(step.command, " &"))
			cmd := exec.CommandContext(context.Background(), mooring, append(line[1:], "--listen", listen)...)
			cmd.Dir, cmd.Env = dir, env
			if serving, err = launch(cmd); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(serving.kill)
			said, ok := serving.out.await(serving.done, func(l string) bool { return strings.HasPrefix(l, "listening on ") })
			if !ok {
				t.Fatalf("%s: the server did not start:\n%s", step.command, serving.err.text())
			}
			listen = strings.Fields(said)[2]
			if len(step.prints) > 0 {
				compareTour(t, step, said, listen)
			}
		default:
			cmd := exec.CommandContext(bounded(t), "sh", "-c", step.command)
			cmd.Dir, cmd.Env = dir, env
			said, _ := cmd.CombinedOutput() // the last one is refused
			compareTour(t, step, string(said), listen)
		}
	}
}

// compareTour compares what a command printed, but for ids, times, the port and the
// progress that a slow machine tells of before the end.
func compareTour(t *testing.T, step tourStep, said, listen string) {
	t.Helper()
	said = strings.ReplaceAll(said, "mooring://"+listen, "mooring://127.0.0.1")
	said = strings.ReplaceAll(said, listen, "127.0.0.1:7600")
	got, want := masked(strings.TrimRight(said, "\n")), masked(strings.Join(step.prints, "\n"))
	if got != want {
		t.Errorf("$ %s\nprints\n%s\nand in the README\n%s", step.command, got, want)
	}
}

var tourMasks = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\bses_[0-9A-HJKMNP-TV-Z]{26}\b`), "ses_ID"},
	{regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`), "ID"},
	{regexp.MustCompile(`\.o[a-z2-7]{26}\b`), ".oID"},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`\(in [0-9hms]+\)`), "(in DURATION)"},
	{regexp.MustCompile(`(?:ops [a-z]+: \d+ of \d+\n)+(ops [a-z]+: \d+ of \d+\n)`), "$1"},
}

func masked(text string) string {
	for _, m := range tourMasks {
		text = m.what.ReplaceAllString(text, m.with)
	}
	return text
}
