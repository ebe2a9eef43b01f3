package fault

// The error that carries a code, and how to get the code back out of any error.

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Error says which rule refused (Code), what was wrong and how to fix it
// (Message). Neither ever carries a secret or a path on the server.
// At is set where the code has a position:
// Conflict (the session's cursor, or with expect the key's), Gap (the expected seq), WrongOffset (the
// present length in bytes), CursorExpired (the first cursor still available), NotYetKnown (of a fork that is being
// copied: its source's cursor).
// Batch is set by clients, and on no wire: the batch of a refused op, under
// which the server's log and mooring outbox list have it.
type Error struct {
	Code    Code
	Message string
	At      uint64
	Batch   string
	cause   error
}

func (e *Error) Error() string {
	text := e.Code.String()
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Batch != "" {
		text += " (batch " + e.Batch + ")"
	}
	return text
}

// Is matches the sentinel Code and any *Error of the same code.
func (e *Error) Is(target error) bool {
	if c, ok := target.(Code); ok {
		return c == e.Code
	}
	if t, ok := target.(*Error); ok {
		return t.Code == e.Code
	}
	return false
}

// Unwrap returns the local cause, which never leaves the process.
func (e *Error) Unwrap() error { return e.cause }

// With returns an Error of this code with a message for people.
func (c Code) With(format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// Because is With, keeping a local cause for errors.Is and the log.
func (c Code) Because(cause error, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...), cause: cause}
}

// ContextError returns a server's error for work whose context has ended: why is the context's
// cause, or an error made of it, and err the error of the work, if it has one. If its
// deadline has passed it is Unavailable, and may be retried; if not, the caller has
// cancelled (Canceled).
func ContextError(why, err error) *Error {
	cause := errors.Join(why, err)
	if errors.Is(why, context.DeadlineExceeded) {
		return Unavailable.Because(cause, "it took longer than it may: try again later")
	}
	return Canceled.Because(cause, "the caller gave up")
}

// Pos sets At and returns e.
func (e *Error) Pos(at uint64) *Error { e.At = at; return e }

// Copying reports whether a fork waits for what it is a copy of, and is made by the same request when that is copied.
func (e *Error) Copying() bool { return e.Code == NotYetKnown && e.At > 0 }

// Clip returns s as a message may echo it: valid UTF-8, and only its beginning.
func Clip(s string) string {
	const most = 64 // bytes
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// CodeOf returns the code in err's chain; Internal where there is none, None for nil.
func CodeOf(err error) Code {
	if err == nil {
		return None
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	var c Code
	if errors.As(err, &c) {
		return c
	}
	return Internal
}
