package session

// Text inside payloads: its length, and folding deltas into it. The other bytes of a payload stay
// the same. If an object has a name twice, the last one counts, as for readers of the payload.

import (
	"bytes"
	"slices"

	"github.com/mooring-rpc/mooring/ledger"
)

// textLen returns the TextLen of a part with this payload.
func textLen(payload []byte) uint64 {
	switch raw, found := ledger.Member(payload, "text"); {
	case !found:
		return 0
	case bytes.HasPrefix(raw, []byte{'"'}):
		return stringLen(raw)
	}
	return NoText
}

// stringLen returns the length in bytes of the string in raw, JSON text.
func stringLen(raw []byte) uint64 {
	n := len(raw) - len(`""`)
	_, rest, escaped := bytes.Cut(raw, []byte{'\\'})
	for ; escaped && len(rest) > 0; _, rest, escaped = bytes.Cut(rest[1:], []byte{'\\'}) {
		if rest[0] == 'u' {
			return uint64(len(ledger.Unquote(raw)))
		}
		n-- // all other escapes are two bytes for one
	}
	return uint64(n)
}

// entryTextLen is textLen for parts, and 0 for keys that cannot be appended to.
func entryTextLen(k Key, payload []byte) uint64 {
	if k.Kind != KeyPart {
		return 0
	}
	return textLen(payload)
}

// FoldText returns a part's payload with tail (UTF-8) appended to its text. payload is not
// modified; with an empty tail it is returned itself.
func FoldText(payload, tail []byte) []byte {
	if len(tail) == 0 {
		return payload
	}
	return jsonSet(payload, encode(ledger.Unquote(jsonAt(payload, "text"))+string(tail)), "text")
}

// jsonAt returns the value in an object at a path of names; nil if there is none.
func jsonAt(object []byte, path ...string) []byte {
	for _, name := range path {
		value, found := ledger.Member(object, name)
		if !found {
			return nil
		}
		object = value
	}
	return object
}

// jsonSet sets the value in an object at a path of names to raw JSON text, keeping every other
// byte. Missing names are added at the end.
func jsonSet(object, raw []byte, path ...string) []byte {
	if len(path) == 0 {
		return raw
	}
	if !isObject(object) {
		object = emptyPayload
	}
	if from, to, found := ledger.MemberAt(object, path[0]); found {
		return slices.Concat(object[:from], jsonSet(object[from:to], raw, path[1:]...), object[to:])
	}
	comma, end := ",", bytes.LastIndexByte(object, '}')
	if len(trimSpace(object[:end])) == len("{") {
		comma = ""
	}
	return slices.Concat(object[:end], []byte(comma), encode(path[0]), []byte(":"), jsonSet(emptyPayload, raw, path[1:]...), object[end:])
}

// jsonSetIfObject is jsonSet for a path of two names, unless the first exists and is no object.
func jsonSetIfObject(payload, raw []byte, outer, inner string) []byte {
	if v := jsonAt(payload, outer); v != nil && !isObject(v) {
		return payload
	}
	return jsonSet(payload, raw, outer, inner)
}

func trimSpace(payload []byte) []byte { return bytes.TrimSpace(payload) }
