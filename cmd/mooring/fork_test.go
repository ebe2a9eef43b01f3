//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// A session that is forked: all of it, as it was at a cursor, and up to a message; with a server and
// without one; and what cannot be forked.
func TestFork(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	r.okIn(`{"method":"put","key":"message/msg_2","payload":{"role":"user"}}
{"method":"put","key":"part/msg_2/p","payload":{"type":"text","text":"again"}}
{"method":"put","key":"todo/1","payload":{"title":"paint"}}
`, "session", "append", id, "-", "--wait")
	state := func(id string) string {
		t.Helper()
		text := r.ok("session", "export", id)
		var all map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		return string(all["messages"]) + string(all["state"])
	}
	whole := state(id)
	fork := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(r.ok(append([]string{"session", "fork", id}, args...)...))
	}
	if got := state(fork()); got != whole {
		t.Errorf("a fork has\n%s, its source\n%s", got, whole)
	}
	if got := state(fork("--at", "message/msg_1")); strings.Contains(got, "msg_2") || strings.Contains(got, "again") || !strings.Contains(got, "msg_1") || !strings.Contains(got, "paint") {
		t.Errorf("a fork up to a message has\n%s", got)
	}
	var last struct {
		Cursor uint64
		Hash   string
	}
	lines := strings.Split(strings.TrimSpace(r.ok("session", "tail", id, "--json")), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-2]), &last); err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprint(last.Cursor)
	if got := state(fork("--at", at)); strings.Contains(got, "paint") || !strings.Contains(got, "again") {
		t.Errorf("a fork at cursor %s has\n%s", at, got)
	}
	fork("--at", at+":"+last.Hash)
	file := filepath.Join(r.dir, "fork.ref")
	var made struct {
		Session, Ref, Source string
		Queued               bool
	}
	if err := json.Unmarshal([]byte(fork("--json", "--to", file, "--label", "another way", "--external", "ses_other")), &made); err != nil || made.Source != id || made.Queued || !strings.HasPrefix(made.Ref, made.Session) {
		t.Errorf("--json prints %+v, %v", made, err)
	}
	var shown struct {
		Origin struct {
			Session, Message string
			Cursor           uint64
		}
	}
	up := fork("--at", "message/msg_1")
	if err := json.Unmarshal([]byte(r.ok("session", "show", up, "--json")), &shown); err != nil || shown.Origin.Session != id || shown.Origin.Cursor != last.Cursor+1 || shown.Origin.Message != "msg_1" {
		t.Errorf("what was forked: %+v, %v", shown, err)
	}
	if out := r.ok("session", "show", up); !strings.Contains(out, "forked from  "+id+" at cursor 6, up to message/msg_1\n") {
		t.Errorf("show prints\n%s", out)
	}
	if out := r.ok("session", "list", "--search", id); strings.Count(out, "\n") != 8 || !strings.Contains(out, up) { // the head, the session, its forks
		t.Errorf("searched by the id of the forks' source:\n%s", out)
	}
	// What it was forked from survives its export and import.
	doc, elsewhere := r.ok("session", "export", up), r.otherHome("elsewhere")
	r.okAs(elsewhere, "", "session", "list", "--owner", r.shareTo("team", r.owner(), "--rights", "create,list"))
	brought := strings.TrimSpace(r.okAs(elsewhere, doc, "session", "import", "-"))
	if out := r.okAs(elsewhere, "", "session", "show", brought); brought == up || !strings.Contains(out, "forked from  "+id+" at cursor 6, up to message/msg_1\n") {
		t.Errorf("imported it is\n%s", out)
	}
	if out := r.ok("session", "list", "--search", id); !strings.Contains(out, brought) {
		t.Errorf("the forks of the source, one of them imported:\n%s", out)
	}
	if got := r.okAs(elsewhere, "", "session", "export", brought); !strings.Contains(doc, "origin") || got != doc {
		t.Errorf("exported again it is\n%s, and was\n%s", got, doc)
	}

	if got := state("@" + file); got != whole {
		t.Errorf("the ref in the file is of\n%s", got)
	}

	before := r.ok("session", "list")
	for words, args := range map[string][]string{
		"not_found":      {"--at", "message/none"},
		"at is 9999":     {"--at", "9999"},
		"at_hash":        {"--at", at + ":" + strings.Repeat("ab", 32)},
		"already_exists": {"--external", "ses_other"},
		"exists already": {"--to", file},
	} {
		r.fails(cli.ExitRefused, words, append([]string{"session", "fork", id}, args...)...)
	}
	for _, at := range []string{"0", "-1", "x", "message/", "message/a b", "part/m/p", "todo/1"} {
		r.fails(cli.ExitUsage, "--at", "session", "fork", id, "--at", at)
	}
	r.fails(cli.ExitUsage, "space's ref", "session", "fork", id, "--owner", id)
	if after := r.ok("session", "list"); after != before {
		t.Errorf("refused forks changed the list:\n%s\n%s", before, after)
	}
	if refs := r.ok("outbox", "status", "--json"); strings.Contains(refs, `"pending":1`) {
		t.Errorf("refused forks are pending: %s", refs)
	}

	r.stop()
	queued := r.runIn("", "session", "fork", id, "--at", "message/msg_1")
	if queued.code != cli.ExitOK || !strings.Contains(queued.err, "durable in the outbox") {
		t.Fatalf("without a server: %+v", queued)
	}
	r.start()
	r.ok("outbox", "drain")
	if got := state(strings.TrimSpace(queued.out)); strings.Contains(got, "msg_2") || !strings.Contains(got, "paint") {
		t.Errorf("sent later, a fork has\n%s", got)
	}
}
