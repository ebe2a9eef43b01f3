// Strict parsing of JSON objects: each member is known, occurs once and has its type. The text is
// known to be valid JSON.

package httpapi

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// bodyPath is a path in the body; nil is the body itself. It is formatted only for errors.
type bodyPath struct {
	parent *bodyPath
	name   string // of a member; "" for an element
	index  int    // of an element
}

// String formats the path as ops[1].seq.
func (p *bodyPath) String() string {
	switch {
	case p == nil:
		return "the body"
	case p.name == "":
		return fmt.Sprintf("%s[%d]", p.parent, p.index)
	case p.parent == nil:
		return p.name
	}
	return p.parent.String() + "." + p.name
}

// member describes a member that an object may have.
type member struct {
	name  string
	raw   bool // null is a value, not the same as absent
	parse func(at *bodyPath, v gjson.Result) *fault.Error
}

// wantFault returns the fault for a wrong value at a path; want describes the right one.
func wantFault(at *bodyPath, want string) *fault.Error {
	return fault.Malformed.With("%s: want %s", at, want)
}

// parseObject parses an object's members, all of which are optional; the caller checks the
// required ones. null is the same as absent.
func parseObject(at *bodyPath, v gjson.Result, members ...member) (refused *fault.Error) {
	if !v.IsObject() {
		return wantFault(at, "an object")
	}
	var seen uint64 // one bit per member
	v.ForEach(func(key, value gjson.Result) bool {
		for i, m := range members {
			if m.name != key.Str {
				continue
			}
			here := &bodyPath{parent: at, name: m.name}
			switch {
			case seen&(1<<i) != 0:
				refused = fault.Malformed.With("%s is given twice", here)
			case m.raw || value.Type != gjson.Null:
				refused = m.parse(here, value)
			}
			seen |= 1 << i
			return refused == nil
		}
		names := make([]string, len(members))
		for i, m := range members {
			names[i] = m.name
		}
		where := ""
		if at != nil {
			where = " in " + at.String()
		}
		refused = fault.Malformed.With("there is no %s%s; there are %s", quoted(key.Str), where, strings.Join(names, ", "))
		return false
	})
	return refused
}

// parseArray parses an array of at most limit elements.
func parseArray(at *bodyPath, v gjson.Result, limit int, take func(at *bodyPath, v gjson.Result) *fault.Error) (refused *fault.Error) {
	if !v.IsArray() {
		return wantFault(at, "an array")
	}
	n := 0
	v.ForEach(func(_, value gjson.Result) bool {
		if n == limit {
			refused = fault.TooLarge.With("%s has more than %d elements, which are never accepted", at, limit)
			return false
		}
		refused = take(&bodyPath{parent: at, index: n}, value)
		n++
		return refused == nil
	})
	return refused
}

func text(name string, to *string) member {
	return member{name: name, parse: func(at *bodyPath, v gjson.Result) *fault.Error { return parseText(at, v, to) }}
}

func parseText(at *bodyPath, v gjson.Result, to *string) *fault.Error {
	if v.Type != gjson.String {
		return wantFault(at, "a text")
	}
	*to = v.Str
	return nil
}

func texts(name string, limit int, to *[]string) member {
	return member{name: name, parse: func(at *bodyPath, v gjson.Result) *fault.Error {
		*to = []string{} // not nil, even if empty
		return parseArray(at, v, limit, func(at *bodyPath, v gjson.Result) *fault.Error {
			var s string
			refused := parseText(at, v, &s)
			*to = append(*to, s)
			return refused
		})
	}}
}

func boolean(name string, to *bool) member {
	return member{name: name, parse: func(at *bodyPath, v gjson.Result) *fault.Error {
		if v.Type != gjson.True && v.Type != gjson.False {
			return wantFault(at, "true or false")
		}
		*to = v.Type == gjson.True
		return nil
	}}
}

func number(name string, to *uint64) member {
	return member{name: name, parse: func(at *bodyPath, v gjson.Result) *fault.Error { return parseNumber(at, v, to) }}
}

// parseNumber parses a whole number from 0 to 2^64-1, or its digits as a string, for writers
// whose numbers are exact only to 2^53.
func parseNumber(at *bodyPath, v gjson.Result, to *uint64) *fault.Error {
	digits := v.Raw
	if v.Type == gjson.String {
		digits = v.Str
	}
	n, ok := parseUint(digits)
	if !ok || v.Type != gjson.String && v.Type != gjson.Number {
		return wantFault(at, "a whole number from 0 to 2^64-1, or its digits as a text")
	}
	*to = n
	return nil
}

// bytes32 parses 32 bytes, as unpadded base64url; errors never contain the value.
func bytes32(name string, to *[]byte) member {
	return member{name: name, parse: func(at *bodyPath, v gjson.Result) *fault.Error {
		b, err := base64.RawURLEncoding.Strict().DecodeString(v.Str)
		if v.Type != gjson.String || err != nil || len(b) != 32 {
			return wantFault(at, "32 bytes as 43 characters of base64url")
		}
		*to = b
		return nil
	}}
}

// parseOpRef parses {op, path}: the result of an earlier op.
func parseOpRef(at *bodyPath, v gjson.Result, to **ledger.Ref) *fault.Error {
	var r ledger.Ref
	if refused := parseObject(at, v, text("op", &r.Op), text("path", &r.Path)); refused != nil {
		return refused
	}
	*to = &r
	return nil
}

// quoted quotes and truncates s for an error message.
func quoted(s string) string { return fmt.Sprintf("%q", fault.Clip(s)) }
