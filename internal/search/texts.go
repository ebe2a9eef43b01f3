package search

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// KeyPlace is the place of a match in the key itself; others are JSON Pointers (RFC 6901) into the
// value, "" the value as a whole.
const KeyPlace = "key"

// machineMembers are the members, by kind of key, that nobody reads: ids, times, settings.
var machineMembers = map[string][]string{
	"session":    {"id", "slug", "projectID", "directory", "path", "agent", "model", "version", "share", "permission", "time", "cost", "tokens", "parentID"},
	"message":    {"id", "sessionID", "parentID", "role", "time", "agent", "mode", "model", "modelID", "providerID", "path", "cost", "tokens", "tools", "variant", "finish"},
	"part":       {"id", "sessionID", "messageID", "callID", "type", "time", "cost", "tokens", "snapshot", "mime", "metadata", "synthetic"},
	"part/state": {"status", "time", "metadata"}, // of a tool's part
	"model":      {"api", "capabilities", "cost", "limit", "options", "headers", "release_date"},
}

// texts calls each for the texts of a value in which words are found, with a function that returns
// its place, until it returns false: strings and numbers, and the ids of a key of users' own kinds.
func texts(key string, value []byte, each func(place func() string, text string) bool) {
	kind, ids, _ := strings.Cut(key, "/")
	known := kind == "session_diff" || machineMembers[kind] != nil
	if !known && ids != "" && !each(func() string { return KeyPlace }, ids) {
		return
	}
	w := walk{each: each, skip: machineMembers[kind], numbers: !known}
	if kind == "part" {
		w.inState = machineMembers["part/state"]
	}
	w.value(gjson.ParseBytes(value), 0)
}

// walk goes through a value.
type walk struct {
	each          func(place func() string, text string) bool
	path          []string // of the current value
	skip, inState []string // members that are left out: at the top, and in its member state
	numbers       bool
}

func (w *walk) value(v gjson.Result, depth int) (goOn bool) {
	switch {
	case v.Type == gjson.String && !isBinary(v.Str):
		return w.each(w.place, v.Str)
	case v.Type == gjson.Number && w.numbers:
		return w.each(w.place, v.Raw)
	case !v.IsObject() && !v.IsArray():
		return true
	}
	goOn = true
	i := 0
	v.ForEach(func(name, member gjson.Result) bool {
		at := name.Str
		if v.IsArray() {
			at = strconv.Itoa(i)
			i++
		} else if depth == 0 && slices.Contains(w.skip, at) || depth == 1 && w.path[0] == "state" && slices.Contains(w.inState, at) {
			return true
		}
		w.path = append(w.path, at)
		goOn = w.value(member, depth+1)
		w.path = w.path[:depth]
		return goOn
	})
	return goOn
}

// isBinary reports whether a string is a data: URL in base64, such as an image: it has no words.
func isBinary(s string) bool {
	return strings.HasPrefix(s, "data:") && strings.Contains(s[:min(len(s), 256)], ";base64,")
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func (w *walk) place() string {
	var b strings.Builder
	for _, name := range w.path {
		b.WriteByte('/')
		_, _ = pointerEscapes.WriteString(&b, name)
	}
	return b.String()
}
