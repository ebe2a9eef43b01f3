// Rules: where a schema looks otherwise to peers than it would by itself.

package bridge

import (
	"errors"

	"capnproto.org/go/capnp/v3/schemas"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/rpc"
)

// Config is what a Bridge is compiled from.
type Config struct {
	Schema     *schemas.Registry
	Interfaces []uint64 // those that objects have; what they mention is found
	Ordered    []uint64 // those of them whose calls keep their order also where one waits for promises in its arguments
	Rules      Rules

	// TypeOf gives the interface of an object where the schema says any capability; 0 for one that peers cannot call.
	TypeOf func(rpc.Object) uint64
	// MapException is the error that a peer gets of an exception. nil tells its reason.
	MapException func(*rpc.Exception) error
	// TooLarge is the error that a peer gets of arguments above the limit of Bridge.Conn. nil: a RangeError.
	TooLarge func(limit int) error
}

// Rules are the exceptions of a schema. Their functions may be called concurrently.
type Rules struct {
	Structs map[uint64]StructRule
	Fields  map[FieldKey]FieldRule
	Methods map[MethodKey]MethodRule

	// Results, if set, sees the results of every method first, as an object. What it takes out is not given; an error
	// is what the call fails with.
	Results func(results map[string]any) error
}

// FieldKey names a field of a struct.
type FieldKey struct {
	Struct uint64
	Field  string
}

// MethodKey names a method of an interface, as in the schema.
type MethodKey struct {
	Interface uint64
	Method    string
}

// StructRule says how a struct looks. In gives the object that a value stands for, Out the value for an object, both
// with what other rules make of their fields. An error of Out in a result fails the call with it. nil changes nothing.
type StructRule struct {
	In  func(value any) (any, error)
	Out func(object map[string]any) (any, error)
}

// FieldRule says how a field looks, as StructRule. In is not asked for null and undefined.
type FieldRule struct {
	In  func(value any) (any, error)
	Out func(value any) (any, error)
}

// MethodRule says how a method looks.
type MethodRule struct {
	Name string // what peers call it by; empty: as in the schema
	// Args may change the arguments, which are positional and as many as the parameters, those that are left out nil.
	// If it gives done, that sees what the call came to, and gives what is answered.
	Args func(args []any) (changed []any, done func(result any, err error) (any, error), err error)
	// Results gives what is answered, of the results as an object; nil: what the package comment says.
	Results func(results map[string]any) (any, error)
}

// typeError is something of a peer's that does not fit the schema. Its path is put together on the way up.
type typeError struct {
	path string
	text string
}

func (e *typeError) Error() string {
	if e.path == "" {
		return e.text
	}
	return e.path + ": " + e.text
}

// TypeError is an error for rules: the peer gets it as a TypeError, behind the path of the value.
func TypeError(text string) error { return &typeError{text: text} }

// withPath puts the name of a field before the path of what is wrong in it.
func withPath(name string, err error) error {
	e, ok := errors.AsType[*typeError](err)
	if !ok {
		return err
	}
	switch {
	case e.path == "":
		e.path = name
	case e.path[0] == '[':
		e.path = name + e.path
	default:
		e.path = name + "." + e.path
	}
	return e
}

// asTypeError is the error as a peer gets it.
func asTypeError(err error) error {
	if e, ok := errors.AsType[*typeError](err); ok {
		return capnweb.TypeErrorf("%s", e.Error())
	}
	return err
}
