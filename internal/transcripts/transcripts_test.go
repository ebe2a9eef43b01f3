package transcripts

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/shape"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/session"
)

var limits = opencode.Limits{Ops: 1000, Bytes: 8 << 20, Payload: 4 << 20}

// recorded are what the real programs wrote (e2e/transcripts/record.js).
var recorded = []string{"claude-2.1.332", "claude-agent-2.1.332", "codex-0.169.0"}

func file(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("../../testdata/transcripts/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustRead(t *testing.T, data []byte, format string) *opencode.Recording {
	t.Helper()
	rec, err := Read(bytes.NewReader(data), format, limits)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// folded returns the last value of each key, and the keys in the order of their first.
func folded(rec *opencode.Recording) (values map[string][]byte, keys []string) {
	values = map[string][]byte{}
	for _, b := range rec.Batches {
		for _, p := range b.Puts {
			if values[p.Key] == nil {
				keys = append(keys, p.Key)
			}
			values[p.Key] = p.Payload
		}
	}
	return values, keys
}

// tools returns the parts of tool calls in their order.
func tools(t *testing.T, rec *opencode.Recording) (out []shape.Part) {
	t.Helper()
	values, keys := folded(rec)
	for _, key := range keys {
		var p shape.Part
		if strings.HasPrefix(key, "part/") {
			if err := json.Unmarshal(values[key], &p); err != nil {
				t.Fatal(err)
			}
		}
		if p.Type == "tool" {
			out = append(out, p)
		}
	}
	return out
}

func TestRecorded(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		title    string
		parent   bool
		roles    string
		tools    string
		statuses string
	}{
		"claude-2.1.332": {"Please make a.css blue.", false, "user assistant assistant assistant assistant assistant assistant assistant assistant assistant assistant assistant user assistant user assistant user user user user assistant",
			"bash todowrite todowrite todowrite write edit todowrite bash read task", "completed completed completed completed completed completed completed completed error completed"},
		"claude-agent-2.1.332": {"Count the files.", true, "user assistant", "", ""},
		"codex-0.169.0": {"Please make a.css blue.", false, "user user assistant user assistant",
			"bash todowrite apply_patch apply_patch todowrite bash apply_patch", "completed completed completed completed completed completed error"},
	} {
		rec := mustRead(t, file(t, name), "")
		values, keys := folded(rec)
		var info shape.Info
		var roles, names, statuses []string
		if err := json.Unmarshal(values["session"], &info); err != nil || info.Title != want.title || info.ID != rec.External || info.Dir != "/home/ada/project" || (rec.Parent != "") != want.parent {
			t.Errorf("%s: %+v of parent %q, %v", name, info, rec.Parent, err)
		}
		for _, key := range keys {
			if strings.HasPrefix(key, "message/") {
				var m shape.Message
				if err := json.Unmarshal(values[key], &m); err != nil {
					t.Fatal(err)
				}
				if roles = append(roles, m.Role); m.Role == "assistant" && (m.Parent == "" || !m.Summary && (m.Model == "" || m.Tokens == nil || m.Finish == "")) {
					t.Errorf("%s: %s", name, values[key])
				}
			}
		}
		for _, p := range tools(t, rec) {
			names, statuses = append(names, p.Tool), append(statuses, p.State.Status)
		}
		if got := strings.Join(roles, " "); got != want.roles {
			t.Errorf("%s: the messages are of %s", name, got)
		}
		if got := strings.Join(names, " "); got != want.tools {
			t.Errorf("%s: the tools are %s", name, got)
		}
		if got := strings.Join(statuses, " "); got != want.statuses {
			t.Errorf("%s: the calls are %s", name, got)
		}
		for _, n := range rec.Notices {
			if strings.Contains(n, "not known") {
				t.Errorf("%s: %s", name, n)
			}
		}
	}
}

func TestToolsOfRecorded(t *testing.T) {
	t.Parallel()
	claude := mustRead(t, file(t, "claude-2.1.332"), "")
	agent := mustRead(t, file(t, "claude-agent-2.1.332"), "")
	calls := tools(t, claude)
	if m := calls[5].State.Metadata; len(m.Files) != 1 || !strings.Contains(m.Files[0].Patch, "-  color: red;\n+  color: blue;\n") || m.Files[0].Additions != 1 || m.Files[0].Deletions != 1 {
		t.Errorf("the edit: %+v", m)
	}
	if m := calls[6].State.Metadata; len(m.Todos) != 2 || m.Todos[0] != (shape.Todo{Content: "Write a.css", Status: "completed"}) || m.Todos[1].Status != "pending" {
		t.Errorf("the tasks: %+v", m)
	}
	if s := calls[7].State; s.Metadata.Exit == nil || *s.Metadata.Exit != 3 || string(s.Output) != `"half"` {
		t.Errorf("the command: %+v", s)
	}
	if s := calls[9].State; s.Metadata.Started != agent.External || string(s.Output) != `"One file."` || agent.Parent != claude.External {
		t.Errorf("the agent: %+v, of %s", s, agent.External)
	}
	codex := tools(t, mustRead(t, file(t, "codex-0.169.0"), ""))
	if m := codex[3].State.Metadata; len(m.Files) != 1 || m.Files[0].File != "/home/ada/project/a.css" || !strings.Contains(m.Files[0].Patch, "+  color: blue;\n") {
		t.Errorf("the patch: %+v", m)
	}
	if s := codex[5].State; s.Metadata.Exit == nil || *s.Metadata.Exit != 3 || string(s.Output) != `"half\n"` {
		t.Errorf("the command: %+v", s)
	}
	if s := codex[6].State; !strings.Contains(s.Error, "No such file") {
		t.Errorf("the patch that failed: %+v", s)
	}
}

// TestCompaction has the summary stand for what was before.
func TestCompaction(t *testing.T) {
	t.Parallel()
	rec := mustRead(t, file(t, "claude-2.1.332"), "")
	values, _ := folded(rec)
	if !bytes.Contains(values[rec.Compaction.Summary], []byte(`"summary":true`)) || values[rec.Compaction.Upto] == nil {
		t.Errorf("compacted %+v: %s", rec.Compaction, values[rec.Compaction.Summary])
	}
}

// TestGrows reads each beginning of a file: its batches are those of the whole file.
func TestGrows(t *testing.T) {
	t.Parallel()
	for _, name := range recorded {
		data := file(t, name)
		whole := mustRead(t, data, "")
		lines := bytes.SplitAfter(data, []byte("\n"))
		seen := 0
		for n := range lines {
			begin := bytes.Join(lines[:n], nil)
			for _, torn := range [][]byte{nil, lines[n][:len(lines[n])/2]} {
				rec, err := Read(bytes.NewReader(append(bytes.Clone(begin), torn...)), strings.SplitN(name, "-", 2)[0], limits)
				if err != nil { // nothing is in it yet
					if fault.CodeOf(err) != fault.Malformed || seen > 0 {
						t.Fatalf("%s: %d lines: %v", name, n, err)
					}
					continue
				}
				seen = len(rec.Batches)
				for i, b := range rec.Batches {
					if b.Chain != whole.Batches[i].Chain {
						t.Fatalf("%s: %d lines: batch %d is another", name, n, i)
					}
				}
			}
		}
		if seen < 2 {
			t.Errorf("%s: %d batches", name, seen)
		}
	}
}

// TestPagesShowIt renders what was recorded: no part is of an unknown shape, and what people look for is there.
func TestPagesShowIt(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"claude-2.1.332": {`class="part reasoning"`, `<p class="label">Command`, `class="add"`, `class="del"`, "a.css", `class="todos"`, `class="done"`, "exit 3", `data-started="`, "File does not exist", `class="part compaction"`, "<strong>blue</strong>"},
		"codex-0.169.0":  {`class="part reasoning"`, `<p class="label">Command`, `class="add"`, `class="del"`, "a.css", `class="todos"`, `class="done"`, "exit 3", "No such file", "Added by the agent", "<strong>blue</strong>"},
	} {
		values, keys := folded(mustRead(t, file(t, name), ""))
		var shown strings.Builder
		for _, key := range keys {
			html := string(page.Block(&session.Entry{Key: key, Payload: values[key]}, session.Change{}, nil))
			if strings.Contains(html, `class="part unknown"`) {
				t.Errorf("%s: a page does not know %s", name, values[key])
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

func TestBadFiles(t *testing.T) {
	t.Parallel()
	user := `{"type":"user","uuid":"u1","sessionId":"s1","timestamp":"2026-01-02T03:04:05Z","message":{"role":"user","content":"hi"}}` + "\n"
	codexMeta := `{"timestamp":"2026-01-02T03:04:05Z","type":"session_meta","payload":{"id":"s1"}}` + "\n"
	for _, c := range []struct {
		name, format, in, err string
		batches               int
	}{
		{"torn", "", user + `{"type":"assistant","mess`, "", 1},
		{"bad in the middle", "", user + "{nonsense\n" + user, "line 2: not a JSON object", 0},
		{"bad at the end, with a line feed", "", user + "{\"a\":1\n", "line 2: not a JSON object", 0},
		{"a list", "", user + "[1]\n", "line 2: not a JSON object", 0},
		{"no message", "", `{"type":"mode","sessionId":"s1"}` + "\n", "no message", 0},
		{"unknown lines", "", user + `{"type":"novel","sessionId":"s1"}` + "\n", "", 1},
		{"blank lines", "", "\n" + user + "\n\n", "", 1},
		{"another format", "yaml", user, `the format "yaml" is none: opencode, claude, codex`, 0},
		{"forced", Codex, user, "no message", 0},
		{"opencode's", "", `{"info":{"id":"s1"},"messages":[]}`, "", 1},
		{"of neither", "", `{"type":"user"}`, "transcript of Claude Code", 0},
		{"odd ids", "", strings.Replace(user, `"u1"`, `"u 1/…"`, 1), "", 1},
		{"calls without what they are given", "", codexMeta + `{"type":"response_item","payload":{"type":"local_shell_call","call_id":"c"}}` + "\n" +
			`{"type":"response_item","payload":{"type":"function_call","call_id":"d","name":"shell","arguments":"{\"command\":[\"bash\",\"-lc\",\"ls\"]}"}}` + "\n" +
			`{"type":"response_item","payload":{"type":"function_call_output","call_id":"d","output":"{\"output\":\"a\",\"metadata\":{\"exit_code\":1}}"}}` + "\n", "", 3},
		{"odd types", Claude, `{"type":7,"sessionId":[],"message":3}` + "\n" + user + `{"type":"assistant","message":{"content":[{"type":"tool_use","input":"x"},7,null]},"sessionId":"s1"}` + "\n", "", 2},
	} {
		rec, err := Read(strings.NewReader(c.in), c.format, limits)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v", c.name, err)
		case c.err == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.err == "" && len(rec.Batches) != c.batches:
			t.Errorf("%s: %d batches", c.name, len(rec.Batches))
		}
	}
	rec := mustRead(t, []byte(user+`{"type":"novel","sessionId":"s1"}`+"\n"+`{"type":"mode","se`), "")
	if got := strings.Join(rec.Notices, "; "); !strings.Contains(got, "novel (1)") || !strings.Contains(got, "line 3 is not complete") {
		t.Errorf("it says %s", got)
	}
}

// FuzzRead has no file end it, and each that can be read again be read the same.
func FuzzRead(f *testing.F) {
	for _, name := range recorded {
		data, err := os.ReadFile("../../testdata/transcripts/" + name + ".jsonl")
		if err != nil {
			f.Fatal(err)
		}
		lines := bytes.SplitAfter(data, []byte("\n")) // each by itself: a whole file is slow
		for _, line := range lines {
			if len(line) < 2000 {
				f.Add(append(bytes.Clone(lines[0]), line...))
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range []string{"", Claude, Codex} {
			rec, err := Read(bytes.NewReader(data), format, limits)
			var known *fault.Error
			if err != nil && !errors.As(err, &known) {
				t.Fatal(err)
			}
			if err != nil {
				continue
			}
			for _, b := range rec.Batches {
				for _, p := range b.Puts {
					if !json.Valid(p.Payload) {
						t.Fatalf("%s is %q", p.Key, p.Payload)
					}
				}
			}
		}
	})
}
