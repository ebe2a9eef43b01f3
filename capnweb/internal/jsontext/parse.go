// Reading JSON text, the hot path of every message: strict, bounded in depth, and sparing with memory.

package jsontext

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"strconv"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrTooDeep is Parse's error for values that nest deeper than maxDepth.
var ErrTooDeep = errors.New("the message nests too deep")

// syntaxError is Parse's error for text that is no JSON. It has the position and never the text: messages
// carry secrets.
type syntaxError struct {
	what   string
	offset int
}

func (e *syntaxError) Error() string {
	return "not JSON: " + e.what + " at byte " + strconv.Itoa(e.offset)
}

// Parse reads one JSON value according to RFC 8259: nil, bool, float64, string, []any or map[string]any. Of members of
// an object with the same name the last counts, a number beyond float64 is infinite and half a surrogate pair is U+FFFD.
// Arrays and objects may nest maxDepth deep: the error is ErrTooDeep beyond. Nothing in the value refers to data, and the caller
// may change all of it.
func Parse(data []byte, maxDepth int) (any, error) {
	if !utf8.Valid(data) {
		return nil, &syntaxError{"text that is not UTF-8", invalidAt(data)}
	}
	p := parsers.Get().(*parser)
	p.data, p.at, p.depth = data, 0, maxDepth
	p.skipSpace()
	v, err := p.value()
	if err == nil {
		if p.skipSpace(); p.at < len(data) {
			v, err = nil, p.fail("more after the value")
		}
	}
	p.recycle()
	return v, err
}

