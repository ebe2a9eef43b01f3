package jsonpatch

// Names of members: what text they stand for, and how one is spelled.

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
)

// nameAt returns the text that the name b[from:to] stands for; b is JSON text.
func nameAt(b []byte, from, to int, where string) (string, error) {
	raw := b[from+1 : to-1]
	text := raw
	if bytes.IndexByte(raw, '\\') >= 0 {
		var whole bool
		if text, whole = unescape(raw); !whole {
			return "", fault.BadPayload.With("the %s has half a surrogate pair in a name, at byte %d", where, from)
		}
	}
	if !utf8.Valid(text) {
		return "", fault.BadPayload.With("the %s has a name that is not UTF-8, at byte %d", where, from)
	}
	return string(text), nil
}

// unescape replaces the escapes of a JSON string; false if one is half a surrogate pair.
func unescape(raw []byte) ([]byte, bool) {
	text := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			text = append(text, raw[i])
			continue
		}
		i++
		switch c := raw[i]; c {
		case 'b':
			text = append(text, '\b')
		case 'f':
			text = append(text, '\f')
		case 'n':
			text = append(text, '\n')
		case 'r':
			text = append(text, '\r')
		case 't':
			text = append(text, '\t')
		case 'u':
			r := unit(raw[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				if !bytes.HasPrefix(raw[i+1:], []byte(`\u`)) {
					return nil, false
				}
				if r = utf16.DecodeRune(r, unit(raw[i+2:])); r == utf8.RuneError {
					return nil, false
				}
				i += 6
			}
			text = utf8.AppendRune(text, r)
		default: // a quote, a backslash, a slash
			text = append(text, c)
		}
	}
	return text, true
}

// unit returns the UTF-16 unit of an escape, from its u on.
func unit(escape []byte) rune {
	n, _ := strconv.ParseUint(string(escape[1:5]), 16, 16) // four hex digits: it is JSON text
	return rune(n)
}

// appendName appends a name as RFC 8785 spells strings, which is what JSON.stringify does.
func appendName(b []byte, name string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c == '\r':
			b = append(b, `\r`...)
		default:
			b = append(b, `\u00`...)
			b = append(b, hex[c>>4], hex[c&15])
		}
	}
	return append(b, '"')
}
