// Errors of this package, and truncation of their texts.

package capnweb

import (
	"log/slog"
	"runtime/debug"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/internal/incident"
)

// errInternal is sent to a peer for an error whose text is withheld.
var errInternal = &Error{Name: "Error", Message: "internal error"}

// panicError logs a panic of a program's code and returns the error for the caller.
func panicError(log *slog.Logger, what string, p any, more ...any) *Error {
	name := incident.New()
	log.Error(what, append([]any{"incident", name, "panic", p, "stack", string(debug.Stack())}, more...)...)
	return &Error{Name: "Error", Message: incident.Internal(name)}
}

// truncateText cuts s to at most n bytes, on a code point.
func truncateText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
