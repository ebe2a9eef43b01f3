package fault

// What is told of a defect of ours.

import (
	"log/slog"

	"github.com/mooring-rpc/mooring/internal/incident"
)

// Unexpected is what a peer is told of an error that no rule made: that the server could
// not do what was asked, and an incident, which the log tells of the error with. attrs are
// the log's alone.
func Unexpected(log *slog.Logger, err error, doing string, attrs ...any) *Error {
	name := incident.New()
	log.Error("unexpected error", append([]any{"incident", name, "doing", doing, "error", err}, attrs...)...)
	return Internal.Because(err, "the server could not %s: its log says why at incident %s", doing, name)
}
