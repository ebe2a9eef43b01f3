package ledger

// JSON text: validation and member lookup. Every argument of every op is checked on both sides,
// so this does not go byte by byte through a state machine as encoding/json does; it accepts
// exactly the same texts.

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
)

// maxNesting bounds the nesting of arrays and objects, as in encoding/json, so that no later
// reader overflows its stack.
const maxNesting = 10_000

// IsJSON reports whether b is one JSON value, with or without white space around it. It does
// not check that strings are UTF-8.
func IsJSON(b []byte) bool {
	var room [32]byte
	open := room[:0] // '{' or '[' of each open object or array
	i, ok := 0, true
	for {
		if i = skipSpace(b, i); i == len(b) {
			return false
		}
		switch c := b[i]; c {
		case '{', '[':
			if open = append(open, c); len(open) > maxNesting {
				return false
			}
			i = skipSpace(b, i+1)
			if i < len(b) && b[i] == c+2 { // '}' and ']' are two after their opening ones
				open = open[:len(open)-1]
				i++
				break
			}
			if c == '{' {
				if i, ok = skipKey(b, i); !ok {
					return false
				}
			}
			continue
		case '"':
			i, ok = skipString(b, i)
		case 't':
			i, ok = skipWord(b, i, "true")
		case 'f':
			i, ok = skipWord(b, i, "false")
		case 'n':
			i, ok = skipWord(b, i, "null")
		default:
			i, ok = skipNumber(b, i)
		}
		if !ok {
			return false
		}
		// After a value: its object or array ends or goes on.
		for {
			i = skipSpace(b, i)
			if len(open) == 0 {
				return i == len(b)
			}
			if i == len(b) {
				return false
			}
			in := open[len(open)-1]
			if b[i] == in+2 {
				open = open[:len(open)-1]
				i++
				continue
			}
			if b[i] != ',' {
				return false
			}
			i++
			if in == '{' {
				if i, ok = skipKey(b, i); !ok {
					return false
				}
			}
			break
		}
	}
}

// Member returns the value of the member of that name in b, which is JSON text; found is false
// if b is no object, or has no such member. Of equal names the last counts, as for
// encoding/json and in JavaScript. The bytes are shared with b. If b is no JSON text, as in a
// damaged row, value is any part of b, or nil.
func Member(b []byte, name string) (value []byte, found bool) {
	from, to, found := MemberAt(b, name)
	return b[from:to], found
}

// MemberAt returns the range of Member's value in b; 0, 0 if there is none.
func MemberAt(b []byte, name string) (from, to int, found bool) {
	i := skipSpace(b, 0)
	if i == len(b) || b[i] != '{' {
		return 0, 0, false
	}
	for i < len(b) && b[i] != '}' { // an opening brace, or a comma
		key, end, at, ok := NextName(b, i)
		if !ok {
			break // an empty object
		}
		var after int
		after, i = SkipValue(b, at)
		if isName(b[key:end], name) {
			from, to, found = at, after, true
		}
	}
	return from, to, found
}

// NextName finds the next member of an object in b, which is JSON text: i is where the object's
// brace or the comma before the member is. The name, quotes included, is b[from:to], and the
// member's value begins at value. Where no member follows, ok is false and from is where the
// closing brace is.
func NextName(b []byte, i int) (from, to, value int, ok bool) {
	from = skipSpace(b, i+1)
	value, ok = skipKey(b, from)
	if !ok {
		return from, 0, 0, false
	}
	return from, from + bytes.LastIndexByte(b[from:value], '"') + 1, skipSpace(b, value), true
}

// SkipValue skips the value of a member of an object in b, which is JSON text, or the rest of it
// from i on: the value ends before end, and the comma or brace behind it is at next.
func SkipValue(b []byte, i int) (end, next int) {
	next = skipValue(b, i)
	return i + len(bytes.TrimRight(b[i:next], " \n\t\r")), next
}

// Unquote returns the string that raw, which is JSON text, holds, as encoding/json reads it; ""
// if it is none. Half a surrogate pair is U+FFFD and consumes nothing after it: gjson takes any
// escape behind it as its other half.
func Unquote(raw []byte) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

// isName reports whether b, a name in its quotes, stands for the given one.
func isName(b []byte, name string) bool {
	if text := b[1 : len(b)-1]; bytes.IndexByte(text, '\\') < 0 {
		return string(text) == name
	}
	return Unquote(b) == name
}

// skipValue skips a member's value, to the comma or the brace behind it.
func skipValue(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = endOfString(b, i)
		case '{', '[':
			depth++
		case '}', ']', ',':
			if depth == 0 {
				return i
			}
			if b[i] != ',' {
				depth--
			}
		}
	}
	return i
}

// endOfString returns the index of the closing quote of the string that begins at i; of the
// last byte, if there is none.
func endOfString(b []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b) - 1
		}
		i += n
		if unescaped := bytes.TrimRight(b[i-n:i], `\`); (n-len(unescaped))%2 == 0 {
			return i
		}
	}
}

// skipKey skips a key and its colon.
func skipKey(b []byte, i int) (int, bool) {
	i = skipSpace(b, i)
	if i == len(b) || b[i] != '"' {
		return i, false
	}
	i, ok := skipString(b, i)
	if i = skipSpace(b, i); !ok || i == len(b) || b[i] != ':' {
		return i, false
	}
	return i + 1, true
}

// skipString skips a string, which begins at i.
func skipString(b []byte, i int) (int, bool) {
	for i++; ; i++ {
		if i = skipPlain(b, i); i == len(b) {
			return i, false
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, true
		case c < ' ':
			return i, false
		case c == '\\':
			if i++; i == len(b) {
				return i, false
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if len(b)-i < 5 || !isHex(b[i+1]) || !isHex(b[i+2]) || !isHex(b[i+3]) || !isHex(b[i+4]) {
					return i, false
				}
				i += 4
			default:
				return i, false
			}
		}
	}
}

// skipPlain skips, eight bytes at a time, plain bytes of a string: no quote, backslash or
// control character. It may stop early.
func skipPlain(b []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for len(b)-i >= 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^'"'*ones, x^'\\'*ones
		// The lowest top bit set belongs to the first byte below ' ', or zero in quote or
		// slash: borrows go up only.
		if found := ((x-' '*ones)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & tops; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
		i += 8
	}
	return i
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func skipWord(b []byte, i int, word string) (int, bool) {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return i, false
	}
	return i + len(word), true
}

// skipNumber skips a number; false if there is none.
func skipNumber(b []byte, i int) (int, bool) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	default:
		from := i
		if i = skipDigits(b, i); i == from {
			return i, false
		}
	}
	if i < len(b) && b[i] == '.' {
		from := i + 1
		if i = skipDigits(b, from); i == from {
			return i, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		from := i
		if i = skipDigits(b, from); i == from {
			return i, false
		}
	}
	return i, true
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}
