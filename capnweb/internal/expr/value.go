// Plain values: their expressions, and their checks. Nothing is called in them.

package expr

import (
	"encoding/base64"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
)

// AppendNumber writes a number, the three that JSON has not included.
func AppendNumber(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, `["nan"]`...)
	case math.IsInf(f, 1):
		return append(b, `["inf"]`...)
	case math.IsInf(f, -1):
		return append(b, `["-inf"]`...)
	}
	return jsontext.AppendNumber(b, f)
}

// BigInt reads the digits of a bigint.
func BigInt(s string) (any, error) {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return nil, Violationf("a bad bigint")
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil, Violationf("a bad bigint")
	}
	return n, nil
}

// maxDate is the largest time of a JavaScript Date, in milliseconds.
const maxDate = 8.64e15

// Date reads the milliseconds of a date, null for an invalid one.
func Date(v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return time.Time{}, nil
	case float64:
		if math.Abs(v) > maxDate {
			return time.Time{}, nil
		}
		return time.UnixMilli(int64(v)).UTC(), nil
	}
	return nil, Violationf("a bad date expression")
}

// AppendDate writes a date to a peer of version 0.n.
func AppendDate(b []byte, t time.Time, version int) []byte {
	ms := t.UnixMilli()
	switch {
	case !t.IsZero() && ms <= maxDate && ms >= -maxDate:
		return append(strconv.AppendInt(append(b, `["date",`...), ms, 10), ']')
	case version >= 8:
		return append(b, `["date",null]`...)
	}
	return append(b, `["date",1e999]`...) // older peers make an invalid Date of an infinite number, and do not accept null
}

// elementSizes has the containers of bytes, and how many bytes an element has.
var elementSizes = map[string]int{
	"ArrayBuffer": 1, "DataView": 1, "Int8Array": 1, "Uint8Array": 1, "Uint8ClampedArray": 1, "Int16Array": 2,
	"Uint16Array": 2, "Int32Array": 4, "Uint32Array": 4, "BigInt64Array": 8, "BigUint64Array": 8, "Float32Array": 4,
	"Float64Array": 8,
}

// CheckBytes returns an error for a container that there is not, or whose elements n bytes do not fill.
func CheckBytes(container string, n int) error {
	size := elementSizes[container]
	switch {
	case container == "":
	case size == 0:
		return fmt.Errorf("unknown bytes type marker %s", Quoted(container))
	case n%size != 0:
		return fmt.Errorf("%d bytes are no whole number of elements of a %s", n, container)
	}
	return nil
}

// Bytes reads bytes, and the name of their container; "" for a Uint8Array.
func Bytes(s string, marker []any) (data []byte, container string, err error) {
	data, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		return nil, "", Violationf("bytes that are no base64")
	}
	if len(marker) == 0 {
		return data, "", nil
	}
	container, _ = marker[0].(string)
	if container == "" {
		return nil, "", Violationf("an unknown kind of bytes")
	}
	if err := CheckBytes(container, len(data)); err != nil {
		return nil, "", Violationf("bytes: TypeError: %v", err)
	}
	if container == "Uint8Array" {
		container = ""
	}
	return data, container, nil
}

// AppendBytes writes bytes to a peer of version 0.n.
func AppendBytes(b, data []byte, container string, version int) []byte {
	b = append(b, `["bytes","`...)
	if version >= 5 {
		b = base64.RawStdEncoding.AppendEncode(b, data)
	} else {
		b = base64.StdEncoding.AppendEncode(b, data)
	}
	b = append(b, '"')
	if container != "" && container != "Uint8Array" { // peers before 0.11 ignore it and make a Uint8Array
		b = append(append(append(b, `,"`...), container...), '"')
	}
	return append(b, ']')
}

var errorNames = map[string]bool{
	"Error": true, "EvalError": true, "RangeError": true, "ReferenceError": true, "SyntaxError": true, "TypeError": true,
	"URIError": true, "AggregateError": true,
}

// ErrorName returns the name of an error as it arrives.
func ErrorName(name string) string {
	if errorNames[name] {
		return name
	}
	return "Error"
}

// Headers reads HTTP headers.
func Headers(v any) ([][2]string, error) {
	pairs, ok := v.([]any)
	if !ok {
		return nil, Violationf("bad headers")
	}
	h := make([][2]string, 0, len(pairs))
	for _, x := range pairs {
		pair, _ := x.([]any)
		name, ok1 := TextAt(pair, 0)
		value, ok2 := TextAt(pair, 1)
		if !ok1 || !ok2 || len(pair) != 2 {
			return nil, Violationf("bad headers")
		}
		h = append(h, [2]string{strings.ToLower(name), value})
	}
	return h, nil
}

// AppendHeaders writes HTTP headers.
func AppendHeaders(b []byte, h [][2]string) []byte {
	b = append(b, '[')
	for i, p := range h {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsontext.AppendString(append(b, '['), p[0])
		b = append(jsontext.AppendString(append(b, ','), p[1]), ']')
	}
	return append(b, ']')
}

// TakeHeaders removes the headers from the init object of a request or response, and returns them.
func TakeHeaders(init map[string]any) ([][2]string, error) {
	v, ok := init["headers"]
	delete(init, "headers")
	if !ok || v == nil {
		return nil, nil
	}
	return Headers(v)
}

// Rest returns the members of an init object without those that are named, and those of every JavaScript object; nil if there is
// none.
func Rest(init map[string]any, but ...string) map[string]any {
	for _, k := range but {
		delete(init, k)
	}
	for k := range init {
		if k == "toJSON" || IsReserved(k) {
			delete(init, k)
		}
	}
	if len(init) == 0 {
		return nil
	}
	return init
}

// AppendField begins the next member of an object that begins at start.
func AppendField(b []byte, start int, name string) []byte {
	if len(b) > start {
		b = append(b, ',')
	}
	return append(jsontext.AppendString(b, name), ':')
}

// AppendInit writes the members of an init object, which are plain JSON, without those that are named. The error names another.
func AppendInit(b []byte, start int, init map[string]any, but ...string) ([]byte, error) {
next:
	for _, k := range jsontext.SortedNames(init) {
		for _, name := range but {
			if k == name {
				continue next
			}
		}
		if !plainJSON(init[k], 0) {
			return b, fmt.Errorf("%s of a request or response is no plain value", Quoted(k))
		}
		b = jsontext.Append(AppendField(b, start, k), init[k])
	}
	return b, nil
}

func plainJSON(v any, depth int) bool {
	if depth > 64 {
		return false
	}
	switch v := v.(type) {
	case nil, bool, string:
		return true
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0)
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !plainJSON(e, depth+1) })
	case map[string]any:
		for _, e := range v {
			if !plainJSON(e, depth+1) {
				return false
			}
		}
		return true
	}
	return false
}
