package page_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/page/internal/recorded"
	"github.com/mooring-rpc/mooring/internal/session"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with testdata/golden/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what it was (go test ./page -update writes it anew; then look at the difference)\ngot:\n%s", name, firstDifference(got, string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			was := "(nothing)"
			if i < len(w) {
				was = w[i]
			}
			return "  now: " + g[i] + "\n  was: " + was
		}
	}
	return "  it ends earlier"
}

// readable puts the blocks' inner elements on lines of their own; texts stay as
// they are.
func readable(html []byte) string {
	return strings.NewReplacer("><header", ">\n<header", "><div", ">\n<div", "><details", ">\n<details", "><p", ">\n<p", "><footer", ">\n<footer", "><section", ">\n<section",
		"><table", ">\n<table", "><tr", ">\n<tr", "><li", ">\n<li", "><ul", ">\n<ul", "><dl", ">\n<dl", "><h", ">\n<h", "></div", ">\n</div", "></section", ">\n</section", "></article", ">\n</article").Replace(string(html))
}

// Every kind of part, message and entry as it is rendered.
func TestKinds(t *testing.T) {
	t.Parallel()
	kinds, err := recorded.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*strings.Builder{}
	for _, key := range kinds.Keys() {
		e := kinds.Entries[key]
		name := strings.Split(strings.TrimPrefix(strings.TrimPrefix(key, "part/"), "message/"), "/")[0] + ".html"
		if files[name] == nil {
			files[name] = &strings.Builder{}
		}
		html := page.Block(e, session.Change{}, kinds.Turns[strings.TrimPrefix(key, "message/")])
		sound(t, key, html)
		if err := reread(html); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		files[name].WriteString("== " + key + "\n" + readable(html) + "\n\n")
	}
	for name, text := range files {
		golden(t, name, text.String())
	}
	if len(files) < 10 {
		t.Fatalf("only %d files", len(files))
	}
}

// What a reader must be able to find of each kind.
func TestKindsSay(t *testing.T) {
	t.Parallel()
	kinds, err := recorded.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string][]string{
		"message/m1":   {"User", "19:42:08 UTC", "1 file", "+2", "demo store"},
		"message/m2":   {"Assistant", "build", "fake/fake-1", "1 min 3 s", "2,522 tokens", "$0.0014", "completed"},
		"message/m4":   {"summary", "failed", "MessageAbortedError", "The operation was aborted."},
		"message/m5":   {"writing"},
		"message/m6":   {"interrupted", `"anything"`},
		"message/m7":   {"Plain text"},
		"part/m1/p1":   {"Please add a store"},
		"part/m1/p2":   {"notes.txt", "text/plain"},
		"part/m1/p3":   {"dot.png"},
		"part/m1/p4":   {"@explore"},
		"part/m2/p2":   {"Reasoning", "1.3 s", "I should look"},
		"part/m2/q01":  {"bash", "ls -la", "480 ms", "exit 1", "total 20", "List files and history"},
		"part/m2/q02":  {"read", "README.md", "# demo"},
		"part/m2/q03":  {"write", "Keep a value."},
		"part/m2/q04":  {"edit", "+3", "−1", "# demo store"},
		"part/m2/q05":  {"pending", "five"},
		"part/m2/q06":  {"failed", "File not found"},
		"part/m2/q07":  {"done write store", "in progress add tests", "to do benchmark", "cancelled rewrite it"},
		"part/m2/q08":  {"task", "running", "explore", "summarise"},
		"part/m2/q10":  {"https://go.dev", `"b": null`, "x.png"},
		"part/m2/q11":  {"weather_forecast", "Bergen", `"temperature": "C"`},
		"part/m2/r1":   {"Patch", "2 files", "5e89ceceb6", "/home/dev/demo/src/store.go"},
		"part/m2/r2":   {"Snapshot", "c99e4ddf3857"},
		"part/m2/r3":   {"Retried, attempt 2", "APIError", "Overloaded: try again in 4 s"},
		"part/m2/r4":   {"Subtask", "Look around", "explore", "everything", "/review"},
		"part/m2/r5":   {"tool-calls, 1,220 in, 63 out, 20 reasoning, 1,219 read from cache, $0.0014"},
		"part/m2/r6":   {"hologram", "A type of part that is not known.", `"depth": 3`},
		"part/m3/p1":   {"Context compacted automatically"},
		"part/m6/p1":   {`"plain": "payload"`},
		"part/m7/p1":   {`"a string"`},
		"part/m7/p2":   {`"x": 1`},
		"session":      {"/home/dev/demo", "fake/fake-1", "1.18.33", "2 files", "+12", "reverted"},
		"session_diff": {"gen/file0.txt", "four", "Added", "package store"},
		"model/fake-1": {"Fake One", "200000"},
	} {
		got := words(t, page.Block(kinds.Entries[key], session.Change{}, kinds.Turns[strings.TrimPrefix(key, "message/")]))
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s does not say %q: %s", key, w, got)
			}
		}
	}
}

// The recordings as whole pages: every message and part of them is there, by its
// key and in order, and the contents name the turns.
func TestRecordings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../testdata/opencode/*.jsonl")
	if err != nil || len(files) < 4 {
		t.Fatalf("recordings: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			state, err := recorded.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := state.Write(&b, page.Head{ID: state.ID, Cursor: state.Cursor, Live: "/share/x/live"}); err != nil {
				t.Fatal(err)
			}
			text := b.String()
			soundPage(t, file, text)
			at, turns := 0, 0
			for _, key := range state.Keys() {
				i := strings.Index(text, `data-key="`+key+`"`)
				if i < 0 {
					t.Errorf("%s is missing", key)
				}
				if strings.HasPrefix(key, "message/") {
					if i < at {
						t.Errorf("%s is out of order", key)
					}
					at = i
					if strings.Contains(string(state.Entries[key].Payload), `"role":"user"`) {
						turns++
						if !strings.Contains(text, `<li><a href="#m-`+strings.TrimPrefix(key, "message/")+`"`) {
							t.Errorf("the contents do not name %s", key)
						}
					}
				}
			}
			if turns == 0 || !strings.Contains(text, ` data-live `) {
				t.Errorf("%d turns", turns)
			}
		})
	}
}
