//go:build unix

// Sessions as UIMessages of the AI SDK: exported, imported elsewhere, and what is refused.

package main

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
)

func TestUIMessages(t *testing.T) {
	t.Parallel()
	r, other := newCLI(t, ""), newCLI(t, "")
	id := strings.TrimSpace(r.ok("session", "import", opencodetest.Path(t, "a-edit-1.18.33.jsonl"), "--owner", r.owner()))
	r.okIn(`{"method":"put","key":"todo/1","payload":{}}`, "session", "append", id, "-", "--wait")
	got := r.runIn("", "session", "export", id, "--format", "uimessage")
	if got.code != cli.ExitOK || got.err != "left out 2 values of other kinds: UIMessages have no place for them\n" || !strings.HasPrefix(got.out, "[\n{\"id\":\"msg_") {
		t.Fatalf("%+v", got)
	}
	file := other.file("chat.json", got.out)
	again := strings.TrimSpace(other.ok("session", "import", file, "--owner", other.owner()))
	if out := other.ok("session", "export", again, "--format", "uimessage"); out != got.out {
		t.Errorf("imported, it is\n%s\nand it was\n%s", out, got.out)
	}
	if got := other.runIn("", "session", "import", file); got.err != "nothing new: all of it was imported before\n" {
		t.Errorf("again: %+v", got)
	}

	// A chat of another program, which grows.
	chat := `[{"id":"2","role":"user","metadata":{"createdAt":1795203728054},"parts":[{"type":"text","text":"Hello"}]},{"id":"1","role":"assistant","parts":[{"type":"text","text":"Hi"}]}`
	made := strings.TrimSpace(r.okIn(chat+"]", "session", "import", "-"))
	chat += `,{"id":"0","role":"user","parts":[{"type":"text","text":"And?"}]}]`
	if again := strings.TrimSpace(r.okIn(chat, "session", "import", "-", "--format", "uimessage")); again != made {
		t.Errorf("grown, it is %s and not %s", again, made)
	}
	if out := r.ok("session", "export", made, "--format", "uimessage"); strings.ReplaceAll(out, "\n", "") != chat {
		t.Errorf("it is\n%s", out)
	}
	if out := r.ok("session", "show", made); !strings.Contains(out, "title     Hello\n") {
		t.Errorf("it shows\n%s", out)
	}
	if other := strings.TrimSpace(r.okIn(chat, "session", "import", "-", "--external", "mine")); other == made || !strings.Contains(r.ok("session", "show", other), "external  mine\n") {
		t.Errorf("named, it is %s", other)
	}

	const formats = "--format is one of "
	r.fails(cli.ExitUsage, formats, "session", "export", id, "--format", "x")
	r.fails(cli.ExitUsage, formats, "session", "import", file, "--format", "x")
	r.fails(cli.ExitUsage, "have no place in UIMessages", "session", "export", id, "--format", "uimessage", "--children")
	r.fails(cli.ExitUsage, "--external is for UIMessages", "session", "import", opencodetest.Path(t, "a-edit-1.18.33.jsonl"), "--external", "x")
	r.failsIn(`[{"id":"1","role":"user","parts":[{"type":"text"}]}]`, cli.ExitRefused, "message 1: part 1: text without its text", "session", "import", "-")
	r.failsIn(`{}`, cli.ExitRefused, "not an array of UIMessages", "session", "import", "-", "--format", "uimessage")
	r.failsIn(chat, cli.ExitRefused, "item 1 is not {type, data}", "session", "import", "-", "--format", "opencode")
}
