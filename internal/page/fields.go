package page

// Reading of payloads: any field may be missing or of any type.

import (
	"math"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/ledger"
)

// fields is a JSON value. A missing value is like null.
type fields struct {
	gjson.Result
	below *map[string]fields // of an object, filled at its first use
}

// result is gjson's value.
type result = gjson.Result

// read parses a payload.
func read(payload []byte) fields { return value(gjson.ParseBytes(payload)) }

func value(v result) fields {
	f := fields{Result: v}
	if v.IsObject() {
		f.below = new(map[string]fields)
	}
	return f
}

// namesMax is how many of an object's members are indexed.
const namesMax = 1000

// at returns the value below constant names. An object is indexed once; of repeated names the
// last counts, as for deltas.
func (f fields) at(names ...string) fields {
	for _, name := range names {
		if f.below == nil {
			return fields{}
		}
		if *f.below == nil {
			all := map[string]fields{}
			f.ForEach(func(k, v result) bool {
				all[k.Str] = value(v)
				return len(all) < namesMax
			})
			*f.below = all
		}
		f = (*f.below)[name]
	}
	return f
}

// text returns a string as is, and any other value as its JSON text; null is "".
func (f fields) text() string {
	switch f.Type {
	case gjson.Null:
		return ""
	case gjson.String:
		if strings.Contains(f.Raw, `\u`) {
			return ledger.Unquote([]byte(f.Raw))
		}
		return f.Str
	}
	return f.Raw
}

// label returns text as a label within a line.
func (f fields) label() string { return oneLine(f.text(), labelBytes) }

// number returns a finite number; 0 for any other value.
func (f fields) number() float64 {
	if f.Type != gjson.Number || math.IsNaN(f.Num) || math.IsInf(f.Num, 0) {
		return 0
	}
	return f.Num
}

// millis returns a time in Unix milliseconds between 1970 and 9999; 0 for any other value.
func (f fields) millis() int64 {
	if n := f.number(); n >= 1 && n < 253402300800000 {
		return int64(n)
	}
	return 0
}

// each calls do with the elements of an array, or the members of an object by name, at most
// listItems, and returns how many more there are.
func (f fields) each(do func(name string, v fields)) (more int) {
	if !f.IsArray() && !f.IsObject() {
		return 0
	}
	n := 0
	f.ForEach(func(k, v gjson.Result) bool {
		if n++; n <= listItems {
			do(k.String(), value(v))
		}
		return true
	})
	return max(n-listItems, 0)
}

// empty reports whether there is nothing to show.
func (f fields) empty() bool {
	switch {
	case f.Type == gjson.Null:
		return true
	case f.IsObject() || f.IsArray():
		none := true
		f.ForEach(func(_, _ gjson.Result) bool { none = false; return false })
		return none
	}
	return f.Type == gjson.String && f.Str == ""
}

// role returns a message's role.
func role(p fields) string { return p.at("role").text() }

// partOf splits a part's key into message and part id.
func partOf(key string) (message, id string) {
	message, id, _ = strings.Cut(strings.TrimPrefix(key, "part/"), "/")
	return message, id
}

// indented formats JSON text for people: one value a line, up to limit bytes. The text may be
// truncated.
func indented(raw string, limit int) string {
	var b strings.Builder
	depth, quoted := 0, false
	line := func() {
		b.WriteByte('\n')
		for range min(depth, jsonDepth) {
			b.WriteString("  ")
		}
	}
	for i := 0; i < len(raw) && b.Len() < limit; i++ {
		c := raw[i]
		if quoted {
			b.WriteByte(c)
			if c == '\\' && i+1 < len(raw) {
				i++
				b.WriteByte(raw[i])
			} else if c == '"' {
				quoted = false
			}
			continue
		}
		switch c {
		case ' ', '\t', '\n', '\r':
		case '"':
			quoted = true
			b.WriteByte(c)
		case '{', '[':
			b.WriteByte(c)
			if next := skipBlanks(raw, i+1); next < len(raw) && (raw[next] == '}' || raw[next] == ']') {
				i = next
				b.WriteByte(raw[next])
				continue
			}
			depth++
			line()
		case '}', ']':
			depth = max(depth-1, 0)
			line()
			b.WriteByte(c)
		case ',':
			b.WriteByte(c)
			line()
		case ':':
			b.WriteString(": ")
		default:
			b.WriteByte(c)
		}
	}
	return cutBytes(b.String(), limit)
}

func skipBlanks(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r') {
		i++
	}
	return i
}
