// Texts that are not kept: their lengths and hashes say whether another continues them. A stream may be one of hundreds of
// a text of megabytes.

package prompts

import (
	"iter"
	"unicode/utf8"
)

// Pieces returns a text in pieces of at most n bytes, none of which ends within a character.
func Pieces(text string, n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for text != "" {
			end := min(n, len(text))
			for end < len(text) && end > n-utf8.UTFMax && !utf8.RuneStart(text[end]) {
				end--
			}
			if !yield(text[:end]) {
				return
			}
			text = text[end:]
		}
	}
}

// FNV-1a, of 64 bits. A text that was made to collide is wrong to its readers alone, who have it from its writer.
const (
	hashStart = 14695981039346656037
	hashPrime = 1099511628211
)

// Prefix is a text that was written: n bytes with this hash. The zero value is the empty text.
type Prefix struct {
	n    int
	hash uint64

	// Without the white space at its end: some agents cut that off when they have come to it.
	trimmed     int
	trimmedHash uint64
}

// Len returns how many bytes it has.
func (p *Prefix) Len() int { return p.n }

// Add appends a text.
func (p *Prefix) Add(text string) {
	if p.n == 0 {
		p.hash, p.trimmedHash = hashStart, hashStart
	}
	h := p.hash
	for i := range len(text) {
		c := text[i]
		h = (h ^ uint64(c)) * hashPrime
		if !isSpace(c) {
			p.trimmed, p.trimmedHash = p.n+i+1, h
		}
	}
	p.n, p.hash = p.n+len(text), h
}

// Extend makes the prefix all of text, and returns what text has more. ok is false, and nothing changed, if text does not
// begin with it. A text that lacks nothing but white space at the end has nothing more.
func (p *Prefix) Extend(text string) (more string, ok bool) {
	if len(text) >= p.n {
		if p.n > 0 && hashOf(text[:p.n]) != p.hash {
			return "", false
		}
		more = text[p.n:]
		p.Add(more)
		return more, true
	}
	return "", len(text) >= p.trimmed && (p.trimmed == 0 || hashOf(text[:p.trimmed]) == p.trimmedHash) && allSpace(text[p.trimmed:])
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func allSpace(text string) bool {
	for i := range len(text) {
		if !isSpace(text[i]) {
			return false
		}
	}
	return true
}

func hashOf(text string) uint64 {
	h := uint64(hashStart)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * hashPrime
	}
	return h
}

// SumOf returns the hash of a text; 0 is that of none.
func SumOf(text []byte) uint64 {
	h := uint64(hashStart)
	for _, c := range text {
		h = (h ^ uint64(c)) * hashPrime
	}
	return max(h, 1)
}
