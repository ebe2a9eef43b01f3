// Kinds: the values that are of no type of Go's own, and how messages name all.

package convert

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"time"
)

// Kind is a type of values that package capnweb defines, or passes on as it is.
type Kind struct {
	Want  string                              // what a variable of the type takes, in messages
	Got   string                              // what a value of the type is, in messages
	Set   func(dst reflect.Value, v any) bool // converts v, and reports whether it can; nil: values of the type itself are set
	Bytes func(v any) []byte                  // of a container of bytes: its content
}

var (
	kinds     map[reflect.Type]Kind
	undefined any
)

// Use sets the kinds, and the value that is undefined. It is called once, before anything is converted.
func Use(undef any, all map[reflect.Type]Kind) struct{} {
	undefined, kinds = undef, all
	return struct{}{}
}

// passedOn reports whether values of a type are passed on as they are.
func passedOn(t reflect.Type) bool {
	k, ok := kinds[t]
	return ok && k.Set == nil
}

// setter returns the kind's setter of variables of type t.
func (k Kind) setter(t reflect.Type) setter {
	set := k.Set
	if set == nil {
		set = func(dst reflect.Value, v any) bool {
			if v == nil || reflect.TypeOf(v) != t {
				return false
			}
			dst.Set(reflect.ValueOf(v))
			return true
		}
	}
	return func(dst reflect.Value, v any) *mismatch {
		if !set(dst, v) {
			return newMismatch(k.Want, v)
		}
		return nil
	}
}

// TypeError is the error that the caller gets for a value that cannot be converted.
type TypeError string

func (e TypeError) Error() string { return string(e) }

func typeErrorf(format string, args ...any) error { return TypeError(fmt.Sprintf(format, args...)) }

// mismatch says that a value had another type than expected. It never contains the value itself.
type mismatch struct {
	want, got string
	at        string // path to the value, from its root: .name and [index]
}

func (m *mismatch) within(at string) *mismatch {
	m.at = at + m.at
	return m
}

// in returns the error. where names the value in which it was found; "" for none.
func (m *mismatch) in(where string) error {
	at := m.at
	if at != "" && at[0] == '.' {
		at = at[1:]
	}
	if where != "" && at != "" {
		at = " at " + at
	}
	if where += at; where != "" {
		where += ": "
	}
	return TypeError(where + "want " + m.want + ", got " + m.got)
}

func newMismatch(want string, v any) *mismatch { return &mismatch{want: want, got: describe(v)} }

// describe returns the kind of value v is, in a user's terms.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case float64:
		if math.IsNaN(v) {
			return "NaN"
		}
		return "a number"
	case *big.Int:
		return "a bigint"
	case time.Time:
		return "a Date"
	case []byte:
		return "a Uint8Array"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	if k, ok := kinds[reflect.TypeOf(v)]; ok {
		return k.Got
	}
	return fmt.Sprintf("a Go value of type %T", v)
}

// ClipName shortens a name chosen by a peer.
func ClipName(name string) string {
	const most = 60
	if len(name) <= most {
		return name
	}
	return name[:most] + "…"
}
