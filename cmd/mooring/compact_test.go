//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
)

// A session that is compacted, and what is refused; its view, and what stays of it in an export that is imported again.
func TestCompact(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	r.okIn(`{"method":"put","key":"message/msg_2","payload":{"id":"msg_2","role":"user"}}
{"method":"put","key":"part/msg_2/p","payload":{"id":"p","messageID":"msg_2","type":"text","text":"in short"}}
{"method":"put","key":"todo/1","payload":{"title":"paint"}}
`, "session", "append", id, "-", "--wait")
	whole := r.ok("session", "ls", id)
	compact := []string{"session", "compact", id, "--upto", "message/msg_1", "--summary", "message/msg_2"}
	if out := r.ok(compact...); !strings.Contains(out, "compacted up to message/msg_1 at cursor ") {
		t.Errorf("it says %s", out)
	}
	if out := r.ok(compact...); !strings.Contains(out, "already") {
		t.Errorf("again, it says %s", out)
	}
	if got := r.ok("session", "ls", id); got != whole {
		t.Errorf("to others it has\n%s", got)
	}
	for _, order := range []string{"key", "put"} {
		if got := r.ok("session", "ls", id, "--compacted", "--order", order); strings.Contains(got, "msg_1") || !strings.Contains(got, "part/msg_2/p") || !strings.Contains(got, "todo/1") {
			t.Errorf("compacted, it has\n%s", got)
		}
	}
	if out := r.ok("session", "show", id); !strings.Contains(out, "compacted up to  message/msg_1, by owner at cursor ") {
		t.Errorf("it shows\n%s", out)
	}
	if out := r.ok("session", "show", id, "--json"); !strings.Contains(out, `"compacted":{"upto":"message/msg_1","summary":"message/msg_2"`) {
		t.Errorf("it shows\n%s", out)
	}
	if out := r.ok("session", "export", id, "--compacted"); strings.Contains(out, "msg_1") || !strings.Contains(out, "in short") || strings.Contains(out, `"compacted"`) {
		t.Errorf("it exports\n%s", out)
	}
	r.ok("session", "verify", id)
	export := r.ok("session", "export", id)
	if !strings.Contains(export, "\n  \"compacted\": {\"upto\": \"message/msg_1\", \"summary\": \"message/msg_2\"}") {
		t.Errorf("it exports\n%s", export)
	}
	other := newCLI(t, "")
	file := filepath.Join(t.TempDir(), "export.json")
	if err := os.WriteFile(file, []byte(export), 0o600); err != nil {
		t.Fatal(err)
	}
	again := strings.TrimSpace(other.ok("session", "import", file, "--owner", other.owner()))
	if got := other.ok("session", "export", again); got != export {
		t.Errorf("imported, it exports\n%s", got)
	}

	r.fails(cli.ExitRefused, "comes before", "session", "compact", id, "--upto", "message/msg_2", "--summary", "message/msg_1")
	r.fails(cli.ExitRefused, "there is no message/other", "session", "compact", id, "--upto", "message/other", "--summary", "message/msg_2")
	for _, key := range []string{"", "todo/1", "message/", "part/msg_2/p", "msg_2"} {
		r.fails(cli.ExitUsage, "--upto", "session", "compact", id, "--upto="+key, "--summary=message/msg_2")
		r.fails(cli.ExitUsage, "--summary", "session", "compact", id, "--upto=message/msg_2", "--summary="+key)
	}
	r.okIn(`{"method":"remove","key":"message/msg_2"}`+"\n", "session", "append", id, "-", "--wait")
	if out := r.ok("session", "show", id); strings.Contains(out, "compacted") {
		t.Errorf("without the summary, it shows\n%s", out)
	}
}

// What opencode has compacted is compacted here, once.
func TestImportsAreCompacted(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"b-long-1.18.33.jsonl", "b-long-1.18.33.export.json"} {
		r := newCLI(t, "")
		for range 2 {
			id := strings.TrimSpace(r.ok("session", "import", opencodetest.Path(t, file), "--owner", r.owner()))
			if out := r.ok("session", "show", id); !strings.Contains(out, "compacted up to  message/msg_1fa7ce641001e5IAmNU5Av1IJw, ") || !strings.Contains(out, "summary          message/msg_1fa7cfc05001XQ2UhTp930m4hf\n") {
				t.Errorf("%s: it shows\n%s", file, out)
			}
			if events := r.ok("session", "tail", id); strings.Count(events, "compact\t")+strings.Count(events, `"compact"`) > 1 {
				t.Errorf("%s: it is compacted more than once", file)
			}
			if got := r.ok("session", "ls", id, "message/", "--compacted"); strings.Count(got, "message/") != 4 {
				t.Errorf("%s: compacted, it has\n%s", file, got)
			}
		}
	}
}
