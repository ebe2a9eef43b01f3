package session

// Trimming: the start of a log is let go, and nothing of the state with it.
//
// After it the log starts after Row.Base. The row of the event at Base stays,
// without its payload: it is the checkpoint, since its hash covers every event
// before it, and the chain of what follows verifies from that hash on. Cursors
// go on as they were. The state as of Base is not kept: the present one is in
// the entries, and what asks for an earlier one (a snapshot or a fork at a
// cursor) is told CursorExpired, as is who asks for events before Base.

// EventMeta is what trimming has to know of an event.
type EventMeta struct {
	Cursor uint64
	At     int64 // Unix ms
	Bytes  int   // of its payload
}

// TrimTo is the Base that a session's log can be trimmed to: the last of log
// (its events after row.Base, in order) that is older than before and above
// which all deltas of open turns are, since these stand in the log alone (of open, the
// first is enough). It
// stops after about maxBytes, but for the first event; row.Base says that
// nothing may go. more says that there may be others to go after that.
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
