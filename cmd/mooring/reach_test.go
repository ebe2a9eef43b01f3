//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// A ref that was shared --with-children: REF/ID stands for a session below in every command that takes a
// session, until the ref ends in all of them.
func TestShareWithChildren(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	create := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(r.ok(append([]string{"session", "create", "--owner", r.owner()}, args...)...))
	}
	id := create()
	child := create("--parent", id)
	r.okIn(putLine("a"), "session", "append", child, "--wait")
	reader := r.shareTo("reader", id, "--rights", "read,append", "--with-children")
	writer := r.shareTo("writer", id, "--rights", "read,append", "--with-children", "--child-rights", "read,append")
	plain := r.shareTo("plain", id, "--rights", "read")
	grand := create("--parent", child) // which comes later
	r.okIn(putLine("g"), "session", "append", grand, "--wait")

	guest := r.otherHome("guest")
	for _, in := range []string{reader + "/" + child, reader + "/" + grand, writer + "/" + grand} {
		for _, args := range [][]string{{"session", "show", in}, {"session", "stat", in}, {"session", "export", in}, {"session", "verify", in}, {"session", "children", in}} {
			r.okAs(guest, "", args...)
		}
	}
	for _, in := range []string{reader, reader + "/" + child, r.owner() + "/" + id} {
		if out := r.okAs(guest, "", "session", "export", in, "--children"); !strings.Contains(out, `"id":"g"`) {
			t.Errorf("the export of %s with its children has no grandchild: %s", in, out)
		}
	}
	if got := r.runAs(guest, "", "session", "export", plain, "--children"); got.code != 0 || !strings.Contains(got.err, "left out the child "+child) {
		t.Errorf("without reach: %+v", got)
	}
	if out := r.okAs(guest, "", "session", "get", reader+"/"+child, "message/a"); !strings.Contains(out, `"id":"a"`) {
		t.Errorf("a key of the child: %s", out)
	}
	r.okAs(guest, putLine("b"), "session", "append", writer+"/"+child, "--wait")
	r.refusedAs(guest, putLine("c"), []string{"missing_right"}, "session", "append", reader+"/"+child, "--wait")
	r.refusedAs(guest, "", []string{"missing_right"}, "session", "show", plain+"/"+child)
	r.refusedAs(guest, "", []string{"not_found"}, "session", "show", reader+"/"+id)
	for words, args := range map[string][]string{"has one /": {"session", "show", reader + "/" + child + "/" + grand}, "ends nothing": {"revoke", reader + "/" + child},
		"another ref": {"redeem", reader + "/" + child}} {
		if got := r.runAs(guest, "", args...); got.code != cli.ExitUsage || !strings.Contains(got.err, words) {
			t.Errorf("%v: %+v", args, got)
		}
	}
	r.refusedAs(guest, "", []string{"missing_right"}, "share", reader+"/"+child, "--rights", "read")

	shown := r.okAs(guest, "", "redeem", writer)
	if !strings.Contains(shown, "in children") || !strings.Contains(shown, "read,append") {
		t.Errorf("redeem prints\n%s", shown)
	}
	if out := r.ok("refs", id); !strings.Contains(out, "children read+append") || strings.Count(out, "children read") != 2 {
		t.Errorf("refs prints\n%s", out)
	}
	for words, args := range map[string][]string{
		"--with-children and --message": {"--rights", "read", "--with-children", "--message", "m"}, "--with-children and --from": {"--rights", "read", "--with-children", "--from", "3"},
		"--with-children and --read-keys": {"--rights", "read", "--with-children", "--read-keys", "todo/"}, "--child-rights": {"--rights", "read", "--child-rights", "read"},
		"in children the ref would carry append": {"--rights", "read", "--with-children", "--child-rights", "append"}, "name some of read": {"--rights", "read,share", "--with-children", "--child-rights", "share"},
		"is not a right": {"--rights", "read", "--with-children", "--child-rights", "fly"},
	} {
		r.fails(cli.ExitUsage, words, append([]string{"share", id}, args...)...)
	}
	r.fails(cli.ExitRefused, "not for this kind of ref", "share", r.owner(), "--rights", "read", "--with-children")
	audited := func(of string) (n int) {
		for _, row := range r.auditRows(of) {
			if row.Act == "revoke" {
				n++
			}
		}
		return n
	}

	out := r.ok("revoke", writer, "--json")
	var cut struct {
		Cut      uint64
		Children []struct {
			Session string
			Cut     uint64
		}
		Count int `json:"children_count"`
	}
	if err := json.Unmarshal([]byte(out), &cut); err != nil || cut.Count != 2 || len(cut.Children) != 2 || cut.Children[0].Cut == 0 {
		t.Errorf("revoke prints %s (%v)", out, err)
	}
	r.refusedAs(guest, "", []string{"revoked"}, "session", "show", writer+"/"+child)
	r.okAs(guest, "", "session", "show", reader+"/"+child)
	if out := r.ok("revoke", "--epoch", id); !strings.Contains(out, "one in each of 2 sessions below") {
		t.Errorf("revoke --epoch prints %s", out)
	}
	r.refusedAs(guest, "", []string{"stale_epoch"}, "session", "show", reader+"/"+grand)
	if n := audited(child); n != 2 {
		t.Errorf("the child's audit has %d revokes", n)
	}
}
