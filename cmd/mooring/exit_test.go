//go:build unix

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// TestExitCodes: what the command line alone shows to be wrong is wrong usage, whatever
// it is; what takes a look at a file, the home folder or a server is refused.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "home")
	const (
		id   = "ses_01JABCDEFGHJKMNPQRSTVWXYZ0"
		op   = "01JABCDEFGHJKMNPQRSTVWXYZ0"
		good = "mooring://127.0.0.1:1/" + id + ".s" + op + "#"
	)
	secret := strings.Repeat("A", 43)
	foreign := strings.Replace(good, "127.0.0.1", "example.org", 1) + secret
	onRef := [][]string{
		{"session", "export"}, {"session", "show"}, {"session", "stat"}, {"session", "ls"}, {"session", "append"}, {"session", "tail"}, {"session", "verify"}, {"session", "abort-turns"}, {"session", "delete", "--yes"},
		{"share", "--rights", "read"}, {"link"}, {"redeem"}, {"revoke"}, {"revoke", "--epoch"}, {"refs"}, {"refs", "forget"}, {"rotate"}, {"audit"}, {"audit", "verify"},
		{"session", "list", "--owner"}, {"session", "import", "-", "--owner"},
	}
	try := func(code int, words string, args ...string) {
		t.Helper()
		got, out, message := command(t, append(args, "--home", home)...)
		if got != code || out != "" || !strings.Contains(message, words) || strings.Count(message, "\n") != 1 {
			t.Errorf("mooring %s: exit %d, %q %q; want %d and %q", strings.Join(args, " "), got, out, message, code, words)
		}
	}
	for _, args := range onRef {
		with := func(ref string) []string { return append(append([]string{}, args...), ref) }
		try(cli.ExitUsage, "bad_ref_text: ", with("mooring://127.0.0.1/nonsense")...)
		try(cli.ExitUsage, "bad_ref_text: ", with(good+secret[1:])...)
		try(cli.ExitUsage, "bad_ref_text: ", with("ftp://127.0.0.1/x")...)
		try(cli.ExitUsage, "empty", with(" ")...)
		try(cli.ExitRefused, "bad_ref_text: ", with("@"+filepath.Join(home, "none"))...)
	}
	for _, args := range onRef[:8] {
		try(cli.ExitRefused, "not_found: ", append(append([]string{}, args...), id)...)
		try(cli.ExitRefused, "not_found: ", append(append([]string{}, args...), "ses_external")...)
		try(cli.ExitRefused, "plaintext: ", append(append([]string{}, args...), foreign)...)
	}
	for _, args := range [][]string{
		{"session", "purge", id, "Nonsense", "--yes"}, {"session", "get", id}, {"session", "get", id, "Nonsense"}, {"session", "get", id, "session", ""},
		{"session", "ls", id, "message"}, {"session", "ls", id, "a b/"}, {"session", "ls", id, "message/", "part/"}, {"session", "ls", id, "--order", "size"}, {"session", "ls", id, "--limit", "-1"},
		{"session", "search", id, "?"}, {"session", "search", id, "a", "--limit", "-1"}, {"session", "search", id, strings.Repeat("a", 1001)},
		{"session", "purge", id, "", "--yes"}, {"outbox", "retry", "nonsense"}, {"outbox", "drop", op, "x"},
		{"outbox", "drop", op[1:]}, {"outbox", "list", "--batch", "x"}, {"outbox", "list", "--state", "lost"},
		{"revoke", id}, {"revoke", "external"}, {"share", id, "--rights", "read", "--seal", "x"}, {"share", id, "--rights", "write"},
		{"share", id, "--rights", "read", "--methods", "explode"}, {"share", id, "--rights", "read", "--message", "a b"}, {"session", "list", "--owner", "external"},
		{"rotate", good + secret, "--to", t.TempDir()}, {"session", "tail", id, "--from", "-1"}, {"session", "tail", id, "--from", "x"},
	} {
		try(cli.ExitUsage, "", args...)
	}
	try(cli.ExitRefused, "not_found", "outbox", "drop", op)
	try(cli.ExitRefused, "not_found", "outbox", "retry", op)
}
