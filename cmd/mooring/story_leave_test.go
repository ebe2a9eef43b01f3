//go:build unix

// A session whose stream has stopped for good: what says so, and the ways on.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// restoredCLI is a server that was restored to an earlier copy, and has forgotten what an
// agent with a home folder of its own appended to a session under a ref.
func restoredCLI(t *testing.T) (r *cliRig, session, home, ref string) {
	t.Helper()
	r = newCLI(t, "")
	session, home = r.create("ses_left"), r.otherHome("agent")
	ref = r.shareTo("agent", session, "--rights", "read,append,share,revoke")
	wait := func(id string) { r.okAs(home, putLine(id), "session", "append", ref, "--wait") }
	wait("kept")
	r.stop()
	backup := r.otherHome("backup")
	copyFolder(t, backup, r.data())
	r.start()
	wait("lost_1")
	wait("lost_2")
	r.stop()
	putBack(t, r.data(), backup)
	r.start()
	return r, session, home, ref
}

// Done means done: nothing that is queued where nothing is sent any more passes for it.
func TestNothingIsDoneOnAStoppedStream(t *testing.T) {
	t.Parallel()
	r, session, home, ref := restoredCLI(t)
	message := []string{"server_behind", session, "mooring outbox reconcile " + session, "mooring outbox abandon " + session}
	r.refusedAs(home, putLine("late"), append(message, "durable in the outbox and not sent"), "session", "append", ref, "--wait")
	file := filepath.Join(r.dir, "never.ref")
	for _, away := range []bool{false, true} {
		if away {
			r.stop()
		}
		for _, args := range [][]string{
			{"share", ref, "--rights", "read", "--to", file}, {"share", ref, "--rights", "read"}, {"session", "purge", ref, "message/kept", "--yes"},
			{"session", "append", ref, r.file("op", putLine("later"))},
		} {
			if got := r.refusedAs(home, "", message, args...); args[0] == "share" && got.out != "" {
				t.Errorf("share prints %q", got.out)
			}
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("there is a file: %v", err)
		}
	}
	r.start()
	void := r.okAs(home, "", "outbox", "list", "--state", "void", "--json")
	op := void[strings.Index(void, `"op":"`)+6:][:26]
	got := r.refusedAs(home, "", append(message, "committed again and not sent"), "outbox", "retry", op)
	if got := r.runAs(home, "", "outbox", "drop", strings.TrimSpace(got.out)); got.code != cli.ExitOK && !strings.Contains(got.err, "given up") {
		t.Errorf("drop of one that has its place or not: exit %d, %q", got.code, got.err)
	}

	// Once the stream is left what was taken back is not done after all, and what was
	// appended is.
	refs := strings.Count(r.ok("refs", session), "\n")
	r.okAs(home, "", "outbox", "reconcile", session, "--yes")
	r.okAs(home, "", "outbox", "drain")
	keys := r.keys(session)
	if count(keys, "kept") != 1 || count(keys, "late") != 1 || count(keys, "later") != 1 || count(keys, "lost_1") != 1 {
		t.Errorf("the events are of %q", keys)
	}
	if n := strings.Count(r.ok("refs", session), "\n"); n != refs {
		t.Errorf("there are %d refs, and were %d", n, refs)
	}
}

func TestAnAbandonedSessionGoesOn(t *testing.T) {
	t.Parallel()
	r, session, home, ref := restoredCLI(t)
	r.refusedAs(home, putLine("late"), []string{"server_behind"}, "session", "append", ref, "--wait")
	sent := r.okAs(home, "", "outbox", "list", "--state", "pending,in_flight", "--json")
	r.refusedAs(home, "", []string{"given up, and its place in the stream not settled", "mooring outbox abandon " + session},
		"outbox", "drop", sent[strings.Index(sent, `"op":"`)+6:][:26])
	if got := r.runAs(home, "", "outbox", "abandon", session); got.code != cli.ExitUsage || !strings.Contains(got.err, "--yes") {
		t.Errorf("unasked: exit %d, %q", got.code, got.err)
	}
	got := r.okAs(home, "", "outbox", "abandon", session, "--yes")
	if !strings.Contains(got, "abandoned\n") || !strings.Contains(got, "1 op given up") {
		t.Errorf("it prints %q", got)
	}
	if list := r.okAs(home, "", "outbox", "list", "--state", "void"); !strings.Contains(list, "abandoned") {
		t.Errorf("the list is %q", list)
	}
	r.okAs(home, putLine("next"), "session", "append", ref, "--wait")
	r.okAs(home, "", "share", ref, "--rights", "read")
	keys := r.keys(session)
	if count(keys, "kept") != 1 || count(keys, "next") != 1 || count(keys, "late")+count(keys, "lost_1") != 0 {
		t.Errorf("the events are of %q", keys)
	}
	if st := r.statusOf(home); len(st.Streams) != 0 || st.States["void"] != 1 {
		t.Errorf("outbox status: %+v", st)
	}
	r.refusedAs(home, "", []string{"not_found"}, "outbox", "abandon", "ses_01JABCDEFGHJKMNPQRSTVWXYZ0", "--yes")
}

func TestAReconciledSessionHasAllAgain(t *testing.T) {
	t.Parallel()
	r, session, home, ref := restoredCLI(t)
	r.refusedAs(home, putLine("late"), []string{"server_behind"}, "session", "append", ref, "--wait")
	got := r.refusedAs(home, "", []string{"canceled", "--yes sends 2 ops again"}, "outbox", "reconcile", session)
	if n := strings.Count(got.out, "sent_again  "); n != 2 || strings.Count(got.out, "waits  ") != 1 || !strings.Contains(got.out, "put message/lost_1  as ") {
		t.Errorf("it shows\n%s", got.out)
	}
	if keys := r.keys(session); count(keys, "lost_1") != 0 {
		t.Errorf("unasked it was done: %q", keys)
	}
	got2 := r.okAs(home, "", "outbox", "reconcile", "--yes")
	if !strings.Contains(got2, session+": 2 ops sent again and in the log\n") {
		t.Errorf("it says\n%s", got2)
	}
	r.okAs(home, "", "outbox", "drain")
	keys := r.keys(session)
	n := len(keys)
	if n < 3 || keys[n-3] != "message/lost_1" || keys[n-2] != "message/lost_2" || keys[n-1] != "message/late" || count(keys, "kept") != 1 {
		t.Errorf("the events are of %q", keys)
	}
	// Again it changes nothing, and all goes on.
	if got := r.okAs(home, "", "outbox", "reconcile"); !strings.Contains(got, session+": nothing is missing\n") || strings.Contains(got, "sent_again") {
		t.Errorf("again it says\n%s", got)
	}
	r.okAs(home, putLine("next"), "session", "append", ref, "--wait")
	if keys := r.keys(session); len(keys) != n+1 {
		t.Errorf("the events are of %q", keys)
	}

	// Who may not read cannot tell what is missing.
	blind := r.shareTo("blind", session, "--rights", "append")
	r.okAs(r.otherHome("blind"), putLine("unseen"), "session", "append", blind, "--wait")
	r.refusedAs(r.otherHome("blind"), "", []string{"missing_right", "redeem one that may", "mooring outbox abandon"}, "outbox", "reconcile", session, "--yes")

	// Nor who sees only a part of the log.
	late := r.shareTo("late", session, "--rights", "read,append", "--from", "3")
	r.okAs(r.otherHome("late"), putLine("seen"), "session", "append", late, "--wait")
	r.refusedAs(r.otherHome("late"), "", []string{"missing_right", "only a part of its log"}, "outbox", "reconcile", session, "--yes")
}
