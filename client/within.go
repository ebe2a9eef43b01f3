// Where in a value something stands that encoding/json cannot carry: the path that
// an error names, as in payload.parts[1].text.

package client

import (
	"fmt"
	"reflect"
	"strings"
)

// maxDepth bounds the walk through a value: one that holds itself is walked this
// deep. encoding/json refuses such a value, but may find another fault first.
const maxDepth = 100

// within calls visit for v and every value in it that encoding/json would write,
// with its path, until visit returns true. It reports whether visit did.
func within(v reflect.Value, path string, visit func(v reflect.Value, path string) bool) bool {
	return withinDepth(v, path, visit, maxDepth)
}

func withinDepth(v reflect.Value, path string, visit func(reflect.Value, string) bool, depth int) bool {
	if depth == 0 || !v.IsValid() {
		return false
	}
	if visit(v, path) {
		return true
	}
	into := func(v reflect.Value, path string) bool { return withinDepth(v, path, visit, depth-1) }
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && into(v.Elem(), path)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return false
		}
		for i := range v.Len() {
			if into(v.Index(i), fmt.Sprintf("%s[%d]", path, i)) {
				return true
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			if into(k, path) || into(v.MapIndex(k), fmt.Sprintf("%s.%v", path, k)) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() && !f.Anonymous {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-":
				continue
			case name != "":
				name = "." + name
			case !f.Anonymous:
				name = "." + f.Name
			}
			if into(v.Field(i), path+name) {
				return true
			}
		}
	}
	return false
}