func invalidAt(data []byte) int {
	at := 0
	for at < len(data) {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return at
}

const (
	internBytes  = 24       // the longest string that is interned
	internSlots  = 256      // how many strings a parser interns
	shareBytes   = 2 << 10  // the largest message whose strings may share memory, and so keep all of it alive
	chunkSlots   = 32       // elements from which small arrays are sliced
	maxKeptStack = 16 << 10 // elements a pooled parser keeps room for
)

// parser reads one message at a time. Elements of arrays and objects under construction are on stack, so that each is
// allocated once, in its size.
type parser struct {
	data     []byte
	text     string // data, once a string was sliced from it
	at       int
	depth    int // how many more levels values may nest
	stack    []any
	names    []string
	chunk    []any            // small arrays are sliced from it
	interned [internSlots]any // frequent strings: tags, methods, names of members
	unesc    []byte
	shared   bool // text is set
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

// recycle returns the parser to the pool.
func (p *parser) recycle() {
	p.data, p.text, p.shared, p.chunk = nil, "", false, nil
	if cap(p.stack) > maxKeptStack || cap(p.names) > maxKeptStack || cap(p.unesc) > maxKeptStack {
		p.stack, p.names, p.unesc = nil, nil, nil
	}
	p.truncate(0) // left there by an error
	clear(p.names)
	p.names = p.names[:0]
	parsers.Put(p)
}

// truncate removes the values on the stack from base on.
func (p *parser) truncate(base int) {
	clear(p.stack[base:])
	p.stack = p.stack[:base]
}

func (p *parser) fail(what string) error {
	if p.at >= len(p.data) {
		what = "it ends too early"
	}
	return &syntaxError{what, p.at}
}

func (p *parser) skipSpace() {
	for p.at < len(p.data) {
		switch p.data[p.at] {
		case ' ', '\n', '\r', '\t':
			p.at++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end. A 0 in JSON outside of strings is an error anyway.
func (p *parser) peek() byte {
	if p.at < len(p.data) {
		return p.data[p.at]
	}
	return 0
}

// value reads a value that begins at the present byte.
func (p *parser) value() (any, error) {
	switch c := p.peek(); {
	case c == '"':
		return p.stringValue()
	case c == '[':
		return p.array()
	case c == '{':
		return p.object()
	case c == '-' || '0' <= c && c <= '9':
		return p.number()
	case c == 't':
		return p.word("true", true)
	case c == 'f':
		return p.word("false", false)
	case c == 'n':
		return p.word("null", nil)
	}
	return nil, p.fail("an unexpected character")
}

func (p *parser) word(word string, v any) (any, error) {
	for i := range len(word) {
		if p.peek() != word[i] {
			return nil, p.fail("an unknown word")
		}
		p.at++
	}
	return v, nil
}

// noElements is shared by all empty arrays: there is nothing in it to change.
var noElements any = []any{}

func (p *parser) array() (any, error) {
	if p.depth <= 0 {
		return nil, ErrTooDeep
	}
	p.depth--
	p.at++
	base := len(p.stack)
	if p.skipSpace(); p.peek() == ']' {
		p.at++
	} else {
		for {
			v, err := p.value()
			if err != nil {
				return nil, err
			}
			p.stack = append(p.stack, v)
			p.skipSpace()
			c := p.peek()
			if c != ',' && c != ']' {
				return nil, p.fail("a missing comma in an array")
			}
			p.at++
			if c == ']' {
				break
			}
			p.skipSpace()
		}
	}
	p.depth++
	n := len(p.stack) - base
	if n == 0 {
		return noElements, nil
	}
	var list []any
	if n <= chunkSlots/4 {
		if len(p.chunk) < n {
			// A short message does not pay for a whole chunk.
			p.chunk = make([]any, min(chunkSlots, n+len(p.data)/6))
		}
		list, p.chunk = p.chunk[:n:n], p.chunk[n:]
	} else {
		list = make([]any, n)
	}
	copy(list, p.stack[base:])
	p.truncate(base)
	return list, nil
}

func (p *parser) object() (any, error) {
	if p.depth <= 0 {
		return nil, ErrTooDeep
	}
	p.depth--
	p.at++
	base, nameBase := len(p.stack), len(p.names)
	if p.skipSpace(); p.peek() == '}' {
		p.at++
	} else {
		for {
			if p.peek() != '"' {
				return nil, p.fail("a missing member name")
			}
			name, err := p.name()
			if err != nil {
				return nil, err
			}
			if p.skipSpace(); p.peek() != ':' {
				return nil, p.fail("a missing colon")
			}
			p.at++
			p.skipSpace()
			v, err := p.value()
			if err != nil {
				return nil, err
			}
			p.names, p.stack = append(p.names, name), append(p.stack, v)
			p.skipSpace()
			c := p.peek()
			if c != ',' && c != '}' {
				return nil, p.fail("a missing comma in an object")
			}
			p.at++
			if c == '}' {
				break
			}
			p.skipSpace()
		}
	}
	p.depth++
	members := make(map[string]any, len(p.names)-nameBase)
	for i, name := range p.names[nameBase:] {
		members[name] = p.stack[base+i]
	}
	clear(p.names[nameBase:])
	p.names = p.names[:nameBase]
	p.truncate(base)
	return members, nil
}

// stringValue reads a string as a value, name as the name of a member.
func (p *parser) stringValue() (any, error) {
	raw, start, err := p.scanString()
	if err != nil {
		return nil, err
	}
	if len(raw) <= internBytes {
		return *p.intern(raw), nil
	}
	return p.makeString(raw, start), nil
}

func (p *parser) name() (string, error) {
	raw, start, err := p.scanString()
	if err != nil {
		return "", err
	}
	if len(raw) <= internBytes {
		return (*p.intern(raw)).(string), nil
	}
	return p.makeString(raw, start), nil
}

// intern returns a short string from the cache, and adds it if missing. Messages repeat a few words, and a cached one
// costs no memory.
func (p *parser) intern(raw []byte) *any {
	h := uint32(len(raw))
	for _, c := range raw {
		h = (h ^ uint32(c)) * 0x01000193
	}
	slot := &p.interned[(h^h>>15)%internSlots]
	if known, ok := (*slot).(string); !ok || known != string(raw) {
		*slot = string(raw)
	}
	return slot
}

// makeString returns raw, which begins at start of data, or was unescaped when start is negative, as a string. Strings of a
// small message share one copy of it; those of a large one do not keep all of it alive.
func (p *parser) makeString(raw []byte, start int) string {
	if start < 0 || len(p.data) > shareBytes {
		return string(raw)
	}
	if !p.shared {
		p.text, p.shared = string(p.data), true
	}
	return p.text[start : start+len(raw)]
}

// scanString reads a string: its bytes, and where in data they begin, -1 if they had escapes. They are valid until
// the next call.
func (p *parser) scanString() (raw []byte, start int, err error) {
	p.at++
	start = p.at
	p.skipPlain()
	switch p.peek() {
	case '"':
		raw = p.data[start:p.at]
		p.at++
		return raw, start, nil
	case '\\':
	default:
		return nil, 0, p.fail("a control character in a string")
	}
	b := append(p.unesc[:0], p.data[start:p.at]...)
	for {
		switch p.peek() {
		case '"':
			p.at++
			p.unesc = b
			return b, -1, nil
		case '\\':
			if b, err = p.unescape(b); err != nil {
				return nil, 0, err
			}
		default:
			return nil, 0, p.fail("a control character in a string")
		}
		from := p.at
		p.skipPlain()
		b = append(b, p.data[from:p.at]...)
	}
}

// skipPlain advances to the next byte of a string that is no plain character: a quote, a backslash, a control character.
func (p *parser) skipPlain() {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	data, at := p.data, p.at
	for at+8 <= len(data) {
		w := binary.LittleEndian.Uint64(data[at:])
		quote, slash := w^ones*'"', w^ones*'\\'
		// The high bit of each byte that is below 0x20, or has become zero. Above the first such byte there may be
		// false ones.
		found := ((w - ones*0x20) &^ w) | ((quote - ones) &^ quote) | ((slash - ones) &^ slash)
		if found &= highs; found != 0 {
			p.at = at + bits.TrailingZeros64(found)/8
			return
		}
		at += 8
	}
	for at < len(data) && data[at] >= 0x20 && data[at] != '"' && data[at] != '\\' {
		at++
	}
	p.at = at
}

// unescape appends the character of the escape at the present position.
func (p *parser) unescape(b []byte) ([]byte, error) {
	p.at++
	c := p.peek()
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, err := p.hex4()
		if err != nil {
			return nil, err
		}
		if utf16.IsSurrogate(r) {
			r = p.pair(r)
		}
		return utf8.AppendRune(b, r), nil
	default:
		return nil, p.fail("an unknown escape")
	}
	p.at++
	return append(b, c), nil
}

// hex4 reads the u and the four digits of an escape.
func (p *parser) hex4() (rune, error) {
	var r rune
	for range 4 {
		p.at++
		c := p.peek()
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, p.fail("an escape without four digits")
		}
		r = r<<4 | rune(c)
	}
	p.at++
	return r, nil
}

// pair reads the other half of a surrogate pair, if it is there.
func (p *parser) pair(first rune) rune {
	if p.at+1 < len(p.data) && p.data[p.at] == '\\' && p.data[p.at+1] == 'u' {
		back := p.at
		p.at++
		if second, err := p.hex4(); err == nil {
			if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
				return r
			}
		}
		p.at = back
	}
	return utf8.RuneError
}

// smallNumbers are boxed once.
var smallNumbers = func() (list [1024]any) {
	for i := range list {
		list[i] = float64(i)
	}
	return list
}()

func (p *parser) number() (any, error) {
	start, whole := p.at, true
	if p.peek() == '-' {
		p.at++
	}
	digits := p.at
	p.skipDigits()
	n := p.at - digits
	if n == 0 || n > 1 && p.data[digits] == '0' {
		p.at = min(p.at, digits+1)
		return nil, p.fail("a number that does not begin as one")
	}
	if p.peek() == '.' {
		whole = false
		p.at++
		if from := p.at; p.skipDigits() == from {
			return nil, p.fail("a number without digits after the point")
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		whole = false
		p.at++
		if c := p.peek(); c == '+' || c == '-' {
			p.at++
		}
		if from := p.at; p.skipDigits() == from {
			return nil, p.fail("a number without digits in its exponent")
		}
	}
	if whole && n <= 15 {
		v := 0
		for _, c := range p.data[digits:p.at] {
			v = v*10 + int(c-'0')
		}
		switch {
		case digits == start && v < len(smallNumbers):
			return smallNumbers[v], nil
		case digits == start:
			return float64(v), nil
		case v == 0:
			return math.Copysign(0, -1), nil
		}
		return float64(-v), nil
	}
	// Out of range is the only error possible here, and comes with the infinity of that sign.
	v, _ := strconv.ParseFloat(string(p.data[start:p.at]), 64)
	return v, nil
}

// skipDigits advances past digits.
func (p *parser) skipDigits() int {
	for p.at < len(p.data) && '0' <= p.data[p.at] && p.data[p.at] <= '9' {
		p.at++
	}
	return p.at
}
