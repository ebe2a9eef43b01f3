//go:build unix

// What a shell is given to complete.

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

func TestCompletion(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_outside")
	failed := strings.Fields(r.runIn(`{"method":"appendText","key":"part/m/p","offset":0,"text":"x"}`, "session", "append", id, "--wait").out)[0]
	refs := r.refs(id)
	space := mustRef(t, r.owner()).Target()
	words := func(home string, args ...string) (list []string, directive string) {
		t.Helper()
		line := append([]string{"__complete", "--home", home}, args...)
		code, out, message := command(t, line...)
		if code != cli.ExitOK {
			t.Fatalf("%q: exit %d, %s", line, code, message)
		}
		for _, l := range strings.Split(strings.TrimSpace(out), "\n") {
			word, _, _ := strings.Cut(l, "\t")
			if strings.HasPrefix(word, ":") {
				directive = word
				continue
			}
			list = append(list, word)
		}
		return list, directive
	}
	check := func(want []string, args ...string) {
		t.Helper()
		got, _ := words(r.home(), args...)
		if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%q completes to %q, want %q", args, got, want)
		}
	}
	for _, args := range [][]string{{"session", "show"}, {"session", "stat"}, {"session", "get"}, {"session", "ls"}, {"session", "search"}, {"session", "append"}, {"session", "delete"}, {"session", "abort-turns"}, {"share"}, {"link"}, {"redeem"}, {"revoke"}, {"refs", "forget"}, {"rotate"}, {"audit", "verify"}} {
		check([]string{id, "ses_outside", space}, append(args, "")...)
		check([]string{"ses_outside"}, append(args, "ses_o")...)
	}
	check([]string{"forget", id, "ses_outside", space}, "refs", "")
	check([]string{"verify", id, "ses_outside", space}, "audit", "")
	check([]string{id, refs[0].Ref}, "revoke", id)
	check([]string{space}, "session", "list", "--owner", "spc")
	check([]string{id, "ses_outside"}, "outbox", "list", "--session", "ses_")
	check([]string{failed}, "outbox", "retry", "")
	check(nil, "outbox", "drop", "")
	check([]string{"read", "append", "share", "revoke", "create", "list", "break", "schema", "manage", "revert", "compact", "ask", "answer"}, "share", id, "--rights", "")
	check([]string{"read,append", "read,share", "read,revoke", "read,create", "read,list", "read,break", "read,schema", "read,manage", "read,revert", "read,compact", "read,ask", "read,answer"}, "share", id, "--rights", "read,")
	check([]string{"put,finalize"}, "share", id, "--methods", "put,f")
	check([]string{"failed"}, "outbox", "list", "--state", "f")
	check([]string{"pending", "in_flight", "acked", "failed", "skipped", "void"}, "outbox", "list", "--state", "")
	for _, name := range []string{"one.ref", "odd [x].ref"} {
		if err := os.WriteFile(filepath.Join(r.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := "@" + r.dir + "/"
	check([]string{at + "one.ref", at + "odd [x].ref"}, "redeem", at+"o")
	check([]string{at + "odd [x].ref"}, "redeem", at+"odd [")
	check([]string{at + "home/"}, "redeem", at+"hom")
	if _, directive := words(r.home(), "session", "append", id, ""); directive != ":0" {
		t.Errorf("behind REF: %s", directive)
	}
	for _, line := range [][]string{{"session", "get", id, ""}, {"session", "ls", id, ""}, {"session", "purge", id, ""}} {
		if list, directive := words(r.home(), line...); len(list) > 0 || directive != ":4" {
			t.Errorf("%q completes to %q, %s", line, list, directive)
		}
	}
	check([]string{"key", "put"}, "session", "ls", id, "--order", "")
	// Where there is no home folder, completing makes none.
	none := filepath.Join(r.dir, "none")
	if list, _ := words(none, "redeem", ""); len(list) != 0 {
		t.Errorf("without a home: %q", list)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("completing made a home folder")
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, message := command(t, "completion", shell); code != cli.ExitOK || !strings.Contains(out, "__complete") {
			t.Errorf("%s: exit %d, %s", shell, code, message)
		}
	}
}
