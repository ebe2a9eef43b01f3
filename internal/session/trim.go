package session

// Trimming: the start of a log is removed, without any loss of state.
//
// Afterwards the log starts after Row.Base. The row of the event at Base stays, without its
// payload: it is the checkpoint, since its hash covers every event before it, and the chain of
// later events verifies from that hash on. Cursors do not change. The state as of Base is not kept:
// the present one is in the entries, and requests for an earlier one (a snapshot or a fork at a
// cursor), or for events before Base, are CursorExpired.

// EventMeta has the fields of an event that trimming needs.
type EventMeta struct {
	Cursor uint64
	At     int64 // Unix ms
	Bytes  int   // of its payload
}

// TrimTo returns the Base that a session's log can be trimmed to: the last event of log (its events
// after row.Base, in order) that is older than before and precedes all open turns, whose deltas are
// in the log alone (of open, the first suffices). It stops after about maxBytes, but not before the
// first event; row.Base means that nothing can be removed. more reports that further events may be
// removable afterwards.
func TrimTo(row *Row, open []*Turn, log []EventMeta, before int64, maxBytes int) (base uint64, more bool) {
	base = row.Base
	size := 0
	for _, e := range log {
		if e.At >= before {
			return base, false
		}
		for _, t := range open {
			if t.Begun <= e.Cursor {
				return base, false
			}
		}
		size += e.Bytes
		if base > row.Base && size > maxBytes {
			return base, true
		}
		base = e.Cursor
	}
	return base, base > row.Base && base < row.Cursor
}
