//go:build curl

// The curl lines of docs/http.md and README.md, run as they stand against the
// program. make e2e runs this: it needs curl.

package httpapi

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestCurl(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	program := filepath.Join(dir, "mooring")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "../../cmd/mooring").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	serving := exec.CommandContext(ctx, program, "serve", "--data", "srv", "--listen", "127.0.0.1:0")
	serving.Dir = dir
	said, err := serving.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serving.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serving.Process.Signal(syscall.SIGTERM)
		if err := serving.Wait(); err != nil {
			t.Errorf("mooring serve: %v", err)
		}
	}()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`listening on (\S+)`).FindStringSubmatch(line)
	if at == nil {
		t.Fatalf("it says %q", line)
	}
	run := func(script string, wants ...string) {
		shell := exec.CommandContext(ctx, "sh", "-eu")
		shell.Dir, shell.Stdin = dir, strings.NewReader(strings.ReplaceAll(script, "127.0.0.1:7600", at[1]))
		out, err := shell.CombinedOutput()
		if err != nil {
			t.Fatalf("the script: %v\n%s", err, out)
		}
		answers := string(out)
		for _, want := range wants {
			i := strings.Index(answers, want)
			if i < 0 {
				t.Fatalf("the answers have no %s next:\n%s", want, out)
			}
			answers = answers[i+len(want):]
		}
	}
	run(scriptIn(t, "../../docs/http.md", "# Mooring over HTTP")+scriptIn(t, "../../docs/http.md", "## Requests"), `"external":"from-http"`, `"applied":1,"duplicates":0`, `"applied":0,"duplicates":1`,
		`"payload":{"role": "user", "text": "hello"}`, `{"cut":4}`, "event: create", "event: put", "event: share", "event: ended", `{"code":"revoked","number":41,`, `{"error":{"code":"revoked","number":41,`,
		`"request":"per_7","cursor":5}`, `{"cursor":5,"more":false,"requests":[{"request":"per_7","cursor":5,"asked":{`, `"state":{"state":"open"}`, `{"cursor":6}`, `"state":{"state":"answered","choice":"once",`)
	// The README's last line follows until it is stopped.
	lines := strings.Replace(scriptIn(t, "../../README.md", "## HTTP for the rest"), "curl -sSN", "! curl --max-time 2 -sSN", 1)
	run(lines, `{"cursor":1,`, `"ref":"ses_`, "id: 1\n", "event: create", "id: 2\n", "event: share")
}

// scriptIn is the first script of a document below a heading.
func scriptIn(t *testing.T, document, heading string) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), heading+"\n")
	_, rest, ok := strings.Cut(below, "```sh\n")
	script, _, closed := strings.Cut(rest, "```")
	if !found || !ok || !closed {
		t.Fatalf("%s has no script below %q", document, heading)
	}
	return script
}
