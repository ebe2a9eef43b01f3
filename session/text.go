package session

// Text inside payloads: how long it is, and how deltas are folded into it. The
// other bytes of a payload stay as they are.

import (
	"bytes"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

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
	text := ""
	if raw, found := ledger.Member(payload, "text"); found {
		text = ledger.Unquote(raw)
	}
	return set(payload, "text", encode(text+string(tail)))
}

// set puts raw JSON text at path, every other byte staying.
func set(payload []byte, path string, raw []byte) []byte {
	out, err := sjson.SetRawBytes(payload, path, raw)
	if err != nil { // the payload is valid JSON and the paths are ours
		panic("session: set " + path + ": " + err.Error())
	}
	return out
}

// setIfObject is set for a path of two steps, unless its first step is there
// and is no object.
func setIfObject(payload []byte, outer, inner string, raw []byte) []byte {
	if v := gjson.GetBytes(payload, outer); v.Exists() && !v.IsObject() {
		return payload
	}
	return set(payload, outer+"."+inner, raw)
}

// trimmed is a payload without blanks around it.
func trimmed(payload []byte) []byte { return bytes.TrimSpace(payload) }
