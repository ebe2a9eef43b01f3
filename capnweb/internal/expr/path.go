// Paths: names of properties, and array indexes among them.

package expr

import "github.com/mooring-rpc/mooring/capnweb/internal/jsontext"

// Path reads a path: text, and numbers as array indexes.
func Path(v any) ([]string, error) {
	a, ok := v.([]any)
	if !ok {
		return nil, Violationf("a bad path")
	}
	if len(a) == 0 {
		return nil, nil
	}
	path := make([]string, len(a))
	for i, x := range a {
		switch x := x.(type) {
		case string:
			path[i] = x
		case float64:
			path[i] = string(jsontext.AppendNumber(nil, x))
		default:
			return nil, Violationf("a bad path")
		}
	}
	return path, nil
}

// AppendPath writes a path. A name that may be an array index is written as a number: JavaScript's arrays require that, and
// its objects accept it.
func AppendPath(b []byte, path []string) []byte {
	b = append(b, '[')
	for i, p := range path {
		if i > 0 {
			b = append(b, ',')
		}
		if ArrayIndex(p) >= 0 {
			b = append(b, p...)
		} else {
			b = jsontext.AppendString(b, p)
		}
	}
	return append(b, ']')
}

// OfPath returns a path as AppendPath writes it, as a value.
func OfPath(path []string) []any {
	list := make([]any, len(path))
	for i, p := range path {
		list[i] = p
		if k := ArrayIndex(p); k >= 0 {
			list[i] = float64(k)
		}
	}
	return list
}

// ArrayIndex parses a canonical array index, -1 if it is none.
func ArrayIndex(s string) int {
	if s == "" || len(s) > 9 || (s[0] == '0' && len(s) > 1) {
		return -1
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	return n
}

// JoinPath returns the path a, and b from there.
func JoinPath(a, b []string) []string {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	return append(append(make([]string, 0, len(a)+len(b)), a...), b...)
}

// reservedNames are the names that every JavaScript object has. They read as undefined.
var reservedNames = map[string]bool{
	"constructor": true, "__defineGetter__": true, "__defineSetter__": true, "hasOwnProperty": true,
	"__lookupGetter__": true, "__lookupSetter__": true, "isPrototypeOf": true, "propertyIsEnumerable": true,
	"toString": true, "valueOf": true, "__proto__": true, "toLocaleString": true,
}

// IsReserved reports whether every JavaScript object has a property of that name.
func IsReserved(name string) bool {
	if len(name) < 7 || len(name) > 20 {
		return false
	}
	return reservedNames[name]
}

// Paths has the paths of methods that were called.
type Paths map[string][]string

// maxPaths is how many paths are kept.
const maxPaths = 256

// parse reads a path of one plain name, and the comma after it.
func (known Paths) parse(b []byte) (path []string, rest []byte, ok bool) {
	if len(b) < 2 || b[0] != '[' || b[1] != '"' {
		return nil, nil, false
	}
	for i := 2; i < len(b) && i < 66; i++ {
		switch ch := b[i]; {
		case ch == '"':
			if i+3 > len(b) || b[i+1] != ']' || b[i+2] != ',' {
				return nil, nil, false
			}
			name, rest := b[2:i], b[i+3:]
			if path, ok := known[string(name)]; ok {
				return path, rest, true
			}
			path := []string{string(name)}
			if len(known) < maxPaths {
				known[path[0]] = path
			}
			return path, rest, true
		case ch < 0x20 || ch == '\\' || ch >= 0x80:
			return nil, nil, false
		}
	}
	return nil, nil, false
}
