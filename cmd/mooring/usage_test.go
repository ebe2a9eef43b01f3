//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// Wrong usage is told in words of the command's own, not of the libraries below it.
func TestUsageIsInWords(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, c := range []struct{ words, line string }{
		{"--from takes a cursor, or CURSOR:HASH as --json prints them (see mooring session tail --help)", "session tail x --from abc"},
		{"--from takes a row's number, or ROW:HASH as --json prints them (see mooring audit --help)", "audit x --from 1:zz"},
		{"--from takes a cursor", "session tail x --from -1"}, {"--redemptions takes a whole number", "share x --redemptions 1.5"},
		{"--limit takes a whole number, and none was given", "outbox list --limit"},
		{"--expires takes a time such as 10s, 5m, 24h, 7d or 2w", "share x --expires tomorrow"}, {"--expires takes a time", "share x --expires 7"},
		{"--max-message-bytes takes a size such as 64KiB or 16MiB", "serve --max-message-bytes lots"}, {"--follow takes true or false", "session tail x --follow=maybe"},
		{"unknown flag: --colour", "session list --colour"}, {`unknown command "sesion" for "mooring"; did you mean session or version? (see mooring --help)`, "sesion"},
		{"mooring session tail takes REF, and got 2 arguments", "session tail x y"}, {"mooring session append takes REF [FILE or -], and got 0 arguments", "session append"},
		{"mooring outbox drop takes OP…, and got 0 arguments", "outbox drop"}, {"mooring outbox status takes no arguments, and got 1 argument", "outbox status x"},
		{"mooring session purge takes REF KEY, and got 1 argument", "session purge x"}, {"mooring session import takes FILE, and got 0 arguments", "session import"},
		{"mooring share takes REF --rights read[,append,ask,answer,share,revoke], and got 0 arguments", "share"},
	} {
		args := strings.Fields(c.line)
		if !strings.HasPrefix(c.line, "serve") && !strings.HasSuffix(c.line, "--limit") && c.line != "sesion" {
			args = append(args, "--home", home)
		}
		code, out, message := command(t, args...)
		if code != cli.ExitUsage || out != "" || !strings.HasPrefix(message, "mooring: usage: "+c.words) || strings.Count(message, "\n") != 1 {
			t.Errorf("mooring %s: exit %d, %q %q", c.line, code, out, message)
		}
		for _, raw := range []string{"strconv", "arg(s)", "invalid argument", "json:", "invalid syntax"} {
			if strings.Contains(message, raw) {
				t.Errorf("mooring %s says %q", c.line, message)
			}
		}
	}
}

// The help of a duration has no default of 0.
func TestHelpOfDurations(t *testing.T) {
	t.Parallel()
	code, help, _ := command(t, "share", "--help")
	if code != cli.ExitOK || !strings.Contains(help, "--expires duration") || strings.Contains(help, "(default 0") {
		t.Errorf("the help: %s", help)
	}
	if code, help, _ := command(t, "serve", "--help"); code != cli.ExitOK || !strings.Contains(help, "(default 10s)") || strings.Contains(help, "(default 0") {
		t.Errorf("serve's help: %s", help)
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	code, out, message := command(t, "serve", "--listen", occupied(t), "--data", t.TempDir(), "--allow-origin", "http://x y")
	if code != cli.ExitUsage || out != "" || !strings.Contains(message, "--allow-origin") {
		t.Errorf("exit %d, %q %q", code, out, message)
	}
}

// What a secret in clear takes is named as the flag that it is.
func TestPlaintextNamesItsFlag(t *testing.T) {
	t.Parallel()
	code, _, message := command(t, "redeem", "mooring://example.org/ses_01JABCDEFGHJKMNPQRSTVWXYZ0.s01JABCDEFGHJKMNPQRSTVWXYZ0#"+strings.Repeat("A", 43), "--home", t.TempDir())
	if code != cli.ExitRefused || !strings.HasPrefix(message, "mooring: plaintext: ") || !strings.Contains(message, "--allow-plaintext") {
		t.Errorf("exit %d, %s", code, message)
	}
}
