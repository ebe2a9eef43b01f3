package session

// Text inside payloads: its length, and folding deltas into it. The other bytes of a payload stay
// the same. If an object has a name twice, the last one counts, as for readers of the payload.

import (
	"bytes"
	"strconv"

	"github.com/mooring-rpc/mooring/internal/jsonpatch"
	"github.com/mooring-rpc/mooring/internal/pieces"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/ledger"
)

// TextLen returns the TextLen of a part with this payload.
func TextLen(payload []byte) uint64 {
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

// EntryTextLen is TextLen for parts, and 0 for keys that cannot be appended to.
func EntryTextLen(k Key, payload []byte) uint64 {
	if k.Kind != KeyPart {
		return 0
	}
	return TextLen(payload)
}

// FoldText returns a part's payload with tail (UTF-8) appended to its text. payload is not
// modified; with an empty tail it is returned itself.
func FoldText(payload, tail []byte) []byte {
	if len(tail) == 0 {
		return payload
	}
	return rawjson.Set(payload, rawjson.Encode(ledger.Unquote(rawjson.At(payload, "text"))+string(tail)), "text")
}

// EditedValue returns the value that a patch or add event with payload change makes of base, nil for
// none. Its rule never changes: folding a log must always give the same state.
func EditedValue(method string, base, change []byte) ([]byte, error) {
	value, _, err := EditedPieces(method, base, change)
	return value, err
}

// EditedPieces is EditedValue, with what the value has of base (jsonpatch.Merge).
func EditedPieces(method string, base, change []byte) (value []byte, made pieces.List, err error) {
	if method == MethodPatch {
		return jsonpatch.Merge(base, change)
	}
	return jsonpatch.Add(base, ledger.Unquote(rawjson.At(change, "member")), addedBy(change))
}

// addedBy returns the number that an add event's payload adds.
func addedBy(change []byte) int64 {
	n, _ := strconv.ParseInt(string(rawjson.At(change, "by")), 10, 64)
	return n
}

// Value returns what an entry's stored payload and the stored form of its changes make.
func Value(payload, edits []byte) ([]byte, error) {
	if edits == nil {
		return payload, nil
	}
	l, err := pieces.Unmarshal(edits)
	if err != nil {
		return nil, err
	}
	return l.Of(payload)
}
