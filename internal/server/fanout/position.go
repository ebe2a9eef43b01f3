// Positions: whether a reader's place in a log is still one in the log as it is.

package fanout

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Position is a point in a log: after the event at Cursor. Hash is that event's hash as it was
// shown, or zero. It is compared, since a server that was restored has other events at the same
// cursors.
type Position struct {
	Cursor uint64
	Hash   session.Hash
}

// LogDiverged is the fault for a peer whose events up to cursor are not those of the log.
func LogDiverged(cursor uint64) *fault.Error {
	return fault.ServerBehind.With("event %d is not the one you have: the server was restored to an earlier state and continued from there; take a snapshot and continue from that", cursor)
}

// CheckCursor returns why the log cannot be followed from cursor; nil if it can.
func CheckCursor(row *session.Row, cursor uint64) *fault.Error {
	switch {
	case cursor < row.Base:
		return fault.CursorExpired.With("the log starts after cursor %d: take a snapshot and continue from there", row.Base).Pos(row.Base + 1)
	case cursor > row.Cursor:
		return fault.ServerBehind.With("the session is at cursor %d, before %d: the server was restored to an earlier state", row.Cursor, cursor).Pos(row.Cursor)
	}
	return nil
}

// SessionDeleted is the fault for every ref to a deleted session.
func SessionDeleted() *fault.Error {
	return fault.SessionDeleted.With("the session was deleted, and all refs to it died with it")
}
