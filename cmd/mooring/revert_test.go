//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// A session that is reverted and shown again, with a server and without one; and what is refused.
func TestRevert(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	r.okIn(`{"method":"put","key":"message/msg_2","payload":{"role":"user"}}
{"method":"put","key":"part/msg_2/p","payload":{"type":"text","text":"again"}}
{"method":"put","key":"todo/1","payload":{"title":"paint"}}
`, "session", "append", id, "-", "--wait")
	whole := r.ok("session", "ls", id)
	if out := r.ok("session", "revert", id, "--to", "message/msg_2"); !strings.Contains(out, "reverted to message/msg_2 at cursor ") {
		t.Errorf("it says %s", out)
	}
	if got := r.ok("session", "ls", id); strings.Contains(got, "msg_2") || !strings.Contains(got, "msg_1") || !strings.Contains(got, "todo/1") {
		t.Errorf("reverted, it has\n%s", got)
	}
	if out := r.ok("session", "revert", id, "--to", "message/msg_2"); !strings.Contains(out, "already") {
		t.Errorf("again, it says %s", out)
	}
	if out := r.ok("session", "show", id); !strings.Contains(out, "reverted to  message/msg_2, by owner at cursor ") {
		t.Errorf("it shows\n%s", out)
	}
	if out := r.ok("session", "show", strings.TrimSpace(r.ok("share", id, "--rights", "read", "--message", "msg_1"))); !strings.Contains(out, "reverted to  what the ref does not show, at cursor ") {
		t.Errorf("to a ref of a message it shows\n%s", out)
	}
	if out := r.ok("session", "export", id); strings.Contains(out, "again") {
		t.Errorf("it exports\n%s", out)
	}
	if out := r.ok("session", "search", id, "again"); strings.Contains(out, "msg_2") {
		t.Errorf("it finds\n%s", out)
	}
	r.fails(cli.ExitRefused, "reverted", "session", "fork", id, "--at", "message/msg_2")
	r.ok("session", "verify", id)
	if out := r.ok("session", "unrevert", id); !strings.Contains(out, "message/msg_2 and what comes after it is shown again") {
		t.Errorf("it says %s", out)
	}
	if got := r.ok("session", "ls", id); got != whole {
		t.Errorf("shown again, it has\n%s, where there was\n%s", got, whole)
	}
	r.fails(cli.ExitRefused, "nothing to take back", "session", "unrevert", id)
	r.fails(cli.ExitRefused, "there is no message/other", "session", "revert", id, "--to", "message/other")
	for _, to := range []string{"", "todo/1", "message/", "-1", "msg_2"} {
		r.fails(cli.ExitUsage, "--to", "session", "revert", id, "--to="+to)
	}

	r.ok("session", "revert", id, "--to", "message/msg_2", "--json")
	r.okIn(`{"method":"put","key":"message/msg_3","payload":{"role":"user"}}`+"\n", "session", "append", id, "-", "--wait")
	if got := r.ok("session", "ls", id); strings.Contains(got, "msg_2") || !strings.Contains(got, "msg_3") {
		t.Errorf("settled, it has\n%s", got)
	}
	r.fails(cli.ExitRefused, "not_reverted", "session", "unrevert", id)
	r.ok("session", "verify", id)
}
