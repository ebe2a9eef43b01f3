//go:build unix

// Ordinary mistakes: each has a code that says what is wrong, and a text that says what to do.

package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

func TestMistakesHaveCodes(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_one")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	nowhere := filepath.Join(r.dir, "nowhere")
	inNowhere := filepath.Join(nowhere, "x")
	for _, c := range []struct {
		code  int
		fault string
		words string
		args  []string
	}{
		{cli.ExitRefused, "unavailable", "opencode does not answer at http://" + nobody, []string{"attach", "opencode", "--url", "http://" + nobody}},
		{cli.ExitUsage, "usage", "cannot read " + nowhere + ": no such file", []string{"session", "import", nowhere}},
		{cli.ExitUsage, "usage", r.dir + " is a folder: name a file", []string{"session", "import", r.dir}},
		{cli.ExitUsage, "usage", "cannot read " + nowhere + ": no such file", []string{"session", "append", id, nowhere}},
		{cli.ExitUsage, "usage", "cannot write the ref to " + inNowhere + ": no such file", []string{"share", id, "--rights", "read", "--to", inNowhere}},
		{cli.ExitUsage, "usage", "the copy cannot be written to " + inNowhere + ": no such file", []string{"admin", "backup", "--data", r.data(), inNowhere}},
		{cli.ExitUsage, "usage", "--webhook-secret: cannot write " + inNowhere + ": no such file", []string{"watch", id, "--webhook", "https://example.org/hook", "--webhook-secret", inNowhere}},
		{cli.ExitRefused, "unavailable", "the agent ended: exit status 1", []string{"run", "--", "false"}},
		{cli.ExitRefused, "unavailable", "the agent ended: exit status 0 (it printed a line that is not of the protocol: ", []string{"run", "--", "echo", "x"}},
		{cli.ExitRefused, "not_found", "the home folder knows no session nope: give an id that mooring outbox status lists", []string{"outbox", "reconcile", "nope"}},
		{cli.ExitRefused, "not_found", "the home folder knows no session nope: give an id that mooring outbox status lists", []string{"outbox", "abandon", "nope", "--yes"}},

		// Flags that would have no effect.
		{cli.ExitUsage, "usage", "--exec-timeout is for --exec, which is not set", []string{"watch", id, "--exec-timeout", "1s"}},
		{cli.ExitUsage, "usage", "--tries is for --exec, which is not set", []string{"watch", id, "--tries", "3"}},
		{cli.ExitUsage, "usage", "--allow-private is for --webhook, which is not set", []string{"watch", id, "--exec", "true", "--allow-private"}},
		{cli.ExitUsage, "usage", "--owner is for a new session: leave it out with --session", []string{"run", "--session", id, "--owner", r.owner(), "--", "false"}},
		{cli.ExitUsage, "usage", "--owner is for a new session, or --listen: leave it out with --session", []string{"attach", "opencode", "--session", id, "--owner", r.owner()}},

		{cli.ExitUsage, "usage", "REF 2 is of " + mustRef(t, r.shareTo("own", id, "--rights", "read")).Target() + ", as REF 1 is: name each session once", []string{"watch", id, id, "--exec", "true"}},
		{cli.ExitUsage, "usage", "as REF 1 is: name each session once", []string{"watch", id, r.shareTo("other", id, "--rights", "read")}},

		{cli.ExitUsage, "usage", "--redemptions takes a whole number up to 4294967295 (see", []string{"share", id, "--rights", "read", "--redemptions", "-1"}},
		{cli.ExitUsage, "usage", "--expires takes a time such as 10s, 5m, 24h, 7d or 2w, up to 53375d (see", []string{"share", id, "--rights", "read", "--expires", "1000000d"}},
		{cli.ExitUsage, "usage", "--from takes a whole number that is not negative (see", []string{"share", id, "--rights", "read", "--from", "-1"}},
		{cli.ExitUsage, "usage", "--rights read[,append,ask,answer,share,revoke]", []string{"share", id}},

		{cli.ExitUsage, "usage", `unknown command \"bogus\" for \"mooring\" (see mooring --help)`, []string{"help", "bogus"}},
		{cli.ExitUsage, "usage", `unknown command \"bogus\" for \"mooring session\" (see mooring session --help)`, []string{"help", "session", "bogus"}},
	} {
		args := append([]string{"--json"}, c.args...)
		if home := c.args[0] != "admin" && c.args[0] != "help"; home {
			r.fails(c.code, `"code":"`+c.fault+`","message":"`, args...)
			r.fails(c.code, c.words, args...)
			continue
		}
		code, out, said := command(t, args...)
		if code != c.code || out != "" || !strings.Contains(said, `"code":"`+c.fault+`"`) || !strings.Contains(said, c.words) {
			t.Errorf("mooring %s: exit %d, %q %q", strings.Join(c.args, " "), code, out, said)
		}
	}
}

// A revoked ref is its sharer's to replace, in redeem as in all others.
func TestRevokedRefNamesItsSharer(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_one")
	ref := r.shareTo("reader", id, "--rights", "read")
	r.ok("revoke", ref)
	for _, args := range [][]string{{"redeem", ref}, {"session", "show", ref}} {
		r.fails(cli.ExitRefused, "ask its sharer for a new one", args...)
	}
}

// A group of commands without one prints its help.
func TestGroupsPrintTheirHelp(t *testing.T) {
	t.Parallel()
	for _, c := range newRoot(&cli.Env{}).Commands() {
		for _, group := range append(c.Commands(), c) {
			if !group.HasSubCommands() || strings.Contains(group.Use, " ") { // refs and audit take a REF
				continue
			}
			args := strings.Fields(group.CommandPath())[1:]
			for _, line := range [][]string{args, append([]string{"help"}, args...)} {
				if code, out, said := command(t, line...); code != cli.ExitOK || !strings.Contains(out, "Available Commands:") || said != "" {
					t.Errorf("mooring %s: exit %d, %q %q", strings.Join(line, " "), code, out, said)
				}
			}
		}
	}
}
