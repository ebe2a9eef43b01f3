// What a transport says of its end.

package transport

import "unicode/utf8"

// ClosedError says that the peer closed the connection in an orderly way, and its reason.
type ClosedError string

func (e ClosedError) Error() string {
	if e == "" {
		return "the peer closed the connection"
	}
	return "the peer closed the connection: " + string(e)
}

// Clip shortens s to n bytes, between two characters, and marks that it did.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := n - len("...")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
