// A session's keys and values as items, as a share returns them.

package opencode

import (
	"bytes"
	"encoding/json"
	"strings"
)

// AppendItem appends the item {type, data} of a key and its value, as opencode would have synced
// it. For a key that is no item's it appends nothing.
func AppendItem(dst []byte, key string, payload []byte) []byte {
	kind, _, _ := strings.Cut(key, "/")
	open, end := `","data":`, "}"
	switch kind {
	case "session", "message", "part":
	case "session_diff":
		payload = Diff(payload)
	case "model":
		open, end = `","data":[`, "]}"
	default:
		return dst
	}
	dst = append(append(dst, `{"type":"`...), kind...)
	dst = append(append(dst, open...), payload...)
	return append(dst, end...)
}

const diffOpen = `{"diff":`

// wrapDiff wraps opencode's array in an object, since a payload must be one, and any other value
// that Diff would not restore.
func wrapDiff(value []byte) []byte {
	if isObject(value) && len(Diff(value)) == len(value) {
		return value
	}
	return append(append([]byte(diffOpen), value...), '}')
}

// Diff returns the value of the session_diff item that was put as payload.
func Diff(payload []byte) []byte {
	value, ok := bytes.CutPrefix(payload, []byte(diffOpen))
	if !ok {
		return payload
	}
	if value, ok = bytes.CutSuffix(value, []byte("}")); !ok || !json.Valid(value) { // it has other members
		return payload
	}
	return value
}
