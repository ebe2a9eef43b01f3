//go:build unix

// Trees of refs, shares of a space, rotations, and the rescue on the server's machine.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/outbox"
)

// refLine is a line of refs --json.
type refLine struct {
	Ref, Parent, Actor, Label, State string
	Rights                           []string
	Created                          int64
}

func (r *cliRig) refs(ref string) (lines []refLine) {
	r.t.Helper()
	for text := bufio.NewScanner(strings.NewReader(r.ok("refs", ref, "--json"))); text.Scan(); {
		var line refLine
		if err := json.Unmarshal(text.Bytes(), &line); err != nil {
			r.t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestRefsDrawsTheTree(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id := r.create("ses_tree")
		helper := r.shareTo("helper", id, "--rights", "read,append,share,revoke", "--actor", "owner/helper", "--label", "the helper's", "--expires", "24h")
		home := r.otherHome("helper")
		sub := strings.TrimSpace(r.okAs(home, "", "share", helper, "--rights", "append", "--methods", "put,remove", "--redemptions", "3", "--to", filepath.Join(r.dir, "sub.ref")))
		r.shareTo("reader", id, "--rights", "read")

		lines := r.refs(id)
		if len(lines) != 4 || lines[0].Actor != "owner" || lines[0].State != "alive" || lines[0].Created == 0 {
			t.Fatalf("the tree: %+v", lines)
		}
		seen := map[string]bool{lines[0].Ref: true}
		for _, line := range lines[1:] {
			if !seen[line.Parent] {
				t.Errorf("%s comes before %s", line.Ref, line.Parent)
			}
			seen[line.Ref] = true
		}
		text := r.ok("refs", id)
		for _, words := range []string{"REF", "LAST USED", "├─ ", "└─ ", "│  └─ " + sub, "owner/helper", "the helper's", "(owner)", "until 20", "only put+remove, until", "0 of 3 redeemed", "alive"} {
			if !strings.Contains(text, words) {
				t.Errorf("%q is not in\n%s", words, text)
			}
		}
		// The helper sees what it may cut, and no more.
		if mine := r.okAs(home, "", "refs", helper); !strings.Contains(mine, sub) || strings.Contains(mine, lines[0].Ref) {
			t.Errorf("the helper's tree:\n%s", mine)
		}
		r.refusedAs(r.otherHome("reader"), "", []string{"missing_right"}, "refs", "@"+filepath.Join(r.dir, "reader.ref"))

		r.ok("revoke", helper)
		if text := r.ok("refs", id); strings.Count(text, "revoked at cut") != 2 {
			t.Errorf("after the revocation:\n%s", text)
		}
	})
}

func TestShareAndRevokeASpace(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	mine := r.create("ses_mine")
	team := filepath.Join(r.dir, "team.ref")
	id := strings.TrimSpace(r.ok("share", r.owner(), "--rights", "create,list", "--actor", "team", "--to", team))
	if !strings.HasPrefix(id, "spc_") {
		t.Errorf("shared %q", id)
	}
	if info, err := os.Stat(team); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the ref's file: %v, %v", info, err)
	}
	home := r.otherHome("team")
	r.okAs(home, `[{"type":"session","data":{"id":"ses_theirs","title":"x"}}]`, "session", "import", "-", "--owner", "@"+team)
	r.refusedAs(home, "", []string{"missing_right", "share"}, "share", "@"+team, "--rights", "list")
	r.refusedAs(home, "", []string{"missing_right", "revoke"}, "refs", "@"+team)
	if lines := r.refs(r.owner()); len(lines) != 4 {
		t.Errorf("the space's tree: %+v", lines)
	}
	if out := r.ok("revoke", "@"+team); out != "revoked; 2 refs died\n" {
		t.Errorf("revoke: %q", out)
	}
	r.refusedAs(home, putLine("y"), []string{"revoked"}, "session", "append", "ses_theirs", "--wait")
	r.okIn(putLine("y"), "session", "append", mine, "--wait")

	// A session's ref is cut under the space's, by who has no other for it.
	ref := r.shareTo("helper", mine, "--rights", "read")
	boss := r.otherHome("boss")
	r.okAs(boss, "", "session", "list", "--owner", r.owner())
	r.ok("redeem", ref)
	lines := r.refs(mine)
	if out := r.okAs(boss, "", "revoke", lines[len(lines)-1].Ref); out != "revoked; 1 ref died\n" {
		t.Errorf("revoke under the space: %q", out)
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id := r.create("ses_rotate")
		owners := r.refs(id)[0].Ref
		helper := r.shareTo("helper", id, "--rights", "read,append")
		out := r.ok("rotate", id)
		if !strings.Contains(out, "replaced "+owners+"; the cut is at cursor ") || strings.Contains(out, "#") {
			t.Errorf("rotate: %q", out)
		}
		r.okIn(putLine("a"), "session", "append", id, "--wait")
		r.okAs(r.otherHome("helper"), putLine("b"), "session", "append", helper, "--wait")
		r.refusedAs(r.otherHome("helper"), "", []string{"not_an_owner"}, "rotate", helper)
		if lines := r.refs(id); len(lines) != 2 || lines[0].Ref == owners {
			t.Errorf("the tree afterwards: %+v", lines)
		}
		kept := filepath.Join(r.dir, "kept.ref")
		if err := os.WriteFile(kept, readFile(t, r.owner()[1:]), 0o600); err != nil {
			t.Fatal(err)
		}

		// Queued without a server, and sent under the new one.
		r.stop()
		r.okIn(putLine("c"), "session", "append", id)
		r.start()
		r.ok("rotate", id)
		r.ok("outbox", "drain")
		if keys := r.keys(id); count(keys, "c") != 1 {
			t.Errorf("what waited: %q", keys)
		}

		// The space's: the file is the new one's, the copy of the old is dead.
		got := r.runIn("", "rotate", r.owner(), "--to", r.owner()[1:], "--json")
		if got.code != cli.ExitOK || strings.Contains(got.out, "#") {
			t.Fatalf("rotate the root: %+v", got)
		}
		r.ok("session", "list")
		r.okAs(r.otherHome("new"), "", "session", "list", "--owner", r.owner())
		r.refusedAs(r.otherHome("thief"), "", []string{"revoked"}, "session", "list", "--owner", "@"+kept)
		if info, err := os.Stat(r.owner()[1:]); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the ref's file: %v, %v", info, err)
		}
	})
}

