package decide

// purge: every payload of a key is removed from log and state, for good. The rows of the log stay,
// with their hashes. Where the value is embedded in another event's payload, only that entry is
// removed from it; the purge's own event has the hash of the remainder of each event that it
// touched, so that the whole log can still be verified (session/verify.go). The turn does not change.

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
)

// purgeResult is the result of purge.
type purgeResult struct {
	changeResult
	Events int `json:"events"` // whose payload was removed or changed
}

func (o *opPurge) apply(a *applier) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	key := o.key.String()
	slot, err := a.v.entryMeta(a.s, key)
	if err != nil {
		return nil, err
	}
	touched, err := a.payloadEvents(key)
	if err != nil {
		return nil, err
	}
	if slot.entry == nil && !a.v.eraseReverted(a.s, key) && len(touched) == 0 {
		return purgeResult{changeResult: a.unchanged()}, nil
	}
	payload := session.PurgePayload{Key: key}
	if o.key.Kind == session.KeyMessage && a.s.row.Needs&session.FeatureRevert != 0 {
		if payload.Left, err = a.leftOf(o.key.Message); err != nil {
			return nil, err
		}
	}
	for _, cursor := range slices.Sorted(maps.Keys(touched)) {
		note := session.PurgedNote{Cursor: cursor}
		if left := touched[cursor]; left != nil {
			note.Sum = session.SumOf(left).String()
		}
		payload.Events = append(payload.Events, note)
	}
	if len(payload.Events) > 0 {
		payload.Salt = a.salt(a.s.row.Cursor + 1)
	}
	text := rawjson.Encode(payload)
	if len(text) > a.cfg.Limits.EventBytes {
		return nil, fault.TooLarge.With("the purge's event for %[2]d events would have %[1]d bytes, the limit is %[3]d: trim old events first (serve --keep-log), or delete the session", len(text), len(touched), a.cfg.Limits.EventBytes)
	}
	if err := a.withdrawPurged(key); err != nil {
		return nil, err
	}
	a.emit(session.MethodPurge, key, 1, text)
	a.endCopies()
	for cursor, left := range touched {
		a.v.purge(a.s, cursor, left)
	}
	if slot.entry != nil {
		a.v.drop(a.s, key)
		a.endCompaction(key)
	}
	a.v.changeRow(a.s).AuthGen++ // invalidates what was read before
	a.audit(capability.AuditPurge, key)
	return purgeResult{a.changed(), len(touched)}, nil
}

// leftOf returns what the state has of a message beside its value.
func (a *applier) leftOf(message string) (*session.PurgedLeft, *fault.Error) {
	t, err := a.v.turn(a.s, message)
	if err != nil {
		return nil, err
	}
	keys, err := a.v.keysWithPrefix(a.s, session.PartPrefix(message))
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	left := &session.PurgedLeft{Turn: t != nil}
	for _, key := range keys {
		o := a.s.entries[key].entry.Ord
		left.Parts = append(left.Parts, session.PlacedPart{ID: key[len(session.PartPrefix(message)):], Ord: session.OrdNumbers{o.At, o.Index}})
	}
	return left, nil
}

// payloadEvents returns the events that hold payloads of key: by cursor, each one's payload without
// them, nil where nothing remains.
func (a *applier) payloadEvents(key string) (map[uint64][]byte, *fault.Error) {
	v, s := a.v, a.s
	rows, err := v.loadBounded(&session.ReadSet{PayloadEvents: map[string]string{s.row.ID: key}})
	switch {
	case err != nil && err.Code == fault.TooLarge: // smaller puts would only add to the log
		return nil, fault.TooLarge.With("purging %s needs more than %d bytes of the log in memory, the limit: purge it in a batch of its own; if it is, trim old events first (serve --keep-log), or delete the session", key, v.readLimit)
	case err != nil:
		return nil, err
	}
	v.countRead(int(min((s.before.Cursor-s.before.Base)*scanCost, uint64(v.readLimit)))) // the log is scanned
	touched := map[uint64][]byte{}
	for _, e := range rows.PayloadEvents[s.row.ID] {
		if left, purged := s.purged[e.Cursor]; purged {
			if left == nil {
				continue
			}
			e.Payload = left
		}
		if err := a.notePurged(touched, e, key); err != nil {
			return nil, err
		}
	}
	for _, e := range s.events {
		if session.HoldsPayload(e, key) && e.Payload != nil {
			if err := a.notePurged(touched, e, key); err != nil {
				return nil, err
			}
		}
	}
	return touched, nil
}

// notePurged adds to touched the remainder of e without the payloads of key, if it has any.
func (a *applier) notePurged(touched map[uint64][]byte, e *session.Event, key string) *fault.Error {
	if e.Method != session.MethodFork && e.Method != session.MethodFinalize {
		touched[e.Cursor] = nil
		return nil
	}
	left, had, err := stripEntry(e, key, a.salt(e.Cursor))
	if err != nil {
		return fault.Internal.Because(err, "event %d (%s) cannot be read: %v", e.Cursor, e.Method, err)
	}
	if had {
		touched[e.Cursor] = left
	}
	return nil
}

// stripEntry returns a fork's or finalize's payload without the entry of key, and whether it had
// one. A finalize gets another salt: with the old one and the remainder, guesses at the purged
// value could be tested by the event's hash.
func stripEntry(e *session.Event, key, salt string) (left []byte, had bool, err error) {
	if e.Method == session.MethodFork {
		var p session.CreatePayload
		err := json.Unmarshal(e.Payload, &p)
		if p.Entries, p.Purged, had = session.WithoutKey(p.Entries, p.Purged, key); err != nil || !had {
			return nil, false, err
		}
		return rawjson.Encode(p), true, nil
	}
	var p session.FinalizePayload
	err = json.Unmarshal(e.Payload, &p)
	if p.Entries, p.Purged, had = session.WithoutKey(p.Entries, p.Purged, key); err != nil || !had {
		return nil, false, err
	}
	if p.Salt = ""; p.EmbedsOlder(e.Cursor) {
		p.Salt = salt
	}
	return rawjson.Encode(p), true, nil
}

// purge replaces the payload of the event at cursor by left. An event of this group, which is
// written and published at the group's end, is replaced in the view; a stored one is changed in the
// database.
func (v *view) purge(s *sessionView, cursor uint64, left []byte) {
	v.groupBytes += len(left)
	if cursor > s.before.Cursor {
		i := cursor - s.before.Cursor - 1
		old := s.events[i]
		freed := int64(len(old.Payload) - len(left))
		v.journalUndo(func() {
			s.events[i] = old
			s.row.Bytes += freed
		})
		s.row.Bytes -= freed
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

// discardPurges drops the session's pending purges of stored events, if all payloads are removed
// with the session: the bytes they free are counted already.
func (v *view) discardPurges(s *sessionView) {
	purged := s.purged
	v.journalUndo(func() { s.purged = purged })
	s.purged = map[uint64][]byte{}
}
