// Encoding of arguments' values: JSON text, references, and values marshalled by encoding/json,
// with the path in a value of an error, as in payload.parts[1].text. Texts that are not UTF-8 are
// refused: encoding/json replaces invalid bytes, so such a text would arrive altered.

package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// isPlain reports whether s between quotes is its own JSON text.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			return false
		}
	}
	return true
}

// quote returns the JSON text of a plain string.
func (b *Batch) quote(s string) []byte {
	return append(append(append(b.alloc(len(s)+2), '"'), s...), '"')
}

// encodeValue encodes a value, JSON text or a reference as an argument.
func (b *Batch) encodeValue(name string, value any) (ledger.Arg, error) {
	switch v := value.(type) {
	case ResultRef:
		return ledger.Arg{Name: name, Ref: &ledger.Ref{Op: v.Op, Path: v.Path}}, nil
	case *ResultRef:
		if v == nil {
			return ledger.Arg{}, fault.Usage.With("%s is a nil *ResultRef", name)
		}
		return b.encodeValue(name, *v)
	case *Promise:
		if v == nil {
			return ledger.Arg{}, fault.Usage.With("%s is a nil *Promise", name)
		}
		return ledger.Arg{Name: name, Ref: &ledger.Ref{Op: v.OpID()}}, nil
	case Promise:
		return b.encodeValue(name, &v)
	case ledger.Ref:
		return ledger.Arg{Name: name, Ref: &v}, nil
	case *ledger.Ref:
		if v == nil {
			return ledger.Arg{}, fault.Usage.With("%s is a nil *ledger.Ref", name)
		}
		return b.encodeValue(name, *v)
	case json.RawMessage:
		return ledger.Arg{Name: name, JSON: append(b.alloc(len(v)), v...)}, nil
	case []byte:
		return ledger.Arg{Name: name, JSON: append(b.alloc(len(v)), v...)}, nil
	}
	if s, is := value.(string); is {
		if isPlain(s) {
			return ledger.Arg{Name: name, JSON: b.quote(s)}, nil
		}
		if err := checkText(name, s); err != nil {
			return ledger.Arg{}, err
		}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		if errors.Is(err, ledger.ErrRefInValue) {
			return ledger.Arg{}, misplacedRef(name, value)
		}
		return ledger.Arg{}, fault.BadArgument.Because(err, "%s cannot be written as JSON: %v", name, err)
	}
	if bytes.Contains(text.Bytes(), replacement) {
		if s := invalidText(reflect.ValueOf(value)); s != nil {
			return ledger.Arg{}, checkText(name, *s)
		}
	}
	return ledger.Arg{Name: name, JSON: bytes.TrimSuffix(text.Bytes(), []byte("\n"))}, nil
}

// misplacedRef returns the error for a reference inside a value, with its path.
func misplacedRef(name string, value any) error {
	place := "within " + name
	walk(reflect.ValueOf(value), name, func(v reflect.Value, path string) bool {
		switch v.Type() {
		case reflect.TypeFor[ResultRef](), reflect.TypeFor[ledger.Ref](), reflect.TypeFor[Promise]():
			place = path
			return true
		}
		return false
	})
	return fault.BadReference.With("%s refers to another op's result: a reference can only be a whole argument, not a part of its value", place)
}

// maxDepth bounds the walk through a value: one that contains itself is walked this deep.
// encoding/json refuses such a value, but may find another error first.
const maxDepth = 100

// walk calls visit for v and every value in it that encoding/json would write, with its path,
// until visit returns true. It reports whether visit did.
func walk(v reflect.Value, path string, visit func(v reflect.Value, path string) bool) bool {
	return walkDepth(v, path, visit, maxDepth)
}

func walkDepth(v reflect.Value, path string, visit func(reflect.Value, string) bool, depth int) bool {
	if depth == 0 || !v.IsValid() {
		return false
	}
	if visit(v, path) {
		return true
	}
	into := func(v reflect.Value, path string) bool { return walkDepth(v, path, visit, depth-1) }
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

// replacement is what encoding/json writes for bytes that are not UTF-8. It writes a U+FFFD of
// the text itself unescaped.
var replacement = []byte(`\ufffd`)

// checkText refuses a text that is not UTF-8.
func checkText(name, s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	for n := 1; n < utf8.UTFMax && n <= len(s); n++ {
		if head, tail := s[:len(s)-n], s[len(s)-n:]; utf8.RuneStart(tail[0]) && !utf8.FullRuneInString(tail) && utf8.ValidString(head) {
			return fault.BadArgument.With("%s ends within a character: keep its last %d bytes for the next call", name, n)
		}
	}
	if !utf8.RuneStart(s[0]) {
		return fault.BadArgument.With("%s begins within a character: the text before it should have ended before that character", name)
	}
	return fault.BadArgument.With("%s is not UTF-8: encode bytes that are not text, as base64 for example", name)
}

// invalidText returns a text that is not UTF-8 in a value that encoding/json has written; nil if
// there is none.
func invalidText(v reflect.Value) *string {
	var broken *string
	walk(v, "", func(v reflect.Value, _ string) bool {
		if v.Kind() == reflect.String {
			if s := v.String(); !utf8.ValidString(s) {
				broken = &s
			}
		}
		return broken != nil
	})
	return broken
}
