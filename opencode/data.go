// A session's keys and values as items again: what a share gives out.

package opencode

import (
	"bytes"
	"encoding/json"
	"strings"
)

// AppendItem appends the item {type, data} that a key and its value stand for, as
// opencode would have synced it. A key that no item has appends nothing.
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

// wrapDiff makes the object that a payload must be of opencode's array, or of
// anything else that would not come back as it is.
func wrapDiff(value []byte) []byte {
	if isObject(value) && len(Diff(value)) == len(value) {
		return value
	}
	return append(append([]byte(diffOpen), value...), '}')
}

// Diff is the value of the session_diff item that was put as payload.
func Diff(payload []byte) []byte {
	value, ok := bytes.CutPrefix(payload, []byte(diffOpen))
	if !ok {
		return payload
	}
	if value, ok = bytes.CutSuffix(value, []byte("}")); !ok || !json.Valid(value) { // it has more than that
		return payload
	}
	return value
}
