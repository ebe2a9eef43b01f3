// Errors as they are made here, and cutting their texts.

package capnweb

import (
	"unicode/utf8"
)

// errInternal is what a peer is told of an error that is none of its business.
var errInternal = &Error{Name: "Error", Message: "internal error"}

// cutText cuts s to at most n bytes, on a code point.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
