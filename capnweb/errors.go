// Errors of this package.

package capnweb

import (
	"log/slog"
	"runtime/debug"

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
