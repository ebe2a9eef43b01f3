package decide

// The changes of a decided view: the rows to write, in bulk and in a fixed order, and the published
// events.

import (
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// changes collects all decided changes; nil if there is nothing to write.
func (v *view) changes() (*session.Changes, *session.Published) {
	c := &session.Changes{Charges: v.charges(), Rotate: v.rotated, Revoke: v.revoked, Audit: v.audit}
	p := &session.Published{}
	for _, id := range slices.Sorted(maps.Keys(v.sessions)) {
		s := v.sessions[id]
		if s.row != s.before {
			row := s.row
			c.Sessions = append(c.Sessions, &row)
		}
		c.Events = append(c.Events, s.events...)
		for _, cursor := range slices.Sorted(maps.Keys(s.purged)) {
			c.Purge = append(c.Purge, session.PurgedEvent{Session: id, Cursor: cursor, Payload: s.purged[cursor]})
		}
		if len(s.events) > 0 {
			p.Sessions = append(p.Sessions, session.PublishedSession{Row: s.row, Events: session.NewUnscopedEvents(s.events), AuthChanged: s.row.AuthGen != s.before.AuthGen})
		}
		if s.row.Life == session.Deleted {
			if s.before.Life != session.Deleted {
				c.DropState = append(c.DropState, id)
			}
			continue
		}
		s.changes(c)
	}
	v.streamChanges(c)
	for _, id := range slices.Sorted(maps.Keys(v.grants)) {
		if slot := v.grants[id]; slot != nil && slot.minted {
			c.Grants = append(c.Grants, slot.grant)
			if slot.public {
				c.Public = append(c.Public, capability.NewPublicRef(slot.grant))
			}
		}
	}
	if len(c.Sessions)+len(c.Streams)+len(c.Records)+len(c.Prune)+len(c.Audit) == 0 {
		return nil, p
	}
	return c, p
}

// changes adds a living session's entries and turns.
func (s *sessionView) changes(c *session.Changes) {
	type written struct {
		key  string
		slot *entryState
	}
	list := make([]written, 0, len(s.entries))
	for key, slot := range s.entries {
		if slot.write != writeNone || slot.claimChanged {
			list = append(list, written{key, slot})
		}
	}
	slices.SortFunc(list, func(a, b written) int { return strings.Compare(a.key, b.key) })
	for _, w := range list {
		key, slot := w.key, w.slot
		switch slot.write {
		case writeDrop:
			addKey(&c.DropEntries, s.row.ID, key)
		case writeAppended:
			c.Appended = append(c.Appended, slot.entry)
		case writeWhole:
			c.Entries = append(c.Entries, slot.entry)
		case writeInEvent:
			slot.entry.Payload = nil // it is the event's; the view is not read any more
			c.Entries = append(c.Entries, slot.entry)
		case writeEdits:
			c.Edited = append(c.Edited, slot.entry)
		}
		if slot.edits && slot.write != writeNone && slot.write != writeEdits {
			addKey(&c.DropEdits, s.row.ID, key)
		}
		if slot.claimChanged && slot.entry != nil {
			c.Claims = append(c.Claims, slot.entry)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(s.reverted)) {
		c.DropReverted = append(c.DropReverted, s.reverted[m])
	}
	for _, m := range slices.Sorted(maps.Keys(s.turns)) {
		if slot := s.turns[m]; slot.dirty {
			c.Turns = append(c.Turns, slot.turn)
		}
	}
	s.requestChanges(c)
}

// addKey adds a key of a session.
func addKey(keys *map[string][]string, session, key string) {
	if *keys == nil {
		*keys = map[string][]string{}
	}
	(*keys)[session] = append((*keys)[session], key)
}

// streamChanges adds streams, their new records, and prunes: a record both made and acknowledged in
// this group is not written at all.
func (v *view) streamChanges(c *session.Changes) {
	keys := slices.SortedFunc(maps.Keys(v.streams), compareStreams)
	for _, key := range keys {
		st := v.streams[key]
		if st.row != st.before {
			row := st.row
			c.Streams = append(c.Streams, &row)
		}
		if st.row.AckedThrough != st.before.AckedThrough {
			c.Prune = append(c.Prune, session.StreamPrune{Stream: key, Through: st.row.AckedThrough})
		}
		for _, rec := range st.records {
			if rec.LastSeq() > st.row.AckedThrough {
				c.Records = append(c.Records, session.StreamRecord{Stream: key, Record: rec})
			}
		}
	}
}

var _ ledger.Effects = (*applier)(nil)
