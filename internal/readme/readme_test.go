// Package readme holds the README to its word: the Go program in it compiles
// against the client as it is, and every file it links to is there.
package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

func read(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestGoProgramCompiles(t *testing.T) {
	t.Parallel()
	_, rest, ok := strings.Cut(read(t), "```go\n")
	if !ok {
		t.Fatal("the README has no Go program")
	}
	program, _, _ := strings.Cut(rest, "```")
	// Below the module, so that it resolves as the module's own packages do.
	dir, err := os.MkdirTemp(".", "testprogram-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	vet := exec.Command("go", "vet", "./"+dir)
	vet.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile builds: it is built already
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
	if out, err := exec.Command("gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt would change the program (%v): %s", err, out)
	}
}

func TestLinksLead(t *testing.T) {
	t.Parallel()
	links := regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(read(t), -1)
	if len(links) == 0 {
		t.Fatal("no links found")
	}
	for _, link := range links {
		if _, err := os.Stat(filepath.Join(root, link[1])); err != nil {
			t.Errorf("the README links to %s: %v", link[1], err)
		}
	}
}
