// Received values into variables of Go types.

package convert

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"sync"
)

// Into converts v to the variable dst points at.
func Into(dst, v any) error {
	to := reflect.ValueOf(dst)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return errors.New("capnweb: a value is converted into what a pointer points at, and this is none")
	}
	set, err := setterOf(to.Type().Elem())
	if err != nil {
		return err
	}
	if bad := set(to.Elem(), v); bad != nil {
		return bad.in("")
	}
	return nil
}

// setter converts v into dst, which can be set.
type setter func(dst reflect.Value, v any) *mismatch

// setterCache has the setter of each type, or the error why there is none.
var setterCache sync.Map // of reflect.Type to setterEntry

type setterEntry struct {
	set setter
	err error
}

// setterOf returns the setter of a type. It fails for types to which no value can be converted.
func setterOf(t reflect.Type) (setter, error) {
	if e, ok := setterCache.Load(t); ok {
		return e.(setterEntry).set, e.(setterEntry).err
	}
	made := map[reflect.Type]*setter{}
	set, err := makeSetter(t, made)
	setterCache.Store(t, setterEntry{set, err})
	return set, err
}

var (
	typeAny             = reflect.TypeFor[any]()
	typeBigInt          = reflect.TypeFor[*big.Int]()
	typeTextUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// optional reports whether a type can represent an omitted value: a pointer to a type that is not passed as a pointer anyway.
func optional(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer && !passedOn(t) && t != typeBigInt
}

// makeSetter builds the setter of t. made has those under construction: types may contain themselves.
func makeSetter(t reflect.Type, made map[reflect.Type]*setter) (setter, error) {
	if set, ok := made[t]; ok {
		return func(dst reflect.Value, v any) *mismatch { return (*set)(dst, v) }, nil
	}
	set := new(setter)
	made[t] = set
	var err error
	*set, err = newSetter(t, made)
	return *set, err
}

func newSetter(t reflect.Type, made map[reflect.Type]*setter) (setter, error) {
	if k, ok := kinds[t]; ok {
		return k.setter(t), nil
	}
	switch t {
	case typeAny:
		return setAny, nil
	case typeBigInt:
		return setBigInt, nil
	}
	if t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(typeTextUnmarshaler) {
		return textSetter(t), nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return setBool, nil
	case reflect.String:
		return setString, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return setInt(t), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return setUint(t), nil
	case reflect.Float32, reflect.Float64:
		return setFloat, nil
	case reflect.Pointer:
		return pointerSetter(t, made)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return setBytes, nil
		}
		return sliceSetter(t, made)
	case reflect.Array:
		return arraySetter(t, made)
	case reflect.Map:
		return mapSetter(t, made)
	case reflect.Struct:
		return structSetter(t, made)
	}
	return nil, fmt.Errorf("capnweb: no value can be converted into a %s", t)
}

func setAny(dst reflect.Value, v any) *mismatch {
	if v == nil {
		dst.SetZero()
	} else {
		dst.Set(reflect.ValueOf(v))
	}
	return nil
}

func setBool(dst reflect.Value, v any) *mismatch {
	b, ok := v.(bool)
	if !ok {
		return newMismatch("a boolean", v)
	}
	dst.SetBool(b)
	return nil
}

func setString(dst reflect.Value, v any) *mismatch {
	s, ok := v.(string)
	if !ok {
		return newMismatch("a string", v)
	}
	dst.SetString(s)
	return nil
}

func setFloat(dst reflect.Value, v any) *mismatch {
	f, ok := v.(float64)
	if !ok {
		return newMismatch("a number", v)
	}
	if dst.OverflowFloat(f) && !math.IsInf(f, 0) {
		return &mismatch{want: "a number that fits 32 bits", got: "a larger one"}
	}
	dst.SetFloat(f)
	return nil
}

// setInt returns a setter for numbers and bigints that the type holds exactly.
func setInt(t reflect.Type) setter {
	size := t.Bits()
	want := fmt.Sprintf("a whole number from %d to %d", int64(-1)<<(size-1), int64(1)<<(size-1)-1)
	limit := math.Ldexp(1, size-1)
	return func(dst reflect.Value, v any) *mismatch {
		switch v := v.(type) {
		case float64:
			if v != math.Trunc(v) || v < -limit || v >= limit { // NaN fails the first
				return notWhole(want, v)
			}
			dst.SetInt(int64(v))
			return nil
		case *big.Int:
			if !v.IsInt64() || dst.OverflowInt(v.Int64()) {
				return &mismatch{want: want, got: "another bigint"}
			}
			dst.SetInt(v.Int64())
			return nil
		}
		return newMismatch("a number", v)
	}
}

