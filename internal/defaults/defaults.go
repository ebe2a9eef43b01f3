// Package defaults fills the fields of a Config that its maker has left out.
package defaults

import (
	"cmp"
	"reflect"
)

// Set sets a field that has no value: zero, or less, which is no bound or time.
func Set[T cmp.Ordered](field *T, value T) {
	if *field <= *new(T) {
		*field = value
	}
}

// Fill sets the fields of a Config that have no value to those of standard, and those of structs in
// it: numbers as Set does, and texts, functions, pointers and interfaces that are zero. Flags and
// lists, and fields that are not exported, stay as they are.
func Fill[T any](config *T, standard T) {
	fill(reflect.ValueOf(config).Elem(), reflect.ValueOf(standard))
}

func fill(config, standard reflect.Value) {
	for i := range config.NumField() {
		field, value := config.Field(i), standard.Field(i)
		switch kind := field.Kind(); {
		case !field.CanSet() || value.IsZero() || kind == reflect.Bool || kind == reflect.Slice:
		case kind == reflect.Struct:
			fill(field, value)
		case field.IsZero() || field.CanInt() && field.Int() < 0:
			field.Set(value)
		}
	}
}
