//go:build unix

// What the stories share: a story is something that happens to users, told
// through the commands alone.

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// putLine is an op line that puts a message.
func putLine(id string) string {
	return fmt.Sprintf(`{"method":"put","key":"message/%s","payload":{"id":%q}}`, id, id)
}

// otherHome is a folder for another agent's home, which need not be there yet.
func (r *cliRig) otherHome(name string) string { return filepath.Join(r.dir, name) }

// create imports a session with a title alone and gives its id.
func (r *cliRig) create(external string) string {
	r.t.Helper()
	in := fmt.Sprintf(`[{"type":"session","data":{"id":%q,"title":%q}}]`, external, external)
	return strings.TrimSpace(r.okIn(in, "session", "import", "-", "--owner", r.owner()))
}

// shareTo makes a ref and gives it as @FILE.
func (r *cliRig) shareTo(name, id string, flags ...string) string {
	r.t.Helper()
	file := filepath.Join(r.dir, name+".ref")
	r.ok(append([]string{"share", id, "--to", file}, flags...)...)
	return "@" + file
}

// okAs runs a command with another home folder, which must succeed.
func (r *cliRig) okAs(home, in string, args ...string) string {
	r.t.Helper()
	got := r.runAs(home, in, args...)
	if got.code != cli.ExitOK {
		r.t.Fatalf("mooring %s: exit %d: %s%s", strings.Join(args, " "), got.code, got.out, got.err)
	}
	return got.out
}

// progressLine is what says how far a command is that takes long.
var progressLine = regexp.MustCompile(`(?m)^[a-z ]+: \d+ of \d+\n`)

// refusedAs runs a command with another home folder, which must be refused in
// one line that has all these words; where it takes long, others say how far it is.
func (r *cliRig) refusedAs(home, in string, words []string, args ...string) result {
	r.t.Helper()
	got := r.runAs(home, in, args...)
	if got.code != cli.ExitRefused || strings.Count(progressLine.ReplaceAllString(got.err, ""), "\n") != 1 {
		r.t.Errorf("mooring %s: exit %d, %q; want exit 1 and one line", strings.Join(args, " "), got.code, got.err)
	}
	for _, w := range words {
		if !strings.Contains(got.err, w) {
			r.t.Errorf("mooring %s says %q, without %q", strings.Join(args, " "), got.err, w)
		}
	}
	return got
}

// keys gives the keys of a session's events in order, and checks that cursors
// run 1, 2, 3 … and no op made two events.
func (r *cliRig) keys(id string) []string {
	r.t.Helper()
	var keys []string
	ops := map[string]bool{}
	for line := range strings.Lines(r.ok("session", "tail", id, "--json")) {
		var e struct {
			Cursor  int
			Key, Op string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			r.t.Fatal(err)
		}
		keys = append(keys, e.Key)
		if e.Cursor != len(keys) || ops[e.Op] {
			r.t.Fatalf("event %d has cursor %d and op %s, seen before: %v", len(keys), e.Cursor, e.Op, ops[e.Op])
		}
		ops[e.Op] = e.Op != "" // of calls without an op there may be many
	}
	return keys
}

// count says how often a message is among keys.
func count(keys []string, id string) (n int) {
	for _, k := range keys {
		if k == "message/"+id {
			n++
		}
	}
	return n
}

// outboxStatus is what outbox status --json prints.
type outboxStatus struct {
	Outbox  string
	States  map[string]int
	Streams []struct {
		Session, Stopped string
		Unfinished       int
		LastError        string `json:"last_error"`
	}
}

func (r *cliRig) statusOf(home string) (st outboxStatus) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.okAs(home, "", "outbox", "status", "--json")), &st); err != nil {
		r.t.Fatal(err)
	}
	return st
}

// copyFolder is cp -r.
func copyFolder(t *testing.T, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// putBack makes a folder what another one is.
func putBack(t *testing.T, folder, from string) {
	t.Helper()
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	copyFolder(t, folder, from)
}
