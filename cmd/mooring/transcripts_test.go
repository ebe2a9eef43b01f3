//go:build linux

// Transcripts of Claude Code and Codex, and what is redacted of imports.

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// transcript is one that the real program wrote.
func transcript(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../../testdata/transcripts/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A transcript that has grown goes on where it ended, cut off in the middle or not, and is one session.
func TestImportTranscripts(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	for _, name := range []string{"claude-2.1.332", "codex-0.169.0"} {
		whole := transcript(t, name)
		cut := len(whole) * 2 / 3
		flags := []string{"session", "import", "-", "--owner", r.owner()}
		first := r.runIn(whole[:cut], flags...)
		id := strings.TrimSpace(first.out)
		if first.code != cli.ExitOK || !strings.Contains(first.err, "is not complete and was left out") {
			t.Fatalf("%s: %+v", name, first)
		}
		before := r.tailed(id)
		second := r.runIn(whole, flags...)
		if second.code != cli.ExitOK || strings.TrimSpace(second.out) != id {
			t.Fatalf("%s, grown: %+v", name, second)
		}
		after := r.tailed(id)
		if got := r.runIn(whole, "session", "import", "-", "--format", strings.SplitN(name, "-", 2)[0]); !strings.HasSuffix(got.err, "nothing new: all of it was imported before\n") {
			t.Errorf("%s, again: %+v", name, got)
		}
		if before >= after || r.tailed(id) != after {
			t.Errorf("%s: %d events, then %d, then %d", name, before, after, r.tailed(id))
		}
		keys := r.keys(id)
		seen := map[string]bool{}
		for _, k := range keys {
			seen[k] = true
		}
		if !seen["session"] || len(seen) < 10 {
			t.Errorf("%s: the keys %v", name, keys)
		}
		if out := r.ok("session", "show", id); !strings.Contains(out, "Please make a.css blue.") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// An agent's transcript becomes a child of its session's.
func TestImportAgentsTranscript(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	parent := strings.TrimSpace(r.okIn(transcript(t, "claude-2.1.332"), "session", "import", "-", "--owner", r.owner()))
	child := strings.TrimSpace(r.okIn(transcript(t, "claude-agent-2.1.332"), "session", "import", "-"))
	if out := r.ok("session", "children", parent); !strings.Contains(out, child) {
		t.Errorf("the children of %s: %s", parent, out)
	}
}

// What looks like a secret is in no file after --redact, of whatever format; without it a warning says how many there are.
func TestImportRedacts(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	secret := "ghp_" + "R7kQm2Zx9VbT4nLw8YcJ5sHd1GfP6aEu3oXi"
	files := map[string]string{
		"claude":   strings.ReplaceAll(transcript(t, "claude-2.1.332"), "half", "token "+secret),
		"codex":    strings.ReplaceAll(transcript(t, "codex-0.169.0"), "half", "token "+secret),
		"opencode": fmt.Sprintf(`[{"type":"session","data":{"id":"ses_r","title":"%[1]s"}},{"type":"message","data":{"id":"m"}},{"type":"part","data":{"id":"p","messageID":"m","type":"text","text":"token %[1]s"}}]`, secret),
	}
	for format, in := range files {
		flags := []string{"session", "import", "-", "--redact", "--owner", r.owner()}
		got := r.runIn(in, flags...)
		if got.code != cli.ExitOK || !strings.Contains(got.err, "redacted: github-pat (1)\n") || strings.Contains(got.err, secret) {
			t.Fatalf("%s: %+v", format, got)
		}
		id := strings.TrimSpace(got.out)
		if doc := r.ok("session", "export", id); !strings.Contains(doc, "token [redacted: github-pat]") || strings.Contains(doc, secret) {
			t.Errorf("%s: exported as %s", format, doc)
		}
		events := r.tailed(id)
		if again := r.runIn(in, flags...); !strings.HasSuffix(again.err, "nothing new: all of it was imported before\n") || r.tailed(id) != events {
			t.Errorf("%s, again: %+v", format, again)
		}
		if holds(t, r.home(), secret) || holds(t, r.data(), secret) {
			t.Fatalf("%s: the secret is in a file", format)
		}
	}
	// Without the flag.
	r.stop()
	got := r.runIn(strings.ReplaceAll(files["opencode"], "ses_r", "ses_w"), "session", "import", "-")
	if got.code != cli.ExitOK || !strings.HasPrefix(got.err, "warning: the file has what looks like secrets") || !strings.Contains(got.err, "github-pat (1)") || strings.Contains(got.err, secret) {
		t.Errorf("%+v", got)
	}
	if !holds(t, r.home(), secret) {
		t.Error("the outbox has not what was not redacted: this test looks in the wrong place")
	}
}

func TestImportBadTranscripts(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	lines := strings.SplitAfter(transcript(t, "claude-2.1.332"), "\n")
	lines[4] = "{nonsense\n"
	r.failsIn(strings.Join(lines, ""), cli.ExitRefused, "line 5: not a JSON object", "session", "import", "-", "--owner", r.owner())
	r.failsIn(lines[2], cli.ExitUsage, "one of uimessage, opencode, claude, codex", "session", "import", "-", "--format", "yaml", "--owner", r.owner())
	if out := r.ok("session", "list", "--owner", r.owner()); strings.Contains(out, "ses_") {
		t.Errorf("after bad files: %s", out)
	}
}
