// Texts of bounded size: of messages and their parts, and of any value.

package mcpserver

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// Bounds of a result's texts, in bytes of JSON.
const (
	pageBytes    = 8 << 10
	outlineBytes = 1 << 10 // of one message in an outline
)

// refSecret finds the secret of a ref in a text: a ref's id, and 43 characters of base64url behind a #, which may be
// escaped as in the address of a page.
var refSecret = regexp.MustCompile(`((?:ses|spc)_[0-9A-Za-z]{26}\.[0-9A-Za-z~_-]{8,64}(?:#|%23|\\u0023))[0-9A-Za-z_-]{20,}`)

// withheld returns a text, which may be JSON, with the secrets of refs in it replaced.
func withheld(text string) string {
	if !strings.Contains(text, "_") {
		return text
	}
	return refSecret.ReplaceAllString(text, "${1}SECRET-WITHHELD")
}

// jsonLen returns how long a text is as a JSON string.
func jsonLen(text string) int {
	b, _ := json.Marshal(text) // a string cannot fail
	return len(b)
}

// cut returns the beginning of a text whose JSON is at most limit bytes long, of whole characters, and whether that is
// all of it. It is at least one character.
func cut(text string, limit int) (string, bool) {
	if len(text) <= limit && jsonLen(text) <= limit {
		return text, true
	}
	n := min(len(text), limit)
	for ; n > 1 && jsonLen(text[:n]) > limit; n -= max(n/8, 1) {
	}
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	if n == 0 {
		_, n = utf8.DecodeRuneInString(text)
	}
	return text[:n], n == len(text)
}

// partText returns what a part says, in an outline or whole: the text of one that has some, and of a tool's call its
// name, and what went in and came out. "" is a part with nothing to read.
func partText(value []byte, whole bool) string {
	v := gjson.ParseBytes(value)
	switch kind := v.Get("type").Str; kind {
	case "text":
		return v.Get("text").String()
	case "reasoning":
		if !whole {
			return ""
		}
		return "[reasoning]\n" + v.Get("text").String()
	case "tool":
		return toolText(v, whole)
	case "file":
		return fmt.Sprintf("[file %s %s]", v.Get("filename").String(), v.Get("mime").String())
	case "step-start", "step-finish", "snapshot", "patch":
		return ""
	case "":
		return v.Raw
	default:
		if text := v.Get("text"); text.Type == gjson.String {
			return text.Str
		}
		if !whole {
			return "[" + kind + "]"
		}
		return v.Raw
	}
}

func toolText(v gjson.Result, whole bool) string {
	state := v.Get("state")
	var b strings.Builder
	fmt.Fprintf(&b, "[tool %s, %s", v.Get("tool").String(), state.Get("status").String())
	if title := state.Get("title").String(); title != "" {
		b.WriteString(": " + title)
	}
	b.WriteString("]")
	if !whole {
		return b.String()
	}
	for _, name := range []string{"input", "output", "error"} {
		if member := state.Get(name); member.Exists() {
			fmt.Fprintf(&b, "\n%s: %s", name, member.String())
		}
	}
	return b.String()
}

// messageText returns the text in a message's own value: those of programs that put one there.
func messageText(value []byte) string {
	for _, name := range []string{"text", "content"} {
		if text := gjson.GetBytes(value, name); text.Type == gjson.String {
			return text.Str
		}
	}
	return ""
}

// payloadText returns the text of a request's payload, or answer: that of a member text, or its JSON.
func payloadText(payload json.RawMessage) string {
	v := gjson.ParseBytes(payload)
	switch text := v.Get("text"); {
	case text.Type == gjson.String:
		return text.Str
	case v.Type == gjson.String:
		return v.Str
	case v.Raw == "{}":
		return ""
	}
	return v.Raw
}
