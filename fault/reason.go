package fault

// Errors as one line of text and back.

import (
	"fmt"
	"strconv"
	"strings"
)

// Reason returns the error as one line of text, for wires that carry nothing else
// (an exception's reason): "revoked: the ref was revoked", with a position
// "cursor_expired@41: …". ParseReason parses it.
func (e *Error) Reason() string {
	name := e.Code.String()
	if e.At != 0 {
		name = fmt.Sprintf("%s@%d", name, e.At)
	}
	if e.Message == "" {
		return name
	}
	return name + ": " + e.Message
}

// ParseReason parses the text of Reason; ok is false for any other text, also for
// a code that this version does not know.
func ParseReason(text string) (e *Error, ok bool) {
	head, message, _ := strings.Cut(text, ": ")
	name, position, positioned := strings.Cut(head, "@")
	code, known := ParseCode(name)
	if !known || code == None {
		return nil, false
	}
	e = &Error{Code: code, Message: message}
	if positioned {
		at, err := strconv.ParseUint(position, 10, 64)
		if err != nil {
			return nil, false
		}
		e.At = at
	}
	return e, true
}
