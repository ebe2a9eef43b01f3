package view

// Events that the group has written, and what a purge leaves of those and of stored ones.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Emit appends e to the session's log. The caller sets the fields from Method to Batch, and Sum if
// it is known.
func (v *View) Emit(s *Session, e *session.Event) {
	row := &s.Row
	v.journal = append(v.journal, journalEntry{event: true, s: s, head: row.Head, updated: row.Updated})
	row.Cursor++
	row.Updated = v.Now
	e.Session, e.Cursor, e.At = row.ID, row.Cursor, v.Now
	if e.Sum == (session.Hash{}) {
		e.Sum = session.SumOf(e.Payload)
	}
	e.Hash = session.HashEvent(row.Head, e)
	row.Head = e.Hash
	row.Bytes += e.Cost()
	v.groupBytes += len(e.Payload)
	s.events = append(s.events, e)
}

// Purge replaces the payload of the event at cursor by left. An event of this group, which is
// written and published at the group's end, is replaced in the view; a stored one is changed in the
// database.
func (v *View) Purge(s *Session, cursor uint64, left []byte) {
	v.groupBytes += len(left)
	if cursor > s.before.Cursor {
		i := cursor - s.before.Cursor - 1
		old := s.events[i]
		freed := int64(len(old.Payload) - len(left))
		v.journalUndo(func() {
			s.events[i] = old
			s.Row.Bytes += freed
		})
		s.Row.Bytes -= freed
		next := *old
		next.Payload = left
		s.events[i] = &next
		return
	}
	old, known := s.purged[cursor]
	v.journalUndo(func() {
		if known {
			s.purged[cursor] = old
		} else {
			delete(s.purged, cursor)
		}
	})
	s.purged[cursor] = left
}

// DiscardPurges drops the session's pending purges of stored events, if all payloads are removed
// with the session: the bytes they free are counted already.
func (v *View) DiscardPurges(s *Session) {
	purged := s.purged
	v.journalUndo(func() { s.purged = purged })
	s.purged = map[uint64][]byte{}
}

// NewEvent returns an event of the session's slab.
func (s *Session) NewEvent() *session.Event { return slabAlloc(&s.eventSlab) }

// PayloadEvents returns the events that hold payloads of key, or may, as they are by now, in the order of their cursors.
func (v *View) PayloadEvents(s *Session, key string) (events []*session.Event, _ *fault.Error) {
	rows, err := v.LoadBounded(&session.ReadSet{PayloadEvents: map[string]string{s.Row.ID: key}})
	switch {
	case err != nil && err.Code == fault.TooLarge: // smaller puts would only add to the log
		return nil, fault.TooLarge.With("purging %s needs more than %d bytes of the log in memory, the limit: purge it in a batch of its own; if it is, trim old events first (serve --keep-log), or delete the session", key, v.readLimit)
	case err != nil:
		return nil, err
	}
	v.countRead(int(min((s.before.Cursor-s.before.Base)*scanCost, uint64(v.readLimit)))) // the log is scanned
	for _, e := range rows.PayloadEvents[s.Row.ID] {
		if left, purged := s.purged[e.Cursor]; purged {
			if left == nil {
				continue
			}
			e.Payload = left
		}
		events = append(events, e)
	}
	for _, e := range s.events {
		if session.HoldsPayload(e, key) && e.Payload != nil {
			events = append(events, e)
		}
	}
	return events, nil
}
