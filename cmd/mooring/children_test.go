//go:build unix

package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// A session with children: made with a server and without one, listed, exported and imported again, and what
// is no parent.
func TestChildren(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	create := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(r.ok(append([]string{"session", "create"}, args...)...))
	}
	first := create("--parent", id, "--part", "message/msg_1", "--external", "ses_child")
	r.okIn(putLine("x"), "session", "append", first, "-", "--wait")
	below := create("--parent", first)
	alone := create("--label", "alone", "--to", filepath.Join(r.dir, "alone.ref"))
	r.stop()
	second := create("--parent", id)
	for range 4 { // the server does not know their parents yet
		create("--parent", create())
	}
	r.start()
	r.ok("outbox", "drain")

	if out := r.ok("session", "children", id); strings.Count(out, "\n") != 3 || !strings.Contains(out, first+"  ") || !strings.Contains(out, "message/msg_1\n") || !strings.Contains(out, second) || strings.Contains(out, below) {
		t.Errorf("the children are\n%s", out)
	}
	var one struct{ ID, Key string }
	if err := json.Unmarshal([]byte(strings.SplitAfter(r.ok("session", "children", id, "--json"), "\n")[0]), &one); err != nil || one.ID != first || one.Key != "message/msg_1" {
		t.Errorf("--json prints %+v, %v", one, err)
	}
	if got := r.runIn("", "session", "children", alone); got.code != cli.ExitOK || got.out != "" || got.err != "the session has no children\n" {
		t.Errorf("without children: %+v", got)
	}
	for _, parent := range []string{id, "@" + filepath.Join(r.dir, "alone.ref")} {
		if got := r.ok("session", "list", "--parent", parent); strings.Contains(got, first) != (parent == id) || strings.Contains(got, below) || strings.Contains(got, alone) {
			t.Errorf("listed under %s:\n%s", parent, got)
		}
	}
	if out := r.ok("session", "show", first); !strings.Contains(out, "child of  "+id+", started by message/msg_1\n") {
		t.Errorf("show prints\n%s", out)
	}

	doc := r.ok("session", "export", id, "--children")
	if strings.Contains(r.ok("session", "export", id), "children") {
		t.Error("children are exported without --children")
	}
	home := r.otherHome("copy")
	r.okAs(home, "", "session", "list", "--owner", r.shareTo("team", r.owner(), "--rights", "create,list"))
	lines := strings.Fields(r.okAs(home, doc, "session", "import", "-"))
	if len(lines) != 4 {
		t.Fatalf("an import prints %v", lines)
	}
	if again := strings.Fields(r.okAs(home, doc, "session", "import", "-")); strings.Join(again, " ") != strings.Join(lines, " ") {
		t.Errorf("once more it prints %v, not %v", again, lines)
	}
	if got := r.okAs(home, "", "session", "export", lines[0], "--children"); got != doc {
		t.Errorf("exported again it is\n%s, and was\n%s", got, doc)
	}
	if out := r.okAs(home, "", "session", "show", lines[2]); !strings.Contains(out, "child of  "+lines[1]) {
		t.Errorf("a child's child is\n%s", out)
	}

	// opencode's own export of a child names its parent.
	in := `{"info":{"id":"ses_sub","parentID":"%s","title":"x"},"messages":[]}`
	sub := strings.TrimSpace(r.okIn(strings.Replace(in, "%s", "ses_child", 1), "session", "import", "-"))
	if out := r.ok("session", "show", sub); !strings.Contains(out, "child of  "+first+"\n") {
		t.Errorf("an import of a child is\n%s", out)
	}
	got := r.runIn(strings.Replace(strings.Replace(in, "%s", "ses_nobody", 1), "ses_sub", "ses_other", 1), "session", "import", "-")
	if got.code != cli.ExitOK || !strings.Contains(got.err, "its parent ses_nobody is not one of this home folder's sessions") {
		t.Errorf("of an unknown parent: %+v", got)
	}

	r.fails(cli.ExitRefused, "missing_right", "session", "create", "--parent", r.shareTo("reader", id, "--rights", "read"))
	r.fails(cli.ExitRefused, "bad_key", "session", "create", "--parent", id, "--part", "todo/1")
	r.fails(cli.ExitUsage, "--part is of --parent", "session", "create", "--part", "message/m")
	r.fails(cli.ExitUsage, "oldest first", "session", "list", "--parent", id, "--order", "newest")
}
