// Package search finds words in values. Words is what an index has to know of a value, Query.Find
// whether a query matches one, and where.
//
// A text is segments: words (letters and digits), runs of a script that is written without spaces
// (Chinese, Japanese, Korean, Thai, …), and symbols (emoji and the like). What stands between them
// separates, and is not found. A segment is parts: a word's are those of an identifier (getUserName:
// get, user, name), a run's are its characters. Upper and lower case, accents, full and half width
// are the same ([UAX #15], full case folding); a skin tone and other variants of an emoji are the emoji.
//
// The rules are the same for values and queries, and those of no database. All functions are safe for
// concurrent use.
//
// [UAX #15]: https://www.unicode.org/reports/tr15/
package search

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Version is the number of the rules: an index that was made by others is made anew.
const Version = 1

// Bounds: of the characters of a word that count, of the parts of an identifier (what has more, as
// ids and hashes do, is one word), and of a value's words.
const (
	maxWordRunes = 64
	maxParts     = 8
	MaxWords     = 1 << 16
)

// segment is a word, a run without spaces, or a symbol.
type segment struct {
	whole string // a word's; "" for others
	run   bool   // a run without spaces
	parts []part
}

// part is a part of a segment: its folded text, and where it stands.
type part struct {
	text       string
	start, end int // bytes of the text
}

type class uint8

const (
	separator class = iota
	letter          // of a word
	unspaced        // a character of a run
	symbol
	extender // belongs to the character before
)

var unspacedScripts = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Yi,
	unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

func classOf(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return letter
		}
		return separator
	case unicode.IsMark(r), unicode.Is(unicode.Cf, r), r == 0xFF9E, r == 0xFF9F: // the last two are half-width sound marks
		return extender
	case unicode.In(r, unspacedScripts...), r == 0x30FC, r == 0xFF70: // the last two are length marks
		return unspaced
	case unicode.IsLetter(r), unicode.IsNumber(r):
		return letter
	case unicode.Is(unicode.So, r):
		return symbol
	}
	return separator
}

// segments calls each for the segments of a text, which is valid UTF-8, until it returns false. A
// segment's parts are overwritten afterwards.
func segments(text string, each func(segment) bool) {
	var parts []part
	for at := 0; at < len(text); {
		r, n := utf8.DecodeRuneInString(text[at:])
		is := classOf(r)
		if is == separator || is == extender {
			at += n
			continue
		}
		end := segmentEnd(text, at, is)
		s := segment{run: is == unspaced}
		switch is {
		case letter:
			s.whole = fold(text[at:end])
			parts = wordParts(parts[:0], text, at, end)
		case unspaced:
			parts = runParts(parts[:0], text, at, end)
		default:
			parts = append(parts[:0], part{fold(text[at:end]), at, end})
		}
		at = end
		if s.parts = parts; len(parts) > 0 && !each(s) {
			return
		}
	}
}

// segmentEnd returns where the segment ends that begins at at.
func segmentEnd(text string, at int, is class) int {
	first := true
	for at < len(text) {
		r, n := utf8.DecodeRuneInString(text[at:])
		switch c := classOf(r); {
		case c == extender, first, c == is && is != symbol:
			at, first = at+n, false
		default:
			return at
		}
	}
	return at
}

// wordParts appends the parts of the word from start to end: a part begins at an upper-case letter
// after another character or before a lower-case one, and where digits begin or end.
func wordParts(parts []part, text string, start, end int) []part {
	from := start
	var before, last rune // the characters before the current one
	lastAt := start
	cut := func(at int) {
		if at > from {
			parts = append(parts, part{fold(text[from:at]), from, at})
			from = at
		}
	}
	for i, r := range text[start:end] {
		if classOf(r) == extender {
			continue
		}
		at := start + i
		if last != 0 {
			upper, wasUpper := unicode.IsUpper(r), unicode.IsUpper(last)
			switch {
			case unicode.IsDigit(r) != unicode.IsDigit(last), upper && !wasUpper:
				cut(at)
			case unicode.IsLower(r) && wasUpper && before != 0 && unicode.IsUpper(before):
				cut(lastAt)
			}
		}
		before, last, lastAt = last, r, at
	}
	if cut(end); len(parts) > maxParts {
		parts = append(parts[:0], part{fold(text[start:end]), start, end})
	}
	return slices.DeleteFunc(parts, func(p part) bool { return p.text == "" })
}

// runParts appends the characters of the run from start to end.
func runParts(parts []part, text string, start, end int) []part {
	for i, r := range text[start:end] {
		at := start + i
		if last := len(parts) - 1; last >= 0 && classOf(r) == extender {
			parts[last].end = at + utf8.RuneLen(r)
			continue
		}
		parts = append(parts, part{start: at, end: at + utf8.RuneLen(r)})
	}
	for i := range parts {
		parts[i].text = fold(text[parts[i].start:parts[i].end])
	}
	return parts
}

// fold returns a piece of text without what does not count in a comparison.
func fold(s string) string {
	if isASCII(s) {
		return clip(strings.ToLower(s))
	}
	s = strings.Map(func(r rune) rune {
		if 0x0300 <= r && r <= 0x036F || 0xFE00 <= r && r <= 0xFE0F || unicode.Is(unicode.Me, r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(s))
	return clip(norm.NFC.String(cases.Fold().String(s)))
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func clip(s string) string {
	if len(s) <= maxWordRunes {
		return s
	}
	n := 0
	for i := range s {
		if n++; n > maxWordRunes {
			return s[:i]
		}
	}
	return s
}

// pair is the index's word for two neighbours in a run.
func pair(a, b string) string { return a + b }

// Words returns the different words by which an index finds a value, at most MaxWords: words and
// their parts, the characters of runs and their pairs, symbols.
func Words(key string, value []byte) []string {
	seen := map[string]bool{}
	var words []string
	add := func(w string) {
		if !seen[w] && len(words) < MaxWords {
			seen[w] = true
			words = append(words, w)
		}
	}
	texts(key, value, func(_ func() string, text string) bool {
		segments(text, func(s segment) bool {
			if s.whole != "" {
				add(s.whole)
			}
			for i, p := range s.parts {
				if add(p.text); s.run && i > 0 {
					add(pair(s.parts[i-1].text, p.text))
				}
			}
			return len(words) < MaxWords
		})
		return len(words) < MaxWords
	})
	return words
}
