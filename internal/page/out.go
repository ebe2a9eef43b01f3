package page

// The only writer of HTML: constants of the source, and escaped text.

import (
	"strings"
	"time"
	"unicode/utf8"
)

// markup is HTML that is constant in this package's source. Constants convert to it implicitly,
// variables do not.
type markup string

// out collects HTML, and the cost of one block: see limits.go.
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

// safe writes the sanitiser's output, cleaned again: character references may have become
// unwanted characters.
func (o *out) safe(h sanitised) { o.b = append(o.b, clean(string(h))...) }

// attr writes an attribute, with a space before it.
func (o *out) attr(name markup, value string) {
	o.lit(" ", name, `="`)
	o.text(value)
	o.lit(`"`)
}

// text writes escaped text, for elements and quoted attributes.
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

// clean returns s with U+FFFD for invalid characters (broken UTF-8, controls), line feeds for all
// kinds of line ends, and without terminal escape sequences.
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

// unwanted reports whether r is invalid in HTML, or reorders the text around it (a bidirectional
// override), so that code would read differently than it is.
func unwanted(r rune) bool {
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

// element writes a whole element with text in it, of constant name and class; nothing for empty
// text.
func (o *out) element(name, class markup, text string) {
	if text == "" {
		return
	}
	o.lit("<", name, ` class="`, class, `">`)
	o.text(text)
	o.lit("</", name, ">")
}

// link writes an element's link to itself; what is for its label.
func (o *out) link(id string, what markup) {
	o.lit(`<a class="link"`)
	o.attr("href", "#"+id)
	o.lit(` aria-label="Link to this `, what, `" title="Link to this `, what, `"`)
	if what != "message" {
		o.lit(` tabindex="-1"`) // else there are too many stops for keyboard navigation
	}
	o.lit(`>#</a>`)
}

// oneLine returns the first non-empty line of s, truncated to n bytes.
func oneLine(s string, n int) string {
	s = strings.TrimSpace(cutBytes(s, 4*n+1024))
	s, _, _ = strings.Cut(s, "\n")
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > n {
		return cutBytes(s, n) + "…"
	}
	return s
}

// cutBytes truncates s to n bytes, not within a character.
func cutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
