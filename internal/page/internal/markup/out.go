package markup

// The only writer of HTML: constants of the source, and escaped text.

import (
	"strings"
	"time"
	"unicode/utf8"
)

// HTML is markup that is constant in the source. Constants convert to it implicitly, variables do
// not.
type HTML string

// Out collects HTML, and the cost of one block: see limits.go.
type Out struct {
	b     []byte
	spent time.Duration // on highlighting
	lines int           // of diffs
}

// Bytes returns what was written. It is valid until the next call.
func (o *Out) Bytes() []byte { return o.b }

// keepBytes is the largest buffer that Reset keeps.
const keepBytes = 64 << 10

// Reset begins another block, and returns the time that highlighting took in the one before.
func (o *Out) Reset() time.Duration {
	spent, kept := o.spent, o.b[:0]
	if cap(kept) > keepBytes {
		kept = nil
	}
	*o = Out{b: kept}
	return spent
}

// StopHighlighting has the code of this block written plain.
func (o *Out) StopHighlighting() { o.spent = CodeTime + 1 }

// Lit writes constant HTML.
func (o *Out) Lit(parts ...HTML) {
	for _, m := range parts {
		o.b = append(o.b, m...)
	}
}

// safe writes the sanitiser's output, cleaned again: character references may have become
// unwanted characters.
func (o *Out) safe(h sanitised) { o.b = append(o.b, Clean(string(h))...) }

// Attr writes an attribute, with a space before it.
func (o *Out) Attr(name HTML, value string) {
	o.Lit(" ", name, `="`)
	o.Text(value)
	o.Lit(`"`)
}

// Text writes escaped text, for elements and quoted attributes.
func (o *Out) Text(s string) {
	s = Clean(s)
	from := 0
	for i := range len(s) {
		var with string
		switch s[i] {
		case '<':
			with = "&lt;"
		case '>':
			with = "&gt;"
		case '&':
			with = "&amp;"
		case '"':
			with = "&#34;"
		case '\'':
			with = "&#39;"
		default:
			continue
		}
		o.b = append(o.b, s[from:i]...)
		o.b = append(o.b, with...)
		from = i + 1
	}
	o.b = append(o.b, s[from:]...)
}

// Clean returns s with U+FFFD for invalid characters (broken UTF-8, controls), line feeds for all
// kinds of line ends, and without terminal escape sequences.
func Clean(s string) string {
	var b []byte
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < 0x7f || c == '\n' || c == '\t' {
			i++
			continue
		}
		size, with := 1, "\uFFFD"
		switch {
		case c == '\r' && i+1 < len(s) && s[i+1] == '\n':
			with = ""
		case c == '\r':
			with = "\n"
		case c == 0x1b:
			size, with = escapeSequence(s[i:]), ""
		case c >= utf8.RuneSelf:
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			if !(r == utf8.RuneError && size == 1) && !Unwanted(r) {
				i += size
				continue
			}
		}
		b = append(append(b, s[from:i]...), with...)
		i += size
		from = i
	}
	if from == 0 {
		return s
	}
	return string(append(b, s[from:]...))
}

// Unwanted reports whether r is invalid in HTML, or reorders the text around it (a bidirectional
// override), so that code would read differently than it is.
func Unwanted(r rune) bool {
	return r < 0xa0 || r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// escapeSequence returns the length of the terminal escape sequence at the start of s.
func escapeSequence(s string) int {
	if len(s) > 1 && s[1] == '[' {
		for i := 2; i < len(s) && i < 64; i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
			if s[i] < 0x20 || s[i] > 0x7e {
				return i
			}
		}
	}
	return 1
}

// Element writes a whole element with text in it, of constant name and class; nothing for empty
// text.
func (o *Out) Element(name, class HTML, text string) {
	if text == "" {
		return
	}
	o.Lit("<", name, ` class="`, class, `">`)
	o.Text(text)
	o.Lit("</", name, ">")
}

// Link writes an element's link to itself; what is for its label.
func (o *Out) Link(id string, what HTML) {
	o.Lit(`<a class="link"`)
	o.Attr("href", "#"+id)
	o.Lit(` aria-label="Link to this `, what, `" title="Link to this `, what, `"`)
	if what != "message" {
		o.Lit(` tabindex="-1"`) // else there are too many stops for keyboard navigation
	}
	o.Lit(`>#</a>`)
}

// OneLine returns the first non-empty line of s, truncated to n bytes.
func OneLine(s string, n int) string {
	s = strings.TrimSpace(CutBytes(s, 4*n+1024))
	s, _, _ = strings.Cut(s, "\n")
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > n {
		return CutBytes(s, n) + "…"
	}
	return s
}

// CutBytes truncates s to n bytes, not within a character.
func CutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
