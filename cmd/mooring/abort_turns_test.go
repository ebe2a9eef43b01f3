//go:build unix

// Turns that nobody ends, at the command line.

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/writecmd"
	"github.com/mooring-rpc/mooring/internal/session"
)

func TestAbortTurns(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_turns")
	aborted := func(args ...string) (a writecmd.AbortedTurns) {
		t.Helper()
		if err := json.Unmarshal([]byte(r.ok(append([]string{"session", "abort-turns", id, "--json"}, args...)...)), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	begin := func(label string, n int) string {
		var lines strings.Builder
		for i := range n {
			fmt.Fprintf(&lines, `{"method":"begin","message":"%s%d","payload":{"role":"assistant"}}`+"\n", label, i)
		}
		return lines.String()
	}
	if got := r.ok("session", "abort-turns", id); got != "no turn is open\n" {
		t.Errorf("of none: %q", got)
	}
	// Who may append alone has all the turns of the ref: another home with it waits, and the
	// session's owner does not.
	guest := r.shareTo("guest", id, "--rights", "read,append")
	home, other := r.otherHome("guest"), r.otherHome("other")
	r.okAs(home, begin("g", session.MaxOpenTurns), "session", "append", guest, "--wait")
	r.okAs(other, begin("other", 1), "session", "append", guest)
	if st := r.okAs(other, "", "outbox", "status"); !strings.Contains(st, "overloaded: 256 turns are open under ref "+id) || !strings.Contains(st, "mooring session abort-turns") {
		t.Errorf("status: %s", st)
	}
	r.okIn(begin("o", 1), "session", "append", id, "--wait")
	r.refusedAs(home, "", []string{"missing_right"}, "session", "abort-turns", guest, "--dead")
	if got := r.refusedAs(other, "", []string{"not_your_turn", "revoke"}, "session", "abort-turns", guest); got.out != "aborted 0 turns; 257 refused\n" {
		t.Errorf("%+v", got)
	}
	if got := aborted("--dead"); got != (writecmd.AbortedTurns{Session: id, Dead: true, Left: session.MaxOpenTurns + 1}) {
		t.Errorf("while all refs live: %+v", got)
	}
	text, err := os.ReadFile(strings.TrimPrefix(guest, "@"))
	if err != nil {
		t.Fatal(err)
	}
	r.ok("revoke", strings.TrimSpace(string(text)))
	if got := r.ok("session", "abort-turns", id, "--dead"); got != "aborted 256 turns; 1 left, not of refs known to be dead\n" {
		t.Errorf("of dead refs: %q", got)
	}
	if got := aborted(); got != (writecmd.AbortedTurns{Session: id, Aborted: 1}) {
		t.Errorf("of all: %+v", got)
	}
	r.fails(cli.ExitUsage, "", "session", "abort-turns")
}
