// Package rawjson reads and sets values in JSON text and leaves every other byte as it is. The rules of sessions (internal/session)
// call it for the payloads of events and entries, which are kept byte for byte.
//
// It is functions of text that was checked to be JSON: it has no state and knows no payload. If an object has a name twice, the
// last one counts, as for readers of the text. The time and memory of a call are bounded by the length of its text.
package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/mooring-rpc/mooring/ledger"
)

// At returns the value in an object at a path of names; nil if there is none.
func At(object []byte, path ...string) []byte {
	for _, name := range path {
		value, found := ledger.Member(object, name)
		if !found {
			return nil
		}
		object = value
	}
	return object
}

// Set sets the value in an object at a path of names to raw JSON text, keeping every other
// byte. Missing names are added at the end.
func Set(object, raw []byte, path ...string) []byte {
	if len(path) == 0 {
		return raw
	}
	if !IsObject(object) {
		object = emptyObject
	}
	if from, to, found := ledger.MemberAt(object, path[0]); found {
		return slices.Concat(object[:from], Set(object[from:to], raw, path[1:]...), object[to:])
	}
	comma, end := ",", bytes.LastIndexByte(object, '}')
	if len(bytes.TrimSpace(object[:end])) == len("{") {
		comma = ""
	}
	return slices.Concat(object[:end], []byte(comma), Encode(path[0]), []byte(":"), Set(emptyObject, raw, path[1:]...), object[end:])
}

var emptyObject = []byte("{}")

// SetIfObject is Set for a path of two names, unless the first exists and is no object.
func SetIfObject(object, raw []byte, outer, inner string) []byte {
	if v := At(object, outer); v != nil && !IsObject(v) {
		return object
	}
	return Set(object, raw, outer, inner)
}

// IsObject reports whether JSON text is an object.
func IsObject(raw []byte) bool {
	t := bytes.TrimSpace(raw)
	return len(t) > 0 && t[0] == '{'
}

// Encode returns JSON without HTML escapes; v is of a type that always has a JSON form, so it cannot
// fail.
func Encode(v any) []byte {
	var b buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("rawjson: encode: " + err.Error())
	}
	return b[:len(b)-1] // without the line feed
}

type buffer []byte

func (b *buffer) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }
