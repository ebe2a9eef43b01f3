// Package readme holds the README to its word: the Go programs in it
// and in other documents compile, every dependency has its row, and every file that it
// and the other documents link to is there.
package readme

import (
	"encoding/json"
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

func TestGoProgramsCompile(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"README.md", "docs/operating.md", "docs/a2a.md"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(text), "```go\n")
		if !ok {
			t.Fatalf("%s has no Go program", file)
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
			t.Errorf("%s: go vet: %v\n%s", file, err, out)
		}
		if out, err := exec.Command("gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: gofmt would change the program (%v): %s", file, err, out)
		}
	}
}

// Every file that the documents link to is there, and every document is linked to
// from the README.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatalf("no documents found: %v", err)
	}
	text := read(t)
	for _, doc := range docs {
		if name := "docs/" + filepath.Base(doc); !strings.Contains(text, "("+name+")") {
			t.Errorf("the README does not link to %s", name)
		}
	}
	link, code := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`), regexp.MustCompile("(?s)\n```.*?\n```")
	for _, doc := range append(docs, filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md"), filepath.Join(root, "clients/js/README.md")) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), to[1])); err != nil {
				t.Errorf("%s links to %s: %v", doc, to[1], err)
			}
		}
	}
}

// Every direct dependency and every tool has its row in the table, and no row is
// of one that is gone.
func TestDependenciesAreInTheTable(t *testing.T) {
	t.Parallel()
	rows, depends := table(t), map[string]bool{}
	for _, file := range []string{"go.mod", ".ci/tools.mod"} {
		m := parse(t, file)
		for _, r := range m.Require {
			if !r.Indirect {
				depends[r.Path] = true
			}
		}
		for _, tool := range m.Tool {
			if !m.has(tool.Path, depends) { // of a module that has its row for more
				depends[tool.Path] = true
			}
		}
	}
	for name := range depends {
		if len(rows[name]) < 10 {
			t.Errorf("%s is not in the README's table of dependencies, or without a reason", name)
		}
	}
	for name := range rows {
		if !depends[name] {
			t.Errorf("the README's table has %s, which is no dependency", name)
		}
	}
}

// table is the table of dependencies, without the npm packages: names and reasons.
func table(t *testing.T) map[string]string {
	t.Helper()
	_, text, ok := strings.Cut(read(t), "\n## Dependencies\n")
	if !ok {
		t.Fatal("the README has no dependencies")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	rows := map[string]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 4 || strings.HasPrefix(cells[1], "---") || cells[1] == " module " || strings.HasPrefix(cells[1], " npm ") {
			continue
		}
		names, _, _ := strings.Cut(cells[1], "(")
		for name := range strings.SplitSeq(names, ",") {
			rows[strings.TrimSpace(name)] = strings.TrimSpace(cells[2])
		}
	}
	return rows
}

// mod is a go.mod file.
type mod struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Tool []struct{ Path string }
}

func parse(t *testing.T, file string) (m mod) {
	t.Helper()
	text, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(root, file)).Output()
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return m
}

// has says whether a package is of one of the modules.
func (m mod) has(path string, modules map[string]bool) bool {
	for _, r := range m.Require {
		if modules[r.Path] && strings.HasPrefix(path, r.Path+"/") {
			return true
		}
	}
	return false
}
