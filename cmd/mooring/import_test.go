//go:build linux

// Imports that meet what is in the way, and what they show meanwhile.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
)

func TestImportAfterTheSessionWasDeleted(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	in := func(messages string) string {
		return `[{"type":"session","data":{"id":"ses_over","title":"x"}}` + messages + `]`
	}
	id := strings.TrimSpace(r.okIn(in(""), "session", "import", "-", "--owner", r.owner()))
	if got := r.runIn(in(""), "session", "import", "-"); got.code != cli.ExitOK || got.err != "nothing new: all of it was imported before\n" {
		t.Errorf("again: %+v", got)
	}
	r.ok("session", "delete", id, "--yes")
	forget := regexp.MustCompile(`mooring refs forget (\S+) --force`)
	for _, more := range []string{"", `,{"type":"message","data":{"id":"m"}}`} {
		got := r.refusedAs(r.home(), in(more), []string{"session_deleted: session ses_over was deleted", "mooring refs forget", "import the file as a new one"}, "session", "import", "-")
		if got.out != "" {
			t.Errorf("it prints %q", got.out)
		}
		if more != "" { // what it says to do is what helps
			r.ok("refs", "forget", forget.FindStringSubmatch(got.err)[1], "--force")
			if again := strings.TrimSpace(r.okIn(in(more), "session", "import", "-")); again == id || r.tailed(again) != 3 {
				t.Errorf("imported anew as %s", again)
			}
		}
	}
}

// What another home folder has imported is refused, and that does not end in a corner
// if it was found out late.
func TestImportOfflineOfWhatIsThere(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	theirs := r.create("ses_twice")
	home := r.otherHome("second")
	r.okAs(home, "", "session", "list", "--owner", r.owner())
	in := `[{"type":"session","data":{"id":"ses_twice","title":"x"}},{"type":"message","data":{"id":"m"}}]`
	r.stop()
	mine := strings.TrimSpace(r.okAs(home, in, "session", "import", "-"))
	r.start()
	if got := r.runAs(home, "", "outbox", "drain"); got.code != cli.ExitRefused || !strings.Contains(got.err, "3 of them did not apply") {
		t.Errorf("drain: %+v", got)
	}
	never := []string{"already_exists", "imported from another home folder", "mooring refs forget " + mine + " --force", "redeem a ref", " (batch "}
	r.refusedAs(home, "", never, "session", "show", "ses_twice")
	r.refusedAs(home, putLine("x"), never, "session", "append", mine, "--wait")
	r.refusedAs(home, in, []string{"already_exists", "imported from another home folder", " (batch "}, "session", "import", "-")
	r.refusedAs(home, in, []string{"already_exists", "imported from another home folder", " (batch "}, "session", "import", "-") // as online
	r.okAs(home, "", "redeem", r.shareTo("reader", theirs, "--rights", "read"))
	if out := r.okAs(home, "", "session", "show", theirs); !strings.Contains(out, "ses_twice") {
		t.Errorf("show: %s", out)
	}
}

// A full disk in the middle of an import: it says how much is safe, and goes on there.
func TestImportOnAFullDisk(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	r.ok("session", "list", "--owner", r.owner())
	r.stop() // so that nothing has to be stored of its answers
	var lines strings.Builder
	lines.WriteString(`{"method":"POST","path":"/api/share","body":{"sessionID":"ses_full"}}` + "\n")
	const batches = 12
	for i := range batches {
		fmt.Fprintf(&lines, `{"method":"POST","path":"/api/share/x/sync","body":{"data":[{"type":"message","data":{"id":"m%d","text":%q}}]}}`+"\n", i, strings.Repeat("x", 80<<10))
	}
	file := r.file("large.jsonl", lines.String())
	cmd := exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprintf(`ulimit -S -f %d && exec "$0" "$@"`, (512<<10)/512),
		mooringProgram(), "session", "import", file, "--home", r.home())
	said, err := cmd.CombinedOutput()
	found := regexp.MustCompile(`mooring: line (\d+): .*disk_full.*; (\d+) of 13 ops safe in the outbox: import the file again`).FindSubmatch(said)
	if err == nil || found == nil {
		t.Fatalf("on a full disk: %v, %s", err, said)
	}
	if line, _ := strconv.Atoi(string(found[1])); string(found[2]) != fmt.Sprint(line-1) {
		t.Errorf("it says %s", said)
	}
	r.start()
	id := strings.TrimSpace(r.ok("session", "import", file))
	keys := r.keys(id)
	if eachOnce(t, keys, "m", batches); len(keys) != 1+batches {
		t.Errorf("%d events", len(keys))
	}
}

