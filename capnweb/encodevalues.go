// Encoding of plain values, for the peer's version.

package capnweb

import (
	"encoding/base64"
	"math"
	"strconv"
	"time"

	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
)

// maxDate is the largest time of a JavaScript Date, in milliseconds.
const maxDate = 8.64e15

func (e *encoder) date(t time.Time) {
	ms := t.UnixMilli()
	switch {
	case !t.IsZero() && ms <= maxDate && ms >= -maxDate:
		e.b = append(strconv.AppendInt(append(e.b, `["date",`...), ms, 10), ']')
	case e.limits.peerVersion >= 8:
		e.b = append(e.b, `["date",null]`...)
	default: // older peers make an invalid Date of an infinite number, and do not accept null
		e.b = append(e.b, `["date",1e999]`...)
	}
}

func (e *encoder) bytes(data []byte, container string) {
	e.b = append(e.b, `["bytes","`...)
	if e.limits.peerVersion >= 5 {
		e.b = base64.RawStdEncoding.AppendEncode(e.b, data)
	} else {
		e.b = base64.StdEncoding.AppendEncode(e.b, data)
	}
	e.b = append(e.b, '"')
	if container != "" && container != "Uint8Array" { // peers before 0.11 ignore it and make a Uint8Array
		e.b = append(append(append(e.b, `,"`...), container...), '"')
	}
	e.b = append(e.b, ']')
}

// elementSizes has the containers of bytes, and how many bytes an element has.
var elementSizes = map[string]int{
	"ArrayBuffer": 1, "DataView": 1, "Int8Array": 1, "Uint8Array": 1, "Uint8ClampedArray": 1, "Int16Array": 2,
	"Uint16Array": 2, "Int32Array": 4, "Uint32Array": 4, "BigInt64Array": 8, "BigUint64Array": 8, "Float32Array": 4,
	"Float64Array": 8,
}

func checkBytes(b Bytes) error {
	if b.Container == "" {
		return nil
	}
	size := elementSizes[b.Container]
	switch {
	case size == 0:
		return TypeErrorf("unknown bytes type marker %s", quoted(b.Container))
	case len(b.Data)%size != 0:
		return TypeErrorf("%d bytes are no whole number of elements of a %s", len(b.Data), b.Container)
	}
	return nil
}

func (e *encoder) headers(h Headers) {
	e.b = append(e.b, '[')
	for i, p := range h {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		e.b = jsontext.AppendString(append(e.b, '['), p[0])
		e.b = append(jsontext.AppendString(append(e.b, ','), p[1]), ']')
	}
	e.b = append(e.b, ']')
}

var errBody = &Error{Name: "TypeError", Message: "a body must be null, a string, bytes or a stream"}

func isBody(v any) bool {
	switch v.(type) {
	case nil, string, []byte, *Readable:
		return true
	}
	return false
}

func (e *encoder) request(r *Request, depth int) error {
	if !isBody(r.Body) {
		return errBody
	}
	e.b = jsontext.AppendString(append(e.b, `["request",`...), r.URL)
	e.b = append(e.b, ',', '{')
	start := len(e.b)
	if r.Method != "" && r.Method != "GET" {
		e.b = jsontext.AppendString(append(e.field(start), `"method":`...), r.Method)
	}
	if len(r.Headers) > 0 {
		e.b = append(e.field(start), `"headers":`...)
		e.headers(r.Headers)
	}
	if r.Body != nil {
		e.b = append(e.field(start), `"body":`...)
		if err := e.value(r.Body, depth+1); err != nil {
			return err
		}
		e.b = append(e.b, `,"duplex":"half"`...)
	}
	if err := e.init(r.Init, start, "method", "headers", "body", "duplex", "signal"); err != nil {
		return err
	}
	e.b = append(e.b, '}', ']')
	return nil
}

func (e *encoder) response(r *Response, depth int) error {
	if !isBody(r.Body) {
		return errBody
	}
	e.b = append(e.b, `["response",`...)
	if err := e.value(r.Body, depth+1); err != nil {
		return err
	}
	e.b = append(e.b, ',', '{')
	start := len(e.b)
	if r.Status != 0 && r.Status != 200 {
		e.b = strconv.AppendInt(append(e.field(start), `"status":`...), int64(r.Status), 10)
	}
	if r.StatusText != "" {
		e.b = jsontext.AppendString(append(e.field(start), `"statusText":`...), r.StatusText)
	}
	if len(r.Headers) > 0 {
		e.b = append(e.field(start), `"headers":`...)
		e.headers(r.Headers)
	}
	if err := e.init(r.Init, start, "status", "statusText", "headers", "webSocket"); err != nil {
		return err
	}
	e.b = append(e.b, '}', ']')
	return nil
}

func (e *encoder) field(start int) []byte {
	if len(e.b) > start {
		e.b = append(e.b, ',')
	}
	return e.b
}

// init writes the other members of an init object, which are plain JSON.
func (e *encoder) init(init map[string]any, start int, but ...string) error {
next:
	for _, k := range jsontext.SortedNames(init) {
		for _, b := range but {
			if k == b {
				continue next
			}
		}
		if !plainJSON(init[k], 0) {
			return TypeErrorf("%s of a request or response is no plain value", quoted(k))
		}
		e.b = append(jsontext.AppendString(e.field(start), k), ':')
		e.b = jsontext.Append(e.b, init[k])
	}
	return nil
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
		for _, e := range v {
			if !plainJSON(e, depth+1) {
				return false
			}
		}
		return true
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
