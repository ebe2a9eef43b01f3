package page

// The one writer of HTML: what is constant in the source, and escaped text.

import (
	"strings"
	"time"
	"unicode/utf8"
)

// markup is HTML as it stands in this package's source. Constants convert to it,
// variables do not.
type markup string

// out gathers HTML. What one block may cost is counted along: see limits.go.
type out struct {
	b     []byte
	spent time.Duration // on highlighting
	lines int           // of diffs
}

// lit writes constant HTML.
func (o *out) lit(parts ...markup) {
	for _, m := range parts {
		o.b = append(o.b, m...)
	}
}

// safe writes what the sanitiser gave: its references to characters may have become
// ones that are not wanted.
func (o *out) safe(h sanitised) { o.b = append(o.b, clean(string(h))...) }

// attr writes an attribute, with a blank before it.
func (o *out) attr(name markup, value string) {
	o.lit(" ", name, `="`)
	o.text(value)
	o.lit(`"`)
}

// text writes text as what it is, within elements and within attributes' quotes.
func (o *out) text(s string) {
	s = clean(s)
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

// clean is s with U+FFFD for what is no character (broken UTF-8, controls), line
// feeds for all kinds of line ends, and without terminals' escape sequences.
func clean(s string) string {
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
			if !(r == utf8.RuneError && size == 1) && !unwanted(r) {
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

// unwanted says whether HTML has no place for r, or r reorders the text around
// it (a bidirectional override), so that code would read other than it is.
func unwanted(r rune) bool {
	return r < 0xa0 || r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// escapeSequence is the length of the terminal's escape sequence that s begins with.
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

// element writes a whole element of constant name and class with text in it;
// nothing for no text.
func (o *out) element(name, class markup, text string) {
	if text == "" {
		return
	}
	o.lit("<", name, ` class="`, class, `">`)
	o.text(text)
	o.lit("</", name, ">")
}

// link writes the link of an element to itself; what says of what.
func (o *out) link(id string, what markup) {
	o.lit(`<a class="link"`)
	o.attr("href", "#"+id)
	o.lit(` aria-label="Link to this `, what, `" title="Link to this `, what, `"`)
	if what != "message" {
		o.lit(` tabindex="-1"`) // else there are more stops for the keyboard than anybody can walk
	}
	o.lit(`>#</a>`)
}

// oneLine is the first line of s with something in it, clipped to n bytes.
func oneLine(s string, n int) string {
	s = strings.TrimSpace(cutBytes(s, 4*n+1024))
	s, _, _ = strings.Cut(s, "\n")
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > n {
		return cutBytes(s, n) + "…"
	}
	return s
}

// cutBytes is s up to n bytes, not within a character.
func cutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