func setUint(t reflect.Type) setter {
	size := t.Bits()
	want := fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-size))
	limit := math.Ldexp(1, size)
	return func(dst reflect.Value, v any) *mismatch {
		switch v := v.(type) {
		case float64:
			if v != math.Trunc(v) || v < 0 || v >= limit {
				return notWhole(want, v)
			}
			dst.SetUint(uint64(v))
			return nil
		case *big.Int:
			if !v.IsUint64() || dst.OverflowUint(v.Uint64()) {
				return &mismatch{want: want, got: "another bigint"}
			}
			dst.SetUint(v.Uint64())
			return nil
		}
		return newMismatch("a number", v)
	}
}

func notWhole(want string, f float64) *mismatch {
	switch {
	case math.IsNaN(f):
		return &mismatch{want: want, got: "NaN"}
	case f != math.Trunc(f):
		return &mismatch{want: want, got: "a fraction"}
	}
	return &mismatch{want: want, got: "another number"}
}

func setBigInt(dst reflect.Value, v any) *mismatch {
	switch v := v.(type) {
	case *big.Int:
		dst.Set(reflect.ValueOf(v))
		return nil
	case float64:
		if v != math.Trunc(v) || math.IsInf(v, 0) {
			return notWhole("a bigint or a whole number", v)
		}
		n, _ := big.NewFloat(v).Int(nil)
		dst.Set(reflect.ValueOf(n))
		return nil
	}
	return newMismatch("a bigint", v)
}

func setBytes(dst reflect.Value, v any) *mismatch {
	b, ok := v.([]byte)
	if !ok {
		k := kinds[reflect.TypeOf(v)]
		if k.Bytes == nil {
			return newMismatch("a Uint8Array", v)
		}
		b = k.Bytes(v)
	}
	dst.SetBytes(b)
	return nil
}

// pointerSetter sets nil for null and undefined.
func pointerSetter(t reflect.Type, made map[reflect.Type]*setter) (setter, error) {
	elem := t.Elem()
	set, err := makeSetter(elem, made)
	if err != nil {
		return nil, err
	}
	return func(dst reflect.Value, v any) *mismatch {
		if v == nil || v == undefined {
			dst.SetZero()
			return nil
		}
		to := reflect.New(elem)
		if bad := set(to.Elem(), v); bad != nil {
			return bad
		}
		dst.Set(to)
		return nil
	}, nil
}

// textSetter is for types that implement encoding.TextUnmarshaler.
func textSetter(t reflect.Type) setter {
	want := "the text of a " + t.Name()
	return func(dst reflect.Value, v any) *mismatch {
		s, ok := v.(string)
		if !ok {
			return newMismatch(want, v)
		}
		to := reflect.New(t) // a failure halfway leaves dst unchanged
		if to.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)) != nil {
			return &mismatch{want: want, got: "a string that is none"}
		}
		dst.Set(to.Elem())
		return nil
	}
}

func sliceSetter(t reflect.Type, made map[reflect.Type]*setter) (setter, error) {
	set, err := makeSetter(t.Elem(), made)
	if err != nil {
		return nil, err
	}
	return func(dst reflect.Value, v any) *mismatch {
		list, ok := v.([]any)
		if !ok {
			return newMismatch("an array", v)
		}
		to := reflect.MakeSlice(t, len(list), len(list))
		if bad := setElements(set, to, list); bad != nil {
			return bad
		}
		dst.Set(to)
		return nil
	}, nil
}

func arraySetter(t reflect.Type, made map[reflect.Type]*setter) (setter, error) {
	set, err := makeSetter(t.Elem(), made)
	if err != nil {
		return nil, err
	}
	want := "an array of " + strconv.Itoa(t.Len())
	return func(dst reflect.Value, v any) *mismatch {
		list, ok := v.([]any)
		if !ok {
			return newMismatch(want, v)
		}
		if len(list) != t.Len() {
			return &mismatch{want: want, got: "one of " + strconv.Itoa(len(list))}
		}
		return setElements(set, dst, list)
	}, nil
}

func setElements(set setter, to reflect.Value, list []any) *mismatch {
	for i, v := range list {
		if bad := set(to.Index(i), v); bad != nil {
			return bad.within("[" + strconv.Itoa(i) + "]")
		}
	}
	return nil
}

func mapSetter(t reflect.Type, made map[reflect.Type]*setter) (setter, error) {
	if t.Key().Kind() != reflect.String {
		return nil, fmt.Errorf("capnweb: no value can be converted into a %s: its keys are no strings", t)
	}
	set, err := makeSetter(t.Elem(), made)
	if err != nil {
		return nil, err
	}
	return func(dst reflect.Value, v any) *mismatch {
		members, ok := v.(map[string]any)
		if !ok {
			return newMismatch("an object", v)
		}
		to := reflect.MakeMapWithSize(t, len(members))
		for name, v := range members {
			elem := reflect.New(t.Elem()).Elem()
			if bad := set(elem, v); bad != nil {
				return bad.within("." + ClipName(name))
			}
			to.SetMapIndex(reflect.ValueOf(name).Convert(t.Key()), elem)
		}
		dst.Set(to)
		return nil
	}, nil
}
