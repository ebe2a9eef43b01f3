// Errors by which a transport says how it ended.

package transport

import (
	"errors"
	"strconv"
	"unicode/utf8"
)

// ErrBinary says that the peer broke the protocol.
var ErrBinary = errors.New("a binary message: Cap'n Web travels in text")

// ErrAnswersTooLarge is the error of a batch whose answers are beyond their limit.
var ErrAnswersTooLarge = errors.New("the answers of the batch are too large")

// ClosedError says that the peer closed the connection, with a status and a reason.
type ClosedError struct {
	Code   int
	Reason string
}

func (e *ClosedError) Error() string {
	if e.Reason == "" {
		return "the peer closed the connection: " + strconv.Itoa(e.Code)
	}
	return "the peer closed the connection: " + strconv.Itoa(e.Code) + " " + e.Reason
}

// maxCloseReason is how long the reason in a close frame may be.
const maxCloseReason = 123

// Truncate cuts s to at most n bytes, on a code point.
func Truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