// TestRotateRunAgain: the same command line, because the answer was lost or the
// process killed, gives what has taken the ref's place, and the file.
func TestRotateRunAgain(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_again")
	fresh := strings.Fields(r.ok("rotate", r.owner()))[0]
	got := r.runIn("", "rotate", r.owner(), "--to", r.owner()[1:])
	if got.code != cli.ExitOK || !strings.HasPrefix(got.out, fresh+"\nreplaced before: ") {
		t.Fatalf("rotated again: %+v", got)
	}
	if ref, err := capability.ParseRef(strings.TrimSpace(string(readFile(t, r.owner()[1:])))); err != nil || ref.ID != fresh {
		t.Errorf("the file has %v, %v", ref, err)
	}
	r.okAs(r.otherHome("new"), "", "session", "list", "--owner", r.owner())

	// Without a server it is begun, and says so; the next command finds it done.
	r.stop()
	for _, arg := range []string{id, r.owner()} {
		r.fails(cli.ExitRefused, "goes on with the next command", "rotate", arg)
	}
	r.start()
	r.ok("session", "list")
	if lines := r.refs(id); len(lines) != 1 || lines[0].State != "alive" {
		t.Errorf("the tree: %+v", lines)
	}
}

// TestRotateKilledBeforeItsAnswer: the server has done it, and the home does not
// know yet. The next command does not meet the dead ref.
func TestRotateKilledBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_killed")
	r.okAs(r.otherHome("another"), "", "session", "list", "--owner", r.owner())
	second := newCLI(t, "")
	r.ok("session", "list", "--owner", second.owner()) // two owners are known, and
	r.ok("session", "list", "--owner", r.owner())      // this is the last one used
	begun := map[string]capability.Ref{}
	offline, err := client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(r.home()), Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{id, mustRef(t, r.owner()).Target()} {
		old, err := offline.Outbox().RefFor(t.Context(), target, 0)
		if err != nil {
			t.Fatal(err)
		}
		begun[old.Text()] = beginRotation(t, offline, old.Ref, old.New(target))
	}
	if err := offline.Close(); err != nil {
		t.Fatal(err)
	}
	twin, err := client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(r.otherHome("twin"))})
	if err != nil {
		t.Fatal(err)
	}
	for text, made := range begun { // the same question, from elsewhere
		old, err := capability.ParseRef(text)
		if err != nil {
			t.Fatal(err)
		}
		rotate := func() error {
			s, err := twin.Session(t.Context(), old)
			if err == nil {
				_, _, err = s.Rotate(t.Context())
			}
			return err
		}
		if capability.IsSpace(old.Target()) {
			rotate = func() error {
				s, err := twin.Space(t.Context(), old)
				if err == nil {
					_, err = s.Rotate(t.Context())
				}
				return err
			}
		}
		if err := twin.Outbox().PutRef(t.Context(), old, outbox.RefMeta{}); err != nil {
			t.Fatal(err)
		}
		beginRotation(t, twin, old, made)
		if err := rotate(); err != nil {
			t.Fatal(err)
		}
	}
	if err := twin.Close(); err != nil {
		t.Fatal(err)
	}
	if list := r.ok("session", "list"); !strings.Contains(list, id) {
		t.Errorf("listed: %s", list)
	}
	r.ok("session", "show", id)
}

