package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestTerminalIsNotObeyed: a payload's characters that a terminal obeys come to it
// escaped, and to a pipe as they are.
func TestTerminalIsNotObeyed(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	const text = "a\u009b31mred \u202eevil \u2066x\u2069 \u007f flag \U000e0067 family 👩\u200d👩"
	id := r.create("ses_terminal")
	line, _ := json.Marshal(map[string]any{"method": "put", "key": "message/m", "payload": map[string]string{"text": text}})
	r.okIn(string(line)+"\n", "session", "append", id, "--wait")
	for _, args := range [][]string{
		{"session", "export", id}, {"session", "tail", id, "--json"}, {"session", "show", id, "--json"}, {"session", "append", id, "--json"},
	} {
		term := newPTY(t)
		args = append(args, "--home", r.home())
		in := strings.NewReader(`{"method":"put","key":"message/` + "\u009b\u202e" + `","payload":{}}`)
		runContext(t.Context(), args, in, term.tty, term.tty)
		_ = term.tty.Close()
		<-term.done
		shown := term.shown.String()
		if i := strings.IndexFunc(shown, func(r rune) bool {
			return !strings.ContainsRune("\r\n\t\u200d", r) && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
		}); i >= 0 || !utf8.ValidString(shown) || shown == "" {
			t.Errorf("mooring %s shows a terminal %+q", args, shown)
		}
		if args[1] == "export" && !strings.Contains(shown, `a\u009b31mred \u202eevil`) {
			t.Errorf("the export on a terminal is not the same JSON: %+q", shown)
		}
		if args[1] == "export" && !strings.Contains(r.ok("session", "export", id), text) {
			t.Error("an export to a pipe is not byte for byte")
		}
	}
}
