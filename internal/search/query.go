package search

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"github.com/mooring-rpc/mooring/fault"
)

// Bounds of a query.
const (
	MaxQueryBytes = 1000
	maxQueryParts = 64
)

// Query is what is searched for: terms, all of which a value has. A term matches where its parts stand
// one after the other: so user_name finds user-name and userName, and "two words" finds them in this order.
// An identifier matches itself in any case, too: userName finds username.
type Query struct{ terms []term }

// term has one or two sequences of parts, either of which matches.
type term [][]queryPart

type queryPart struct {
	text   string
	joined bool // follows the part before in a run
}

// Parse parses a query: terms, separated by spaces, or within double quotes. The error is BadArgument.
func Parse(text string) (*Query, *fault.Error) {
	if len(text) > MaxQueryBytes {
		return nil, fault.BadArgument.With("the query has %d bytes, the limit is %d: search for fewer words", len(text), MaxQueryBytes)
	}
	q := &Query{}
	parts := 0
	for i, quoted := range strings.Split(strings.ToValidUTF8(text, " "), `"`) {
		terms := []string{quoted}
		if i%2 == 0 {
			terms = strings.FieldsFunc(quoted, unicode.IsSpace)
		}
		for _, text := range terms {
			t := parseTerm(text)
			if len(t[0]) == 0 || q.has(t) {
				continue
			}
			q.terms = append(q.terms, t)
			if parts += len(t[0]); parts > maxQueryParts {
				return nil, fault.BadArgument.With("the query has more than %d words: search for fewer", maxQueryParts)
			}
		}
	}
	if len(q.terms) == 0 {
		return nil, fault.BadArgument.With("the query has no word: search for letters, digits or emoji")
	}
	return q, nil
}

func (q *Query) has(t term) bool {
	return slices.ContainsFunc(q.terms, func(o term) bool { return slices.Equal(o[0], t[0]) })
}

func parseTerm(text string) term {
	var parts []queryPart
	var whole string
	n := 0
	segments(text, func(s segment) bool {
		n, whole = n+1, s.whole
		for i, p := range s.parts {
			parts = append(parts, queryPart{p.text, s.run && i > 0})
		}
		return true
	})
	if n == 1 && whole != "" && len(parts) > 1 {
		return term{parts, {{text: whole}}}
	}
	return term{parts}
}

// Alternatives returns, for each term, the lists of words of which one is among a value's Words if the
// query matches it.
func (q *Query) Alternatives() [][][]string {
	all := make([][][]string, len(q.terms))
	for i, t := range q.terms {
		for _, parts := range t {
			var words []string
			for j, p := range parts {
				switch next := j + 1; {
				case p.joined:
					words = append(words, pair(parts[j-1].text, p.text))
				case next < len(parts) && parts[next].joined: // is in the pair
				default:
					words = append(words, p.text)
				}
			}
			slices.Sort(words)
			all[i] = append(all[i], slices.Compact(words))
		}
	}
	return all
}

// Match is where a query matches a value.
type Match struct {
	Place   string   // of the text that the excerpt is from: KeyPlace, or a JSON Pointer
	Excerpt []string // of the text, in turn what is beside a match and what matches; the first may be ""
}

// span is bytes of a text.
type span struct{ start, end int }

// maxSpans is the number of matches that are looked for in one text.
const maxSpans = 16

// Find returns where a query matches a value of a key: in the text with the most of its terms, the
// first of these. It returns nil if it does not match.
func (q *Query) Find(key string, value []byte) *Match {
	found := make([]bool, len(q.terms))
	left, most := len(q.terms), 0
	var best *Match
	texts(key, value, func(place func() string, text string) bool {
		var spans []span
		here := 0
		var t indexed
		for i, term := range q.terms {
			if t.parts == nil {
				t.read(text)
			}
			at := t.find(term)
			if len(at) == 0 {
				continue
			}
			here++
			if spans = append(spans, at...); !found[i] {
				found[i] = true
				left--
			}
		}
		if here > most {
			most, best = here, &Match{Place: place(), Excerpt: excerpt(text, spans)}
		}
		return left > 0 || most < len(q.terms)
	})
	if left > 0 {
		return nil
	}
	return best
}

// indexed is a text as parts.
type indexed struct {
	parts []part
	joins []bool   // of parts: follows the one before in a run
	whole []string // of parts that begin a word: the word
	after []int    // of parts that begin a word: the number of the part after it
}

func (t *indexed) read(text string) {
	t.parts = []part{}
	segments(text, func(s segment) bool {
		first := len(t.parts)
		for i, p := range s.parts {
			t.parts = append(t.parts, p)
			t.joins = append(t.joins, s.run && i > 0)
			t.whole, t.after = append(t.whole, ""), append(t.after, 0)
		}
		t.whole[first], t.after[first] = s.whole, len(t.parts)
		return true
	})
}

// find returns the first places of a term.
func (t *indexed) find(of term) (spans []span) {
	for at := 0; at < len(t.parts) && len(spans) < maxSpans; at++ {
		for _, parts := range of {
			if end := t.match(parts, at); end > 0 {
				spans = append(spans, span{t.parts[at].start, t.parts[end-1].end})
				at = end - 1
				break
			}
		}
	}
	return spans
}

// match returns the number of the part after those that match from at on; 0 if they do not. A part of
// the query matches a part of the text, or a word.
func (t *indexed) match(parts []queryPart, at int) (end int) {
	if len(parts) == 0 {
		return at
	}
	if at == len(t.parts) || parts[0].joined && !t.joins[at] {
		return 0
	}
	if t.parts[at].text == parts[0].text {
		if end = t.match(parts[1:], at+1); end > 0 {
			return end
		}
	}
	if t.whole[at] == parts[0].text && t.after[at] > at+1 {
		return t.match(parts[1:], t.after[at])
	}
	return 0
}

// Bounds of an excerpt, in bytes: of what is before the first match, and of all.
const (
	excerptBefore = 60
	excerptBytes  = 240
)

// excerpt returns the beginning of a text's matches with what is around them, on one line.
func excerpt(text string, spans []span) []string {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end)) })
	from := wordStart(text, spans[0].start-excerptBefore, spans[0].start)
	to := charStart(text, max(from+excerptBytes, min(spans[0].end, spans[0].start+excerptBytes)))
	var pieces []string
	at := from
	for _, s := range spans {
		if s.end = min(s.end, to); s.start < at || s.start >= s.end {
			continue
		}
		pieces = append(pieces, oneLine(text[at:s.start]), oneLine(text[s.start:s.end]))
		at = s.end
	}
	pieces = append(pieces, oneLine(text[at:to]))
	if from > 0 {
		pieces[0] = "…" + pieces[0]
	}
	if to < len(text) {
		pieces[len(pieces)-1] += "…"
	}
	return pieces
}

// wordStart returns the first beginning of a word from at on, or, without one soon, of a character.
func wordStart(text string, at, below int) int {
	if at <= 0 {
		return 0
	}
	at = charStart(text, at)
	if space := strings.IndexFunc(text[at:at+(below-at)/2], unicode.IsSpace); space >= 0 {
		return at + space
	}
	return at
}

// charStart returns the beginning of the character that the byte at at belongs to, and the end of the
// text beyond that.
func charStart(text string, at int) int {
	if at >= len(text) {
		return len(text)
	}
	for at > 0 && text[at]&0xC0 == 0x80 {
		at--
	}
	return at
}

// oneLine returns a text with one space in place of each run of white space and control characters.
func oneLine(s string) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			space = true
			continue
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	if space {
		b.WriteByte(' ')
	}
	return b.String()
}
