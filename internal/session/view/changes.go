package view

// The changes of a decided view: the rows to write, in bulk and in a fixed order, and the published
// events.

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Changes collects all decided changes; nil if there is nothing to write.
func (v *View) Changes() (*session.Changes, *session.Published) {
	c := &session.Changes{Charges: v.charges(), Rotate: v.rotated, Revoke: v.revoked, Audit: v.audit}
	p := &session.Published{}
	for _, id := range slices.Sorted(maps.Keys(v.Sessions)) {
		s := v.Sessions[id]
		if s.Row != s.before {
			row := s.Row
			c.Sessions = append(c.Sessions, &row)
		}
		c.Events = append(c.Events, s.events...)
		for _, cursor := range slices.Sorted(maps.Keys(s.purged)) {
			c.Purge = append(c.Purge, session.PurgedEvent{Session: id, Cursor: cursor, Payload: s.purged[cursor]})
		}
		if len(s.events) > 0 {
			p.Sessions = append(p.Sessions, session.PublishedSession{Row: s.Row, Events: session.NewUnscopedEvents(s.events), AuthChanged: s.Row.AuthGen != s.before.AuthGen})
		}
		if s.Row.Life == session.Deleted {
			if s.before.Life != session.Deleted {
				c.DropState = append(c.DropState, id)
			}
			continue
		}
		s.changes(c)
	}
	v.streamChanges(c)
	for _, id := range slices.Sorted(maps.Keys(v.Grants)) {
		if slot := v.Grants[id]; slot != nil && slot.minted {
			c.Grants = append(c.Grants, slot.Grant)
			if slot.public {
				c.Public = append(c.Public, capability.NewPublicRef(slot.Grant))
			}
		}
	}
	if len(c.Sessions)+len(c.Streams)+len(c.Records)+len(c.Prune)+len(c.Audit) == 0 {
		return nil, p
	}
	return c, p
}

// changes adds a living session's entries and turns.
func (s *Session) changes(c *session.Changes) {
	type written struct {
		key  string
		slot *EntryState
	}
	list := make([]written, 0, len(s.Entries))
	for key, slot := range s.Entries {
		if slot.write != writeNone || slot.claimChanged {
			list = append(list, written{key, slot})
		}
	}
	slices.SortFunc(list, func(a, b written) int { return strings.Compare(a.key, b.key) })
	for _, w := range list {
		key, slot := w.key, w.slot
		switch slot.write {
		case writeDrop:
			AddKey(&c.DropEntries, s.Row.ID, key)
		case writeAppended:
			c.Appended = append(c.Appended, slot.Entry)
		case WriteWhole:
			c.Entries = append(c.Entries, slot.Entry)
		case WriteInEvent:
			slot.Entry.Payload = nil // it is the event's; the view is not read any more
			c.Entries = append(c.Entries, slot.Entry)
		case writeEdits:
			c.Edited = append(c.Edited, slot.Entry)
		}
		if slot.edits && slot.write != writeNone && slot.write != writeEdits {
			AddKey(&c.DropEdits, s.Row.ID, key)
		}
		if slot.claimChanged && slot.Entry != nil {
			c.Claims = append(c.Claims, slot.Entry)
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

// AddKey adds a key of a session.
func AddKey(keys *map[string][]string, session, key string) {
	if *keys == nil {
		*keys = map[string][]string{}
	}
	(*keys)[session] = append((*keys)[session], key)
}

// streamChanges adds streams, their new records, and prunes: a record both made and acknowledged in
// this group is not written at all.
func (v *View) streamChanges(c *session.Changes) {
	keys := slices.SortedFunc(maps.Keys(v.Streams), CompareStreams)
	for _, key := range keys {
		st := v.Streams[key]
		if st.Row != st.before {
			row := st.Row
			c.Streams = append(c.Streams, &row)
		}
		if st.Row.AckedThrough != st.before.AckedThrough {
			c.Prune = append(c.Prune, session.StreamPrune{Stream: key, Through: st.Row.AckedThrough})
		}
		for _, rec := range st.Records {
			if rec.LastSeq() > st.Row.AckedThrough {
				c.Records = append(c.Records, session.StreamRecord{Stream: key, Record: rec})
			}
		}
	}
}

// CountsForRef reports whether writes under a ref count for it: a session's owner has all of the
// session's quota.
func CountsForRef(g *capability.Grant) bool {
	return g != nil && !g.Owner && capability.IsSession(g.Target)
}

// charges returns the bytes of this group's events, by ref.
func (v *View) charges() (list []session.Charge) {
	sums := map[string]int64{}
	for _, s := range v.Sessions {
		for _, e := range s.events {
			if slot := v.Grants[e.Ref]; slot != nil && CountsForRef(slot.Grant) {
				sums[e.Ref] += e.Cost()
			}
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(sums)) {
		list = append(list, session.Charge{Ref: ref, Bytes: sums[ref]})
	}
	return list
}

// CompareStreams orders streams by session.
func CompareStreams(a, b session.StreamKey) int {
	return cmp.Or(strings.Compare(a.Session, b.Session), strings.Compare(a.Outbox, b.Outbox))
}