func mustRef(t *testing.T, arg string) capability.Ref {
	t.Helper()
	ref, err := capability.ParseRef(strings.TrimSpace(string(readFile(t, arg[1:]))))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestForgetARotatedRef: what was queued under a ref's old name waits for it too,
// and the only copy of a ref is not forgotten by the way.
func TestForgetARotatedRef(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	r.create("ses_queue")
	old := mustRef(t, r.owner())
	fresh := strings.Fields(r.ok("rotate", r.owner()))[0]
	r.fails(cli.ExitRefused, "perhaps the only copy", "refs", "forget", fresh)
	r.stop()
	offline, err := client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(r.home()), Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	sp, err := offline.Space(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	_, b := sp.Create(client.CreateOptions{})
	if _, err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := offline.Close(); err != nil {
		t.Fatal(err)
	}
	r.fails(cli.ExitRefused, "1 op to be sent", "refs", "forget", fresh)
	r.fails(cli.ExitRefused, "goes on with the next command", "rotate", fresh)
	r.fails(cli.ExitRefused, "being rotated", "refs", "forget", fresh)
	r.ok("refs", "forget", fresh, "--force")
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAdminRotateOwner(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id := r.create("ses_rescue")
		file, kept := r.owner()[1:], filepath.Join(r.dir, "kept.ref")
		if err := os.WriteFile(kept, readFile(t, file), 0o600); err != nil {
			t.Fatal(err)
		}
		rescue := func(flags ...string) result {
			args := append([]string{"admin", "rotate-owner", "--data", r.data()}, flags...)
			if database != "" {
				args = append(args, "--database-url", database)
			}
			var out, errOut lockbuf.Buffer
			code := runContext(t.Context(), args, strings.NewReader(""), &out, &errOut)
			return result{code, out.String(), errOut.String()}
		}
		if database == "" {
			if got := rescue(); got.code != cli.ExitRefused || !strings.Contains(got.err, "in_use") || !strings.Contains(got.err, "stop it first") {
				t.Errorf("while the server runs: %+v", got)
			}
			r.stop()
		}
		if err := os.Remove(file); err != nil { // lost
			t.Fatal(err)
		}
		got := rescue("--advertise", "mooring://"+r.proxy.Addr())
		if got.code != cli.ExitOK || !strings.Contains(got.out, file) || strings.Contains(got.out+got.err, "#") {
			t.Fatalf("rescue: %+v", got)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the new ref's file: %v, %v", info, err)
		}
		if r.stop == nil {
			r.start()
		}
		if list := r.okAs(r.otherHome("new"), "", "session", "list", "--owner", r.owner()); !strings.Contains(list, id) {
			t.Errorf("listed: %s", list)
		}
		r.refusedAs(r.otherHome("thief"), "", []string{"revoked"}, "session", "list", "--owner", "@"+kept)
		r.okIn(putLine("x"), "session", "append", id, "--wait") // what was made under the old one goes on

		// Another time, and the address is that of the file.
		if r.database == "" {
			r.stop()
		}
		before := readFile(t, file)
		if got := rescue("--json"); got.code != cli.ExitOK || !strings.Contains(got.out, `"replaced":"spc_`) {
			t.Errorf("again: %+v", got)
		}
		if after := readFile(t, file); string(after) == string(before) || strings.Split(string(after), "/spc_")[0] != strings.Split(string(before), "/spc_")[0] {
			t.Error("the file was not replaced by a ref of the same address")
		}
	})
	wrong := t.TempDir()
	for _, dir := range []string{filepath.Join(wrong, "none"), wrong} {
		if code, _, message := command(t, "admin", "rotate-owner", "--data", dir); code != cli.ExitUsage || !strings.Contains(message, dir) {
			t.Errorf("a folder without a server: exit %d, %s", code, message)
		}
	}
	if left, err := os.ReadDir(wrong); err != nil || len(left) > 0 {
		t.Errorf("there it made %v, %v", left, err)
	}
}

// beginRotation has another ref begin to take the place of old, without an answer of a server.
func beginRotation(t *testing.T, c *client.Client, old, made capability.Ref) (fresh capability.Ref) {
	t.Helper()
	away := fault.Unavailable.With("on request")
	pending, err := c.Outbox().Rotate(t.Context(), old.ID, made, func(_ context.Context, ref capability.Ref) (bool, error) {
		fresh = ref
		return false, away
	})
	if !pending || !errors.Is(err, away) {
		t.Fatal(pending, err)
	}
	return fresh
}
