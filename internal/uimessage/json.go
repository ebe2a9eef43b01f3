package uimessage

// JSON objects as lists of members: values keep their bytes, members their order.

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/ledger"
)

// member is one member of an object.
type member struct {
	name  string
	value []byte // JSON text
}

// object is the members of an object.
type object []member

// parse returns the members of an object, which is JSON text. Of equal names the last value counts, at the place of the first, as in
// JavaScript. ok is false if the text is no object.
func parse(text []byte) (o object, ok bool) {
	text = bytes.TrimSpace(text)
	if !isObject(text) {
		return nil, false
	}
	var at map[string]int // of an object with many members
	for i := 0; i < len(text) && text[i] != '}'; {
		from, to, value, more := ledger.NextName(text, i)
		if !more {
			break
		}
		end, next := ledger.SkipValue(text, value)
		m := member{ledger.Unquote(text[from:to]), text[value:end]}
		n, repeated := at[m.name]
		if at == nil {
			n = o.find(m.name)
			repeated = n >= 0
		}
		switch {
		case repeated:
			o[n] = m
		case len(o) == manyMembers:
			at = o.places()
			fallthrough
		default:
			o = append(o, m)
			if at != nil {
				at[m.name] = len(o) - 1
			}
		}
		i = next
	}
	return o, true
}

// manyMembers is from how many members on an object's names are looked up in a map.
const manyMembers = 16

// places returns where each member is.
func (o object) places() map[string]int {
	at := make(map[string]int, len(o))
	for i := range o {
		at[o[i].name] = i
	}
	return at
}

// find returns where a member is, -1 if there is none.
func (o object) find(name string) int {
	return slices.IndexFunc(o, func(m member) bool { return m.name == name })
}

// elements returns the elements of an array, which is JSON text. ok is false if the text is none.
func elements(text []byte) (list [][]byte, ok bool) {
	text = bytes.TrimSpace(text)
	if !isArray(text) {
		return nil, false
	}
	for i := 1; i < len(text) && text[i] != ']'; i++ {
		end, next := ledger.SkipValue(text, i)
		if one := bytes.TrimSpace(text[i:end]); len(one) > 0 { // an empty array has none
			list = append(list, one)
		}
		i = next
		if i < len(text) && text[i] == ']' {
			break
		}
	}
	return list, true
}

func isObject(text []byte) bool { return len(text) > 0 && text[0] == '{' }
func isArray(text []byte) bool  { return len(text) > 0 && text[0] == '[' }
func isString(text []byte) bool { return len(text) > 0 && text[0] == '"' }

// get returns the value of a member, nil if there is none.
func (o object) get(name string) []byte {
	if i := o.find(name); i >= 0 {
		return o[i].value
	}
	return nil
}

// text returns a member's string, "" if it has none.
func (o object) text(name string) string { return ledger.Unquote(o.get(name)) }

// object returns the members of a member, nil if it is no object.
func (o object) object(name string) (inner object, ok bool) { return parse(o.get(name)) }

// put appends a member. Nothing is appended for a nil value.
func (o *object) put(name string, value []byte) {
	if value != nil {
		*o = append(*o, member{name, value})
	}
}

// putText appends a member that is a string.
func (o *object) putText(name, value string) { o.put(name, quote(value)) }

// without returns the members that do not have one of some names.
func (o object) without(names ...string) object {
	return slices.DeleteFunc(slices.Clone(o), func(m member) bool { return slices.Contains(names, m.name) })
}

// sorted returns the members by name: what a session has of its own is written so, that it does not depend on the order there.
func (o object) sorted() object {
	o = slices.Clone(o)
	slices.SortFunc(o, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return o
}

// bytes returns the object as compact JSON text.
func (o object) bytes() []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(quote(m.name))
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return compact(b.Bytes())
}

// array returns values as an array of JSON text.
func array(values ...[]byte) []byte {
	return slices.Concat([]byte("["), bytes.Join(values, []byte(",")), []byte("]"))
}

// quote returns a string as JSON text, as JavaScript's JSON.stringify writes it, but for invalid UTF-8.
func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always marshals
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func compact(text []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return text
	}
	return b.Bytes()
}

// equal reports whether two compact JSON texts have the same value: objects whatever the order of their members, numbers and
// strings as they are spelled.
func equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if x, ok := elements(a); ok {
		y, ok := elements(b)
		return ok && slices.EqualFunc(x, y, equal)
	}
	x, ok := parse(a)
	if !ok {
		return false
	}
	y, ok := parse(b)
	if !ok || len(x) != len(y) {
		return false
	}
	// By name: there are as many of both, and no name stands twice.
	x, y = x.sorted(), y.sorted()
	return slices.EqualFunc(x, y, func(a, b member) bool { return a.name == b.name && equal(a.value, b.value) })
}
