// Rules: where the mapping of the schema is replaced for peers.

package bridge

import (
	"errors"

	"capnproto.org/go/capnp/v3/schemas"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/rpc"
)

// Config configures a Bridge.
type Config struct {
	Schema     *schemas.Registry
	Interfaces []uint64 // those of objects passed to peers; interfaces they refer to are found
	Ordered    []uint64 // those of them whose calls keep their order also where one waits for promises in its arguments
	Rules      Rules

	// TypeOf returns the interface of an object where the schema says any capability; 0 for one that peers cannot call.
	TypeOf func(rpc.Object) uint64
	// MapException returns the peer's error for an exception. nil sends its reason.
	MapException func(*rpc.Exception) error
	// TooLarge returns the peer's error for arguments above the limit of Bridge.Conn. nil: a RangeError.
	TooLarge func(limit int) error
}

// Rules replace parts of a schema's mapping. Their functions may be called concurrently.
type Rules struct {
	Structs map[uint64]StructRule
	Fields  map[FieldKey]FieldRule
	Methods map[MethodKey]MethodRule

	// Results, if set, is called first with the results of every method, as an object. Fields it removes are not returned; its
	// error fails the call.
	Results func(results map[string]any) error
}

// FieldKey identifies a field of a struct.
type FieldKey struct {
	Struct uint64
	Field  string
}

// MethodKey identifies a method of an interface, as in the schema.
type MethodKey struct {
	Interface uint64
	Method    string
}

// StructRule replaces a struct's mapping. In converts a value to the object to write, Out the object read to a value, both
// with other rules applied to their fields. An error of Out in a result fails the call with it. nil changes nothing.
type StructRule struct {
	In  func(value any) (any, error)
	Out func(object map[string]any) (any, error)
}

// FieldRule replaces a field's mapping, as StructRule. In is not called for null and undefined.
type FieldRule struct {
	In  func(value any) (any, error)
	Out func(value any) (any, error)
}

// MethodRule replaces a method's mapping.
type MethodRule struct {
	Name  string // the name for peers; empty: as in the schema
	Alias string // another one beside it; empty: none
	// Args may change the arguments, which are positional and as many as the parameters, omitted ones nil.
	// If it returns done, that is called with the call's result, and returns the answer.
	Args func(args []any) (changed []any, done func(result any, err error) (any, error), err error)
	// Results converts the results, as an object, to the answer; nil: as the package comment says.
	Results func(results map[string]any) (any, error)
}

// typeError says that a peer's value does not fit the schema. Its path is completed on the way up.
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

// TypeError returns an error for rules: the peer gets it as a TypeError, after the path of the value.
func TypeError(text string) error { return &typeError{text: text} }

// withPath puts the name of a field before the path of an error in it.
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

// asTypeError returns the error as it is sent to a peer.
func asTypeError(err error) error {
	if e, ok := errors.AsType[*typeError](err); ok {
		return capnweb.TypeErrorf("%s", e.Error())
	}
	return err
}
