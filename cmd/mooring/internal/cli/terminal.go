// Untrusted text on a terminal: JSON strings may contain characters that a terminal obeys (U+009B
// begins a control sequence) or that reorder text (U+202E). Text for people is cleaned where it
// is made (SanitizeLine); JSON is not, since programs need the exact value. Output to a terminal
// is therefore escaped here.

package cli

import (
	"fmt"
	"io"
	"os"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// ForTerminal returns w or, if it is a terminal, a writer to it that escapes what a terminal does not show.
func ForTerminal(w io.Writer) io.Writer {
	if f, isFile := w.(*os.File); isFile && term.IsTerminal(int(f.Fd())) {
		return EscapeInvisible(w)
	}
	return w
}

// EscapeInvisible returns a writer to w that escapes what a terminal does not show.
func EscapeInvisible(w io.Writer) io.Writer { return &escapingWriter{w: w} }

// escapingWriter writes UTF-8 text with every character that a terminal does not show replaced by
// JSON's \uXXXX, which does not change JSON's meaning.
type escapingWriter struct {
	w       io.Writer
	partial []byte // of a character split by the end of the last Write
}

// Write implements io.Writer.
func (e *escapingWriter) Write(p []byte) (int, error) {
	text := append(e.partial, p...)
	out := make([]byte, 0, len(text)+16)
	for len(text) > 0 && utf8.FullRune(text) {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			out = utf8.AppendRune(out, utf8.RuneError)
		case invisible(r):
			out = appendEscaped(out, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	e.partial = append([]byte(nil), text...)
	if _, err := e.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// invisible reports whether a terminal would obey r, or show nothing for it. Joiners are parts of
// letters and emoji.
func invisible(r rune) bool {
	switch r {
	case '\n', '\t', '\u200c', '\u200d':
		return false
	case '\u2028', '\u2029':
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}

func appendEscaped(b []byte, r rune) []byte {
	for _, unit := range utf16.AppendRune(nil, r) {
		b = fmt.Appendf(b, `\u%04x`, unit)
	}
	return b
}
