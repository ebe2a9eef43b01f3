package view

// What settled reverts hid: it leaves the view at once, and its rows leave the database later.

import (
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Leave removes from the view what a revert hid that is settled now. Rows that the group has changed are
// removed with it, and the others later. heads are those of the view.
func (v *View) Leave(s *Session, r *session.Revert, heads map[string]*session.Entry) {
	before := *s
	v.journalUndo(func() {
		s.Entries, s.turns, s.reverted, s.settled, s.openCount = before.Entries, before.turns, before.reverted, before.settled, nil
	})
	changed := map[string]*session.Entry{}
	s.Entries, s.turns, s.openCount = maps.Clone(s.Entries), maps.Clone(s.turns), nil
	s.reverted, s.settled = added(s.reverted), added(s.settled)
	s.settled[r.Settled] = changed
	for key, slot := range before.Entries {
		written, message := slot.write != writeNone, session.HeadOf(key) == key
		if written && message {
			changed[key] = slot.Entry
		}
		head := heads[session.HeadOf(key)]
		if slot.Entry == nil || !r.Hides(slot.Entry, head) && (head == nil || !r.HidesPart(slot.Entry)) {
			continue
		}
		s.Entries[key] = &absentEntry
		if written {
			s.Entries[key] = &EntryState{hasPayload: true, write: writeDrop, edits: slot.edits}
		}
		if written && message {
			s.dropReverted(session.MessageOf(key), r)
		}
	}
	for message, slot := range before.turns {
		if slot.turn != nil && r.HidesTurn(slot.turn, heads[session.MessageKey(message)]) {
			s.turns[message] = &turnState{}
			if slot.dirty {
				s.dropReverted(message, r)
			}
		}
	}
	if r.Part != (session.Ord{}) && heads[session.HeadOf(r.To)] != nil { // later the message may be removed, by which its parts are known
		s.reverted[r.To] = session.RevertedMessage{Session: s.Row.ID, Message: r.Message(), Before: r.Settled, Part: r.To, From: r.Part}
	}
}

// dropReverted makes this group remove a message that a settled revert hid, with its parts and its turn.
func (s *Session) dropReverted(message string, r *session.Revert) {
	s.reverted[message] = session.RevertedMessage{Session: s.Row.ID, Message: message, Before: r.Settled}
}

// added returns a copy of m to add to.
func added[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// Heads returns the entries, without payloads, of all messages that the view has something of, and of key's.
func (v *View) Heads(s *Session, key string) (map[string]*session.Entry, *fault.Error) {
	heads := map[string]*session.Entry{session.HeadOf(key): nil}
	for key := range s.Entries {
		if head := session.HeadOf(key); head != "" {
			heads[head] = nil
		}
	}
	for message := range s.turns {
		heads[session.MessageKey(message)] = nil
	}
	var unread []string
	for key := range heads {
		if s.Entries[key] == nil {
			unread = append(unread, key)
		}
	}
	if slices.Sort(unread); len(unread) > 0 {
		if err := v.loadMissing(&session.ReadSet{EntryMeta: map[string][]string{s.Row.ID: unread}}); err != nil {
			return nil, err
		}
	}
	for key := range heads {
		heads[key] = s.Entries[key].Entry
	}
	return heads, nil
}

// replaceReverted makes a message, which is put anew, begin without the rows that settled reverts hid of the
// one before.
func (v *View) replaceReverted(s *Session, key string) {
	if s.Row.Left == nil || session.HeadOf(key) != key {
		return
	}
	if v.storeErr == nil {
		v.storeErr = v.loadLeft(s, []string{key})
	}
	known := true // what the database has is no message for reverts after the one by which it left
	for _, r := range s.Row.Left.Reverts {
		head, changed := s.settled[r.Settled][key]
		if !changed && known {
			head = s.stored[key]
		}
		if head != nil && r.Hides(head, head) {
			known = known && changed
			old := s.reverted
			v.journalUndo(func() { s.reverted = old })
			s.reverted = added(old)
			s.dropReverted(session.MessageOf(key), &r)
		}
	}
}

// EraseReverted makes this group remove the row of a key that the database still has, though a settled revert has removed it from
// the state, with the other such rows of its message; it reports whether there is one that was to stay.
func (v *View) EraseReverted(s *Session, key string) bool {
	head := session.HeadOf(key)
	if s.Row.Left == nil || head == "" {
		return false
	}
	if v.storeErr == nil {
		v.storeErr = v.loadLeft(s, slices.Compact([]string{head, key}))
	}
	row := s.stored[key]
	if row == nil || s.replaced(row) || !s.hasLeft(row) {
		return false
	}
	v.replaceReverted(s, head)
	return true
}

// left returns a message as it was when a revert was settled, or as it was put since then; nil if there was
// none. The key was given to loadLeft.
func (s *Session) left(r *session.Revert, key string) *session.Entry {
	if head, changed := s.settled[r.Settled][key]; changed {
		return head
	}
	return s.stored[key]
}

// leftHead is left for one message.
func (s *Session) leftHead(key string) func(*session.Revert) *session.Entry {
	return func(r *session.Revert) *session.Entry { return s.left(r, key) }
}

// hasLeft reports whether a row that the database has was removed from the state by a settled revert. Its message was given to
// loadLeft.
func (s *Session) hasLeft(row *session.Entry) bool {
	return session.Reverts(s.Row.Left.Reverts).Any(s.leftHead(session.HeadOf(row.Key)), func(r *session.Revert, head *session.Entry) bool { return r.Hides(row, head) })
}

// replaced reports whether this group removes such a row.
func (s *Session) replaced(row *session.Entry) bool {
	for _, gone := range s.reverted {
		if gone.Removes(row) {
			return true
		}
	}
	return false
}

// loadLeft reads messages as the database has them.
func (v *View) loadLeft(s *Session, keys []string) error {
	if s.stored == nil {
		s.stored = map[string]*session.Entry{}
	}
	var unread []string
	for _, key := range keys {
		if _, known := s.stored[key]; key != "" && !known {
			s.stored[key] = nil
			unread = append(unread, key)
		}
	}
	if len(unread) == 0 {
		return nil
	}
	slices.Sort(unread)
	found, err := v.tx.Load(v.ctx, &session.ReadSet{EntryMeta: map[string][]string{s.Row.ID: unread}})
	if err == nil {
		maps.Copy(s.stored, found.Entries[s.Row.ID])
	}
	return err
}

// dropLeft removes from what was loaded the rows that settled reverts hid, as if they had left the database
// already.
func (v *View) dropLeft(rows *session.Rows) error {
	for id, s := range v.Sessions {
		if s.Row.Left == nil {
			continue
		}
		reverts := session.Reverts(s.Row.Left.Reverts)
		last := reverts[len(reverts)-1].Settled
		entries, turns := rows.Entries[id], rows.Turns[id]
		var heads []string
		for key, e := range entries {
			if e.Cursor < last {
				heads = append(heads, session.HeadOf(key))
			}
		}
		for message, t := range turns {
			if t.Begun < last {
				heads = append(heads, session.MessageKey(message))
			}
		}
		if err := v.loadLeft(s, heads); err != nil {
			return err
		}
		maps.DeleteFunc(entries, func(_ string, e *session.Entry) bool { return s.replaced(e) || s.hasLeft(e) })
		maps.DeleteFunc(turns, func(message string, t *session.Turn) bool {
			return reverts.Any(s.leftHead(session.MessageKey(message)), func(r *session.Revert, head *session.Entry) bool { return r.HidesTurn(t, head) })
		})
	}
	return nil
}
