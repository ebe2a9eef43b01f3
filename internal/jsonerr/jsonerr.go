// Package jsonerr says what is wrong with a JSON text in words for people, who know
// nothing of the Go types that it was to be read into.
package jsonerr

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
)

// Text is what an error of encoding/json says.
func Text(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.As(err, &syntax) && strings.HasPrefix(syntax.Error(), "unexpected end"):
		return "it ends too early"
	case errors.As(err, &kind):
		what := kind.Field
		if what == "" {
			what = "it"
		}
		is, _, _ := strings.Cut(kind.Value, " ") // a number's value comes behind it
		return what + " is " + named(is) + ", not " + wanted(kind.Type)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// named is a kind of JSON value as the decoder calls it, with its article.
func named(kind string) string {
	switch kind {
	case "bool":
		return "true or false"
	case "array", "object":
		return "an " + kind
	case "string":
		return "a text"
	}
	return "a " + kind
}

// wanted is the kind of JSON value that a Go type is read from.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Pointer:
		return wanted(t.Elem())
	}
	return "a whole number in range"
}