// What an import shows: a bar for each of its steps on a terminal, a line elsewhere,
// and nothing of what was done before.
func TestProgress(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	file := opencodetest.Path(t, "a-edit-1.18.33.jsonl")
	term := newPTY(t)
	args := []string{"session", "import", file, "--owner", r.owner(), "--home", r.home()}
	var out lockbuf.Buffer
	if code := runContext(t.Context(), args, strings.NewReader(""), &out, term.tty); code != cli.ExitOK {
		t.Fatalf("exit %d, %s", code, term.shown.String())
	}
	term.until("new ops\r\n")
	for _, bar := range []string{`\rbytes read +\d+% \|.{30}\| \(\d+/79869\)`, `\rops saved +\d+% \|.{30}\| \(\d+/175\)`, `\rops sent +\d+% \|.{30}\| \(\d+/175\)`} {
		if !regexp.MustCompile(bar).MatchString(term.shown.String()) {
			t.Errorf("the terminal shows %q, without %q", term.shown.String(), bar)
		}
	}
	if shown := regexp.MustCompile(`ops sent[^\r]*\n`).FindString(term.shown.String()); shown != "" {
		t.Errorf("the bar stays: %q", shown)
	}
	// In a pipe: lines, of what there was to send.
	if got := r.runIn("", "session", "import", file); got.err != "nothing new: all of it was imported before\n" {
		t.Errorf("again: %q", got.err)
	}
	if got := r.runIn("", "session", "import", file, "--json"); got.err != "" {
		t.Errorf("as JSON: %q", got.err)
	}
	small := `{"method":"POST","path":"/api/share","body":{"sessionID":"ses_small"}}` + "\n"
	message := func(id string) string {
		return `{"method":"POST","path":"/api/share/x/sync","body":{"data":[{"type":"message","data":{"id":"` + id + `"}}]}}` + "\n"
	}
	got := r.runIn("", "session", "import", r.file("small.jsonl", small+message("one")))
	before := `^(` + slowLines.String() + `)*`
	want := regexp.MustCompile(before + `ops sent: 2 of 2\nimported ses_small: 1 batch, 2 new ops\n$`)
	if !want.MatchString(got.err) {
		t.Errorf("in a pipe: %q", got.err)
	}
	// What waited from before is shown as sent, and nothing else.
	r.stop()
	grown := r.file("grown.jsonl", small+message("one")+message("late"))
	r.ok("session", "import", grown)
	r.start()
	if got := r.runIn("", "session", "import", grown); !regexp.MustCompile(before + `ops sent: 1 of 1\n`).MatchString(got.err) {
		t.Errorf("gone on: %q", got.err)
	}
}

// TestImportWithoutWhatIsTooLarge: one part that is too large need not keep a session out.
func TestImportWithoutWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	file := filepath.Join(r.dir, "large.json")
	export := `{"info":{"id":"ses_large"},"messages":[{"info":{"id":"msg_1"},"parts":[{"id":"prt_1","messageID":"msg_1","text":"` + strings.Repeat("x", 5<<20) + `"}]}]}`
	if err := os.WriteFile(file, []byte(export), 0o600); err != nil {
		t.Fatal(err)
	}
	r.fails(cli.ExitRefused, "--skip-too-large", "session", "import", file, "--owner", r.owner())
	got := r.runIn("", "session", "import", file, "--owner", r.owner(), "--skip-too-large")
	if got.code != cli.ExitOK || !strings.Contains(got.err, "left out part/msg_1/prt_1") {
		t.Fatalf("exit %d: %s", got.code, got.err)
	}
	if text := r.ok("session", "export", "ses_large"); !strings.Contains(text, "msg_1") || strings.Contains(text, "prt_1") {
		t.Errorf("the export is %.200s", text)
	}
}
