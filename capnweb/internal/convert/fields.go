// Structs as objects: their fields, by their json tags, and how objects are converted to structs.

package convert

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// field is one member of a struct's object.
type field struct {
	name      string
	index     []int // through embedded structs
	t         reflect.Type
	omitEmpty bool
	omitZero  bool
	tagged    bool
}

// structFields are the fields of a struct type.
type structFields struct {
	list   []field // by name
	strict bool    // unknown members are refused
}

var fieldCache sync.Map // of reflect.Type to structFields

// fieldsOf returns a struct's fields as encoding/json does: exported ones, those of embedded structs among them unless
// hidden, named by the json tag. A field `_ struct{}` tagged `capnweb:"strict"` makes members without a field an error.
func fieldsOf(t reflect.Type) structFields {
	if known, ok := fieldCache.Load(t); ok {
		return known.(structFields)
	}
	found := structFields{}
	byName := map[string]field{}
	level := []embedded{{t: t}}
	seen := map[reflect.Type]bool{t: true}
	for len(level) > 0 {
		here := map[string][]field{}
		var below []embedded
		for _, e := range level {
			for i := range e.t.NumField() {
				f := e.t.Field(i)
				if f.Name == "_" {
					found.strict = found.strict || f.Tag.Get("capnweb") == "strict"
					continue
				}
				tag := f.Tag.Get("json")
				name, opts, _ := strings.Cut(tag, ",")
				index := append(slices.Clone(e.index), i)
				if inner := embeddedStruct(f); f.Anonymous && name == "" && inner != nil {
					if !seen[inner] {
						below = append(below, embedded{inner, index})
					}
					continue
				}
				if !f.IsExported() || tag == "-" {
					continue
				}
				out := field{name: name, index: index, t: f.Type, tagged: name != ""}
				if name == "" {
					out.name = f.Name
				}
				for opt := range strings.SplitSeq(opts, ",") {
					out.omitEmpty = out.omitEmpty || opt == "omitempty"
					out.omitZero = out.omitZero || opt == "omitzero"
				}
				here[out.name] = append(here[out.name], out)
			}
		}
		for name, fs := range here {
			if _, hidden := byName[name]; !hidden {
				byName[name] = dominant(fs)
			}
		}
		for _, e := range below {
			seen[e.t] = true
		}
		level = below
	}
	for _, f := range byName {
		if f.index != nil {
			found.list = append(found.list, f)
		}
	}
	slices.SortFunc(found.list, func(a, b field) int { return cmp.Compare(a.name, b.name) })
	fieldCache.Store(t, found)
	return found
}

type embedded struct {
	t     reflect.Type
	index []int
}

// embeddedStruct returns the struct type of an anonymous field, if its fields can be set.
func embeddedStruct(f reflect.StructField) reflect.Type {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		if !f.IsExported() {
			return nil // its fields cannot be set
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || passedOn(t) {
		return nil
	}
	return t
}

// dominant returns the field that counts among fields of one name at one depth: the only one, or the only tagged one, else
// none.
func dominant(fs []field) field {
	if len(fs) == 1 {
		return fs[0]
	}
	tagged := slices.DeleteFunc(fs, func(f field) bool { return !f.tagged })
	if len(tagged) == 1 {
		return tagged[0]
	}
	return field{}
}

// structSetter converts objects to structs. Fields missing in the object, or undefined in it, are zero.
func structSetter(t reflect.Type, made map[reflect.Type]*setter) (setter, error) {
	fields := fieldsOf(t)
	sets := make([]setter, len(fields.list))
	for i, f := range fields.list {
		set, err := makeSetter(f.t, made)
		if err != nil {
			return nil, fmt.Errorf("%w (field %s of %s)", err, f.name, t)
		}
		sets[i] = set
	}
	return func(dst reflect.Value, v any) *mismatch {
		members, ok := v.(map[string]any)
		if !ok {
			return newMismatch("an object", v)
		}
		if fields.strict {
			if bad := unknownMember(fields.list, members); bad != nil {
				return bad
			}
		}
		dst.SetZero()
		for i := range fields.list {
			f := &fields.list[i]
			v, ok := members[f.name]
			if !ok || v == undefined {
				continue
			}
			if bad := sets[i](reach(dst, f.index), v); bad != nil {
				return bad.within("." + f.name)
			}
		}
		return nil
	}, nil
}

// unknownMember returns a mismatch for the first member, by name, that has no field.
func unknownMember(list []field, members map[string]any) *mismatch {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		_, known := slices.BinarySearchFunc(list, name, func(f field, name string) int { return cmp.Compare(f.name, name) })
		if !known {
			return &mismatch{want: "no such member", got: "one", at: "." + ClipName(name)}
		}
	}
	return nil
}

// reach returns a field to set, allocating embedded pointers to structs on the way.
func reach(v reflect.Value, index []int) reflect.Value {
	for i, n := range index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(n)
	}
	return v
}
