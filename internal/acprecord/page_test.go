package acprecord

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/session"
)

// TestPagesShowIt renders what the transcripts record: no part is of an unknown shape, and what people look for is there.
func TestPagesShowIt(t *testing.T) {
	t.Parallel()
	puts := regexp.MustCompile(`(?m)^  put (\S+) (.*)$`)
	for name, want := range map[string][]string{
		"edit": {`class="part reasoning"`, `<p class="label">Command`, `class="add"`, `class="del"`, "a.css", "Done.", "exit status 2", `class="card own"`, "Make it blue."},
		"plan": {`class="todos"`, `class="done"`, `<img`, "a.go", "package b"},
	} {
		text, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		var shown strings.Builder
		for _, m := range puts.FindAllStringSubmatch(string(text), -1) {
			html := string(page.Block(&session.Entry{Key: m[1], Payload: []byte(m[2])}, session.Change{}, nil))
			if strings.Contains(html, `class="part unknown"`) {
				t.Errorf("%s: a page does not know %s", name, m[2])
			}
			shown.WriteString(html)
		}
		for _, w := range want {
			if !strings.Contains(shown.String(), w) {
				t.Errorf("%s: nothing has %s", name, w)
			}
		}
	}
}
