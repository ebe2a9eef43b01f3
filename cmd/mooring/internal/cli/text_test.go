package cli

import (
	"strings"
	"testing"
)

// What others wrote cannot move a terminal's cursor, nor turn the text around it.
func TestPlainLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain – ünïcode 🙂": "plain – ünïcode 🙂", "a\x1b[2Jb": "a [2Jb", "a\nb\tc\x7f": "a b c ", "a\u202egnp.exe": "agnp.exe", "\u2066a\u2069\u200f\u061cb": "ab",
		"a\u009b2Jb": "a 2Jb", "a\u2028b": "a b", "a\ufeffb\u200bc": "abc", "👩\u200d💻": "👩\u200d💻", "می\u200cخواهم": "می\u200cخواهم",
	} {
		if got := SanitizeLine(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	if got := SanitizeText("a\nb\x1b"); got != "a\nb " {
		t.Errorf("lines: %q", got)
	}
	if got := ClipLine(strings.Repeat("ä\u202e", 100)); len([]rune(got)) != 80 {
		t.Errorf("%d characters", len([]rune(got)))
	}
}
