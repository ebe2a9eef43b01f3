package fields

import (
	"math"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/ledger"
)

// Value is a JSON value. A missing value is like null.
type Value struct {
	gjson.Result
	below *map[string]Value // of an object, filled at its first use
}

// Read parses a payload.
func Read(payload []byte) Value { return Of(gjson.ParseBytes(payload)) }

// Of returns a value that was parsed already.
func Of(v gjson.Result) Value {
	f := Value{Result: v}
	if v.IsObject() {
		f.below = new(map[string]Value)
	}
	return f
}

// ListItems bounds the items that are shown of one list: files, todos, models' traits.
const ListItems = 200

// namesMax is how many of an object's members are indexed.
const namesMax = 1000

// At returns the value below constant names. An object is indexed once; of repeated names the
// last counts, as for deltas.
func (f Value) At(names ...string) Value {
	for _, name := range names {
		if f.below == nil {
			return Value{}
		}
		if *f.below == nil {
			all := map[string]Value{}
			f.ForEach(func(k, v gjson.Result) bool {
				all[k.Str] = Of(v)
				return len(all) < namesMax
			})
			*f.below = all
		}
		f = (*f.below)[name]
	}
	return f
}

// Text returns a string as is, and any other value as its JSON text; null is "".
func (f Value) Text() string {
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

// Label returns text as a label within a line.
func (f Value) Label() string { return markup.OneLine(f.Text(), markup.LabelBytes) }

// Number returns a finite number; 0 for any other value.
func (f Value) Number() float64 {
	if f.Type != gjson.Number || math.IsNaN(f.Num) || math.IsInf(f.Num, 0) {
		return 0
	}
	return f.Num
}

// Millis returns a time in Unix milliseconds between 1970 and 9999; 0 for any other value.
func (f Value) Millis() int64 {
	if n := f.Number(); n >= 1 && n < 253402300800000 {
		return int64(n)
	}
	return 0
}

// Each calls do with the elements of an array, or the members of an object by name, at most
// ListItems, and returns how many more there are.
func (f Value) Each(do func(name string, v Value)) (more int) {
	if !f.IsArray() && !f.IsObject() {
		return 0
	}
	n := 0
	f.ForEach(func(k, v gjson.Result) bool {
		if n++; n <= ListItems {
			do(k.String(), Of(v))
		}
		return true
	})
	return max(n-ListItems, 0)
}

// Empty reports whether there is nothing to show.
func (f Value) Empty() bool {
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

// jsonDepth is the depth from which JSON is not indented.
const jsonDepth = 24

// Indented formats JSON text for people: one value a line, up to limit bytes. The text may be
// truncated.
func Indented(raw string, limit int) string {
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
	return markup.CutBytes(b.String(), limit)
}

func skipBlanks(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r') {
		i++
	}
	return i
}
