//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
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
		{"mooring share takes REF --rights read[,append,share,revoke], and got 0 arguments", "share"},
	} {
		args := strings.Fields(c.line)
		if !strings.HasPrefix(c.line, "serve") && !strings.HasSuffix(c.line, "--limit") && c.line != "sesion" {
			args = append(args, "--home", home)
		}
		code, out, message := command(t, args...)
		if code != exitUsage || out != "" || !strings.HasPrefix(message, "mooring: usage: "+c.words) || strings.Count(message, "\n") != 1 {
			t.Errorf("mooring %s: exit %d, %q %q", c.line, code, out, message)
		}
		for _, raw := range []string{"strconv", "arg(s)", "invalid argument", "json:", "invalid syntax"} {
			if strings.Contains(message, raw) {
				t.Errorf("mooring %s says %q", c.line, message)
			}
		}
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"7d": 7 * day, "2w": 14 * day, "1w2d3h4m": 9*day + 3*time.Hour + 4*time.Minute, "1.5d": 36 * time.Hour, "90s": 90 * time.Second, "24h": day, "0": 0, "-2s": -2 * time.Second,
	} {
		var s durationFlag
		if err := s.Set(text); err != nil || time.Duration(s) != want {
			t.Errorf("%s: %v, %v", text, time.Duration(s), err)
		}
	}
	for _, text := range []string{"", "d", "7", "7x", "1d2", "3h2d", "-7d", "1e9d", "99999999999w", "1..5d", "tomorrow"} {
		var s durationFlag
		if err := s.Set(text); err == nil {
			t.Errorf("%q is %v", text, time.Duration(s))
		}
	}
	code, help, _ := command(t, "share", "--help")
	if code != exitOK || !strings.Contains(help, "--expires duration") || strings.Contains(help, "(default 0") {
		t.Errorf("the help: %s", help)
	}
	if code, help, _ := command(t, "serve", "--help"); code != exitOK || !strings.Contains(help, "(default 10s)") || strings.Contains(help, "(default 0") {
		t.Errorf("serve's help: %s", help)
	}
}

// What others wrote cannot move a terminal's cursor, nor turn the text around it.
func TestPlainLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain – ünïcode 🙂": "plain – ünïcode 🙂", "a\x1b[2Jb": "a [2Jb", "a\nb\tc\x7f": "a b c ", "a\u202egnp.exe": "agnp.exe", "\u2066a\u2069\u200f\u061cb": "ab",
		"a\u009b2Jb": "a 2Jb", "a\u2028b": "a b", "a\ufeffb\u200bc": "abc", "👩\u200d💻": "👩\u200d💻", "می\u200cخواهم": "می\u200cخواهم",
	} {
		if got := sanitizeLine(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	if got := sanitizeText("a\nb\x1b"); got != "a\nb " {
		t.Errorf("lines: %q", got)
	}
	if got := clipLine(strings.Repeat("ä\u202e", 100)); len([]rune(got)) != 80 {
		t.Errorf("%d characters", len([]rune(got)))
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	code, out, message := command(t, "serve", "--listen", occupied(t), "--data", t.TempDir(), "--allow-origin", "http://x y")
	if code != exitUsage || out != "" || !strings.Contains(message, "--allow-origin") {
		t.Errorf("exit %d, %q %q", code, out, message)
	}
}

// What a secret in clear takes is named as the flag that it is.
func TestPlaintextNamesItsFlag(t *testing.T) {
	t.Parallel()
	code, _, message := command(t, "redeem", "mooring://example.org/ses_01JABCDEFGHJKMNPQRSTVWXYZ0.s01JABCDEFGHJKMNPQRSTVWXYZ0#"+strings.Repeat("A", 43), "--home", t.TempDir())
	if code != exitRefused || !strings.HasPrefix(message, "mooring: plaintext: ") || !strings.Contains(message, "--allow-plaintext") {
		t.Errorf("exit %d, %s", code, message)
	}
}

// The methods that are completed are those that a share can be limited to.
func TestAppendable(t *testing.T) {
	t.Parallel()
	for _, m := range session.Methods() {
		f := shareFlags{methods: []string{m}}
		if err := f.check(capability.Append, 0); (err == nil) != slices.Contains(appendable, m) {
			t.Errorf("%s: %v", m, err)
		}
	}
}
