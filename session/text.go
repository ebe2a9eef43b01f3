package session

// Text inside payloads: how long it is, and how deltas are folded into it. The
// other bytes of a payload stay as they are. Of an object's equal names the last
// counts: that is the one which whoever reads the payload sees.

import (
	"bytes"
	"slices"

	"github.com/mooring-rpc/mooring/ledger"
)

// textLen is the TextLen of a part with this payload.
func textLen(payload []byte) uint64 {
	switch raw, found := ledger.Member(payload, "text"); {
	case !found:
		return 0
	case bytes.HasPrefix(raw, []byte{'"'}):
		return stringLen(raw)
	}
	return NoText
}

// stringLen is how many bytes the string has that raw, which is JSON text, holds.
func stringLen(raw []byte) uint64 {
	n := len(raw) - len(`""`)
	_, rest, escaped := bytes.Cut(raw, []byte{'\\'})
	for ; escaped && len(rest) > 0; _, rest, escaped = bytes.Cut(rest[1:], []byte{'\\'}) {
		if rest[0] == 'u' {
			return uint64(len(ledger.Unquote(raw)))
		}
		n-- // all others are two bytes for one
	}
	return uint64(n)
}

// entryTextLen is textLen for parts, and 0 for what cannot be appended to.
func entryTextLen(k Key, payload []byte) uint64 {
	if k.Kind != KeyPart {
		return 0
	}
	return textLen(payload)
}

// FoldText gives a part's payload with tail (UTF-8) at the end of its text. The
// payload is not changed; without a tail it is returned as it is.
func FoldText(payload, tail []byte) []byte {
	if len(tail) == 0 {
		return payload
	}
	return jsonSet(payload, encode(ledger.Unquote(jsonAt(payload, "text"))+string(tail)), "text")
}

// jsonAt is the value that stands in an object at a path of names; nil if none does.
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

// jsonSet puts raw JSON text into an object at a path of names, every other byte
// staying. What is not there is added at the end.
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

// jsonSetIfObject is set for a path of two steps, unless its first step is there
// and is no object.
func jsonSetIfObject(payload, raw []byte, outer, inner string) []byte {
	if v := jsonAt(payload, outer); v != nil && !isObject(v) {
		return payload
	}
	return jsonSet(payload, raw, outer, inner)
}

// trimSpace is a payload without blanks around it.
func trimSpace(payload []byte) []byte { return bytes.TrimSpace(payload) }
