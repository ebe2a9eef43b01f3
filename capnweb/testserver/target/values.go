// Values of every type, by name, and the description of a value as text: the same in Go and in JavaScript.

package target

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
)

// Value is a value that can be sent.
type Value struct {
	Name  string
	Since string     // the first version of the npm package that supports it
	Make  func() any // a new one
	Text  string     // the result of Describe
}

// containers are the containers of bytes, except Uint8Array.
var containers = []string{
	"ArrayBuffer", "DataView", "Int8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array",
	"BigInt64Array", "BigUint64Array", "Float32Array", "Float64Array",
}

// sixteen has bytes that fit every container.
var sixteen = []byte{0, 1, 2, 3, 4, 5, 6, 7, 248, 249, 250, 251, 252, 253, 62, 63}

// escapes is text that JSON and HTML have to escape, outside the basic plane too.
const escapes = "\"\\/\b\f\n\r\t\u0000\u001f\u007f<>&\u2028\u2029é漢😀"

// Values returns all values.
func Values() []Value {
	value := func(v any) func() any { return func() any { return v } }
	deep, deepText := any("bottom"), "text:"+hex.EncodeToString([]byte("bottom"))
	for range 60 {
		deep, deepText = []any{deep}, "["+deepText+"]"
	}
	all := []Value{
		{"undefined", "0.4.0", value(capnweb.Undefined{}), "undefined"},
		{"null", "0.4.0", value(nil), "null"},
		{"true", "0.4.0", value(true), "true"},
		{"zero", "0.4.0", value(0.0), "0"},
		{"negative", "0.4.0", value(-1.5), "-1.5"},
		{"largest exact integer", "0.4.0", value(9007199254740991.0), "9007199254740991"},
		{"inf", "0.4.0", value(math.Inf(1)), "Infinity"},
		{"-inf", "0.4.0", value(math.Inf(-1)), "-Infinity"},
		{"nan", "0.4.0", value(math.NaN()), "NaN"},
		{"empty string", "0.4.0", value(""), "text:"},
		{"string", "0.4.0", value("héllo"), "text:" + hex.EncodeToString([]byte("héllo"))},
		{"escapes", "0.4.0", value(escapes), "text:" + hex.EncodeToString([]byte(escapes))},
		{"bigint", "0.4.0", value(big.NewInt(123456789)), "bigint:123456789"},
		{"negative bigint", "0.4.0", value(big.NewInt(-5)), "bigint:-5"},
		{"big bigint", "0.4.0", value(new(big.Int).Lsh(big.NewInt(1), 200)),
			"bigint:1606938044258990275541962092341162602522202993782792835301376"},
		{"date", "0.4.0", value(time.UnixMilli(1749342170815)), "date:1749342170815"},
		{"date before 1970", "0.4.0", value(time.UnixMilli(-1)), "date:-1"},
		{"invalid date", "0.8.0", value(time.Time{}), "date:invalid"},
		{"bytes", "0.4.0", value(sixteen), "Uint8Array:" + hex.EncodeToString(sixteen)},
		{"no bytes", "0.4.0", value([]byte{}), "Uint8Array:"},
		{"one byte", "0.4.0", value([]byte{255}), "Uint8Array:ff"},
		{"two bytes", "0.4.0", value([]byte{255, 254}), "Uint8Array:fffe"},
		{"error", "0.4.0", value(&capnweb.Error{Name: "RangeError", Message: "out of it"}), "error:RangeError:out of it{}"},
		{"error with properties", "0.8.0", value(&capnweb.Error{
			Name: "TypeError", Message: "m", Props: map[string]any{"code": 7.0, "list": []any{1.0, "a"}},
		}), "error:TypeError:m{code: 7, list: [1, text:61]}"},
		{"error with a cause", "0.8.0", value(&capnweb.Error{
			Name: "Error", Message: "m", Props: map[string]any{"cause": &capnweb.Error{Name: "RangeError", Message: "inner"}},
		}), "error:Error:m{cause: error:RangeError:inner{}}"},
		{"url", "0.11.0", value(capnweb.URL("https://example.com/path?q=1#f")), "url:https://example.com/path?q=1#f"},
		{"headers", "0.5.0", value(capnweb.Headers{{"a", "1"}, {"x-custom", "hello"}}), "headers:a=1;x-custom=hello"},
		{"no headers", "0.5.0", value(capnweb.Headers{}), "headers:"},
		{"empty array", "0.4.0", value([]any{}), "[]"},
		{"array", "0.4.0", value([]any{1.0, "a", nil}), "[1, text:61, null]"},
		{"nested arrays", "0.4.0", value([]any{[]any{}, []any{[]any{1.0}, 2.0}}), "[[], [[1], 2]]"},
		{"array like an expression", "0.4.0", value([]any{"export", -1.0}), "[text:6578706f7274, -1]"},
		{"empty object", "0.4.0", value(map[string]any{}), "{}"},
		{"object", "0.4.0", value(map[string]any{"b": []any{true}, "a": map[string]any{"c": time.UnixMilli(5)}}),
			"{a: {c: date:5}, b: [true]}"},
		{"object with undefined", "0.4.0", value(map[string]any{"u": capnweb.Undefined{}}), "{u: undefined}"},
		{"odd keys", "0.4.0", value(map[string]any{"": 1.0, "0": 2.0, "then": 3.0, "a b": 4.0}), "{0: 2, : 1, a b: 4, then: 3}"},
		{"deep", "0.4.0", value(deep), deepText},
		{"long text", "0.4.0", value(strings.Repeat("é", 100_000)), "text:" + strings.Repeat("c3a9", 100_000)},
		{"many bytes", "0.8.0", value(make([]byte, 200_000)), "Uint8Array:" + strings.Repeat("00", 200_000)},
		{"blob", "0.8.0", value(&capnweb.Blob{Type: "text/plain", Data: []byte("hello")}), "blob:text/plain:68656c6c6f"},
		{"empty blob", "0.8.0", value(&capnweb.Blob{}), "blob::"},
		{"large blob", "0.8.0", value(&capnweb.Blob{Type: "a/b", Data: make([]byte, 1_000_000)}),
			"blob:a/b:" + strings.Repeat("00", 1_000_000)},
	}
	for _, c := range containers {
		all = append(all, Value{c, "0.11.0", value(capnweb.Bytes{Container: c, Data: sixteen}), c + ":" + hex.EncodeToString(sixteen)})
	}
	return all
}

