//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// A session that another made, by the right manage: SPACE/ID stands for it in every command that takes a
// session, in any form of SPACE, and the agent's own ref goes on.
func TestASessionOfTheSpace(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	maker := r.shareTo("maker", r.owner(), "--rights", "create")
	agent := r.otherHome("agent")
	session := `[{"type":"session","data":{"id":"theirs","title":"theirs"}}]`
	id := strings.TrimSpace(r.okAs(agent, session, "session", "import", "-", "--owner", maker))
	r.okAs(agent, putLine("a"), "session", "append", id, "--wait")
	in := r.owner() + "/" + id
	r.okIn(putLine("b"), "session", "append", in, "--wait")
	for _, args := range [][]string{{"session", "show", in}, {"session", "stat", in}, {"session", "get", in, "message/b"}, {"audit", in}, {"refs", in}, {"session", "verify", in}} {
		if got := r.ok(args...); got == "" {
			t.Errorf("%v says nothing", args)
		}
	}
	guest := r.shareTo("guest", in, "--rights", "read")
	r.okAs(r.otherHome("guest"), "", "session", "show", guest)
	r.ok("session", "purge", in, "message/a", "--yes")
	r.ok("revoke", "--epoch", in)
	r.refusedAs(r.otherHome("guest"), "", []string{"stale_epoch"}, "session", "show", guest)
	r.okAs(agent, putLine("c"), "session", "append", id, "--wait")

	r.fails(cli.ExitUsage, "--take-over", "rotate", in)
	r.fails(cli.ExitRefused, "does not reach", "session", "show", guest+"/"+id)
	r.fails(cli.ExitUsage, "mooring share", "link", in)
	r.fails(cli.ExitUsage, "mooring share", "session", "fork", in)
	r.fails(cli.ExitUsage, "mooring share", "session", "create", "--parent", in)
	r.refusedAs(r.otherHome("maker"), "", []string{"missing_right"}, "session", "show", maker+"/"+id)
	owner, _, _ := strings.Cut(r.ok("rotate", in, "--take-over"), "\n")
	r.refusedAs(agent, putLine("d"), []string{"revoked"}, "session", "append", id, "--wait")
	r.fails(cli.ExitRefused, "not_an_owner", "revoke", r.owner()+"/"+owner, "--yes")
	r.ok("revoke", r.owner()+"/"+owner, "--yes", "--take-over")
	r.ok("session", "delete", in, "--yes")
}

// A space that is older than the right manage: its audit says, once, that its root ref has it.
func TestTheAuditSaysThatRootsManage(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	says := func() (n int) {
		for _, row := range r.auditRows(r.owner()) {
			if row.Act == "manage" && row.Actor == "operator" {
				n++
			}
		}
		return n
	}
	if n := says(); n != 0 {
		t.Errorf("a new space's audit says it %d times", n)
	}
	r.stop()
	r.sql("INSERT INTO meta (name, value) VALUES ('manage', 'pending')") // as the migration does
	for range 2 {
		r.start()
		if !r.soon(func() bool { return says() > 0 }) {
			t.Fatal("the audit does not say it")
		}
		r.stop()
	}
	r.start()
	if n := says(); n != 1 {
		t.Errorf("the audit says it %d times", n)
	}
}

// What opencode shares is its space's owner's to list, read, share on, purge, revoke and delete, also when
// whoever shared it has lost its secret, while the server runs.
func TestSharesOfOpencodeAreTheOwners(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		at := "http://" + r.proxy.Addr()
		share := createShare(t, at, "ses_shared")
		sync := func(data string) int {
			status, _ := ask(t, "POST", at+"/api/share/"+share.ID+"/sync", fmt.Sprintf(`{"secret":%q,"data":%s}`, share.Secret, data))
			return status
		}
		if got := sync(`[{"type":"session","data":{"id":"ses_shared","title":"a leak"}},{"type":"message","data":{"id":"msg_1","sessionID":"ses_shared","role":"user","text":"` + leakedKey + `"}}]`); got != 200 {
			t.Fatalf("sync: %d", got)
		}
		var listed struct{ ID, Title string }
		if err := json.Unmarshal([]byte(r.ok("session", "list", "--owner", r.owner(), "--search", "a leak", "--json")), &listed); err != nil || listed.Title != "a leak" {
			t.Fatalf("listed: %+v, %v", listed, err)
		}
		in := r.owner() + "/" + listed.ID
		if got := r.ok("session", "export", in); !strings.Contains(got, leakedKey) {
			t.Errorf("exported: %s", got)
		}
		reader := r.shareTo("reader", in, "--rights", "read")
		r.okAs(r.otherHome("reader"), "", "session", "show", reader)
		r.ok("session", "purge", in, "message/msg_1", "--yes")
		if got := r.ok("session", "export", in); strings.Contains(got, leakedKey) {
			t.Errorf("after the purge: %s", got)
		}
		if got := sync(`[{"type":"message","data":{"id":"msg_2","sessionID":"ses_shared","role":"user"}}]`); got != 200 {
			t.Errorf("opencode goes on: %d", got)
		}
		writer := ""
		for line := range strings.Lines(r.ok("refs", in, "--json")) {
			var ref struct {
				Ref    string
				Rights []string
				Owner  bool
			}
			if err := json.Unmarshal([]byte(line), &ref); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(ref.Rights, "append") && !ref.Owner {
				writer = ref.Ref
			}
		}
		r.ok("revoke", r.owner()+"/"+writer)
		if got := sync(`[{"type":"message","data":{"id":"msg_3","sessionID":"ses_shared","role":"user"}}]`); got == 200 {
			t.Error("opencode writes under a revoked ref")
		}
		r.ok("session", "delete", in, "--yes")
		r.fails(cli.ExitRefused, "session_deleted", "session", "export", in)
	})
}
