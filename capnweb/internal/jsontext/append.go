// Writing JSON text, as JavaScript's JSON.stringify does.

package jsontext

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// plainInString has the ASCII bytes that need no escape in a string.
var plainInString = func() (plain [utf8.RuneSelf]bool) {
	for c := range plain {
		plain[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return plain
}()

// AppendString appends s as a JSON string. Each byte that is not UTF-8 becomes U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if plainInString[c] {
				i++
				continue
			}
			b = append(b, s[from:i]...)
			i++
			from = i
			b = appendEscape(b, c)
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			b = append(b, s[from:i]...)
			b = utf8.AppendRune(b, utf8.RuneError)
			from = i + n
		}
		i += n
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

func appendEscape(b []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
	case '\b':
		c = 'b'
	case '\f':
		c = 'f'
	case '\n':
		c = 'n'
	case '\r':
		c = 'r'
	case '\t':
		c = 't'
	default:
		return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	}
	return append(b, '\\', c)
}

// AppendNumber appends f as JavaScript prints it: -0 is 0, and NaN and the infinities are null.
func AppendNumber(b []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.AppendInt(b, int64(f), 10)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	if abs := math.Abs(f); 1e-6 <= abs && abs < 1e21 {
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	b = strconv.AppendFloat(b, f, 'e', -1, 64)
	if n := len(b); b[n-4] == 'e' && b[n-2] == '0' { // e-07
		b[n-2] = b[n-1]
		b = b[:n-1]
	}
	return b
}

// SortedNames returns the names of an object's members, sorted: equal objects have equal bytes.
func SortedNames[V any](members map[string]V) []string {
	return slices.Sorted(maps.Keys(members))
}

// Append appends a value of Parse's types. Other types are null.
func Append(b []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(b, v)
	case float64:
		return AppendNumber(b, v)
	case string:
		return AppendString(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = Append(b, e)
		}
		return append(b, ']')
	case map[string]any:
		b = append(b, '{')
		for i, name := range SortedNames(v) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(AppendString(b, name), ':')
			b = Append(b, v[name])
		}
		return append(b, '}')
	}
	return append(b, "null"...)
}
