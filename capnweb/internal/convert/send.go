// Go values into values to send.

package convert

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"time"
)

// FromGo converts a Go value of a type that the doc of capnweb does not list to one that it does: one level of it, so
// that the caller, which walks the value, bounds its depth. Elements and members may need conversion in turn. Nil pointers are
// null, nil slices and maps are empty. function makes an object of a function.
func FromGo(v any, function func(any) (any, error)) (any, error) {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Invalid:
		return nil, nil
	case reflect.Pointer, reflect.Func:
		if r.IsNil() {
			return nil, nil
		}
	}
	if text, ok, err := marshaledText(v); ok {
		return text, err
	}
	switch r.Kind() {
	case reflect.Bool:
		return r.Bool(), nil
	case reflect.String:
		return r.String(), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return ExactInt(r.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return exactUint(r.Uint())
	case reflect.Float32, reflect.Float64:
		return r.Float(), nil
	case reflect.Pointer:
		return r.Elem().Interface(), nil
	case reflect.Func:
		f, err := function(v)
		if err != nil {
			return nil, typeErrorf("a function of type %T cannot be sent: %v", v, err)
		}
		return f, nil
	case reflect.Slice:
		if r.Type().Elem().Kind() == reflect.Uint8 {
			return r.Bytes(), nil
		}
		return elements(r), nil
	case reflect.Array:
		return elements(r), nil
	case reflect.Map:
		return mapMembers(r)
	case reflect.Struct:
		return structMembers(r), nil
	}
	return nil, typeErrorf("a Go value of type %T cannot be sent", v)
}

// marshaledText returns the text of types that implement encoding.TextMarshaler. A time is a Date, not text, behind a pointer
// too.
func marshaledText(v any) (text any, ok bool, err error) {
	m, ok := v.(encoding.TextMarshaler)
	if _, isTime := v.(*time.Time); !ok || isTime {
		return nil, false, nil
	}
	b, err := m.MarshalText()
	if err != nil {
		return nil, true, fmt.Errorf("text of a %T: %w", v, err)
	}
	return string(b), true, nil
}

// maxExact is the largest number up to which all integers are exact in JavaScript.
const maxExact = 1 << 53

// ExactInt returns n as a number, or that it is none that JavaScript has.
func ExactInt(n int64) (any, error) {
	if n < -maxExact || n > maxExact {
		return nil, typeErrorf("an integer beyond 2^53 is no exact number in JavaScript: send it as a *big.Int")
	}
	return float64(n), nil
}

func exactUint(n uint64) (any, error) {
	if n > maxExact {
		return ExactInt(math.MaxInt64)
	}
	return float64(n), nil
}

func elements(r reflect.Value) []any {
	list := make([]any, r.Len())
	for i := range list {
		list[i] = r.Index(i).Interface()
	}
	return list
}

func mapMembers(r reflect.Value) (any, error) {
	if r.Type().Key().Kind() != reflect.String {
		return nil, typeErrorf("a Go value of type %s cannot be sent: its keys are no strings", r.Type())
	}
	members := make(map[string]any, r.Len())
	for i := r.MapRange(); i.Next(); {
		members[i.Key().String()] = i.Value().Interface()
	}
	return members, nil
}

func structMembers(r reflect.Value) map[string]any {
	fields := fieldsOf(r.Type())
	members := make(map[string]any, len(fields.list))
	for i := range fields.list {
		f := &fields.list[i]
		v, err := r.FieldByIndexErr(f.index)
		if err != nil || f.omitZero && v.IsZero() || f.omitEmpty && empty(v) {
			continue // or it is in an embedded struct that is nil
		}
		members[f.name] = v.Interface()
	}
	return members
}

// empty reports whether omitempty omits a value.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}