// Make returns a value by its name.
func Make(name string) (any, error) {
	for _, v := range Values() {
		if v.Name == name {
			return v.Make(), nil
		}
	}
	return nil, capnweb.TypeErrorf("no value has the name %q", name)
}

// Describe returns a value's description.
func Describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case capnweb.Undefined:
		return "undefined"
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return number(v)
	case string:
		return "text:" + hex.EncodeToString([]byte(v))
	case *big.Int:
		return "bigint:" + v.String()
	case time.Time:
		if v.IsZero() {
			return "date:invalid"
		}
		return "date:" + strconv.FormatInt(v.UnixMilli(), 10)
	case []byte:
		return "Uint8Array:" + hex.EncodeToString(v)
	case capnweb.Bytes:
		return v.Container + ":" + hex.EncodeToString(v.Data)
	case *capnweb.Error:
		name := v.Name
		if name == "" {
			name = "Error"
		}
		return "error:" + name + ":" + v.Message + object(v.Props)
	case capnweb.URL:
		return "url:" + string(v)
	case capnweb.Headers:
		return "headers:" + pairs(v)
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = Describe(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		return object(v)
	case *capnweb.Blob:
		return "blob:" + v.Type + ":" + hex.EncodeToString(v.Data)
	case *capnweb.Stub:
		return "stub"
	case *capnweb.Readable:
		return "readable"
	case *capnweb.Writable:
		return "writable"
	case *capnweb.Request:
		return "request"
	case *capnweb.Response:
		return "response"
	default:
		return fmt.Sprintf("unknown %T", v)
	}
}

func number(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

func pairs(h capnweb.Headers) string {
	parts := make([]string, len(h))
	for i := range h {
		parts[i] = h[i][0] + "=" + h[i][1]
	}
	return strings.Join(parts, ";")
}

func object(m map[string]any) string {
	parts := make([]string, 0, len(m))
	for k, v := range m {
		parts = append(parts, k+": "+Describe(v))
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ", ") + "}"
}

// DescribeBody returns the description of a request or response, and of its body.
func DescribeBody(ctx context.Context, v any) (string, error) {
	var head string
	var body any
	switch v := v.(type) {
	case *capnweb.Request:
		method := v.Method
		if method == "" {
			method = "GET"
		}
		head, body = method+" "+v.URL+" "+pairs(v.Headers), v.Body
	case *capnweb.Response:
		status := v.Status
		if status == 0 {
			status = 200
		}
		head, body = strconv.Itoa(status)+" "+v.StatusText+" "+pairs(v.Headers), v.Body
	default:
		return "", capnweb.TypeErrorf("neither a request nor a response but %s", Describe(v))
	}
	text := ""
	switch b := body.(type) {
	case nil, capnweb.Undefined:
		text = "(none)"
	case string:
		text = b
	case []byte:
		text = string(b)
	case *capnweb.Readable:
		err := each(ctx, b, func(chunk any) {
			switch c := chunk.(type) {
			case []byte:
				text += string(c)
			default:
				text += Describe(c)
			}
		})
		if err != nil {
			return "", err
		}
	}
	return head + " " + text, nil
}

func (t *Target) makeRequest() *capnweb.Request {
	return &capnweb.Request{
		URL: "https://example.com/made", Method: "POST", Headers: capnweb.Headers{{"x-made", "yes"}}, Body: t.body("request body"),
	}
}

func (t *Target) makeResponse() *capnweb.Response {
	return &capnweb.Response{
		Status: 201, StatusText: "Made", Headers: capnweb.Headers{{"x-made", "yes"}}, Body: t.body("response body"),
	}
}

// body returns text as a stream of two chunks.
func (t *Target) body(text string) *capnweb.Readable {
	r, w := capnweb.NewReadable()
	t.background(func(ctx context.Context) {
		for _, part := range []string{text[:4], text[4:]} {
			if w.Write(ctx, []byte(part)) != nil {
				return
			}
		}
		_ = w.Close(ctx) // the reader has cancelled
	})
	return r
}
