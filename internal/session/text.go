package session

// Text inside payloads: its length, and folding deltas into it. The other bytes of a payload stay
// the same. If an object has a name twice, the last one counts, as for readers of the payload.

import (
	"bytes"

	"github.com/mooring-rpc/mooring/internal/rawjson"
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
	return rawjson.Set(payload, rawjson.Encode(ledger.Unquote(rawjson.At(payload, "text"))+string(tail)), "text")
}
