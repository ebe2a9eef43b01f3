package fault

// The answer for a defect of ours.

import (
	"log/slog"

	"github.com/mooring-rpc/mooring/internal/incident"
)

// Unexpected returns the error to send to a peer for one that no rule made: that the server
// could not do what was asked, and an incident name, under which err is logged. attrs are
// for the log only.
func Unexpected(log *slog.Logger, err error, doing string, attrs ...any) *Error {
	name := incident.New()
	log.Error("unexpected error", append([]any{"incident", name, "doing", doing, "error", err}, attrs...)...)
	return Internal.Because(err, "the server could not %s: its log says why at incident %s", doing, name)
}
