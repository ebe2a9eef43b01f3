// Values of Cap'n Web as JSON text, as JSON.stringify writes it: the same as over HTTP, except
// for the order of an object's members.

package share

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
)

// appendJSON appends a value. Package capnweb bounds its nesting.
func appendJSON(dst []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case nil, capnweb.Undefined:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case float64:
		return appendNumber(dst, v)
	case string:
		return appendText(dst, v)
	case capnweb.URL:
		return appendText(dst, string(v))
	case time.Time:
		if v.IsZero() {
			return append(dst, "null"...), nil
		}
		return appendText(dst, dateText(v))
	case []byte: // JSON.stringify would write an object for a Uint8Array: an array means the same
		dst = append(dst, '[')
		for i, b := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, uint64(b), 10)
		}
		return append(dst, ']'), nil
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendJSON(dst, e); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case map[string]any:
		return appendObject(dst, v)
	}
	return nil, fault.Malformed.With("the data has values that are not JSON: only objects, arrays, texts, numbers, booleans and null are synced")
}

func appendObject(dst []byte, v map[string]any) ([]byte, error) {
	dst = append(dst, '{')
	open := len(dst)
	var err error
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if _, left := v[name].(capnweb.Undefined); left {
			continue
		}
		if len(dst) > open {
			dst = append(dst, ',')
		}
		if dst, err = appendText(dst, name); err != nil {
			return nil, err
		}
		if dst, err = appendJSON(append(dst, ':'), v[name]); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// appendText appends a string without needless escapes: < is written as is.
func appendText(dst []byte, s string) ([]byte, error) {
	b := textBuffer(dst)
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, err
	}
	return b[:len(b)-1], nil // without the line feed
}

type textBuffer []byte

func (b *textBuffer) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

func appendNumber(dst []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...), nil
	}
	text, err := json.Marshal(f)
	return append(dst, text...), err
}

// dateText returns a Date as JSON.stringify writes it.
func dateText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
