package fault

// From any error to the one that a peer is sent.

import (
	"context"
	"errors"
	"log/slog"

	"github.com/mooring-rpc/mooring/internal/incident"
)

// From returns err as a peer is sent it; nil for nil. An error that is neither a fault, nor a code,
// nor a context's, is unexpected: the peer gets only that the server could not do what was asked,
// and an incident name, under which err is logged. attrs are for the log only.
func From(log *slog.Logger, err error, doing string, attrs ...any) *Error {
	var f *Error
	var code Code
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case errors.As(err, &code):
		return code.Because(err, "the server could not %s", doing)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ContextError(err, nil)
	}
	name := incident.New()
	log.Error("unexpected error", append([]any{"incident", name, "doing", doing, "error", err}, attrs...)...)
	return Internal.Because(err, "the server could not %s: its log says why at incident %s", doing, name)
}
