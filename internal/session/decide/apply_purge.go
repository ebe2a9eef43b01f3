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
	"github.com/mooring-rpc/mooring/internal/session/opargs"
)

// purgeResult is the result of purge.
type purgeResult struct {
	changeResult
	Events int `json:"events"` // whose payload was removed or changed
}

func (a *applier) applyPurge(o *opargs.Purge) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	key := o.Key.String()
	slot, err := a.v.EntryMeta(a.s, key)
	if err != nil {
		return nil, err
	}
	touched, err := a.payloadEvents(key)
	if err != nil {
		return nil, err
	}
	if slot.Entry == nil && !a.v.EraseReverted(a.s, key) && len(touched) == 0 {
		return purgeResult{changeResult: a.unchanged()}, nil
	}
	payload := session.PurgePayload{Key: key}
	if o.Key.Kind == session.KeyMessage && a.s.Row.Needs&session.FeatureRevert != 0 {
		if payload.Left, err = a.leftOf(o.Key.Message); err != nil {
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
		payload.Salt = a.salt(a.s.Row.Cursor + 1)
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
		a.v.Purge(a.s, cursor, left)
	}
	if slot.Entry != nil {
		a.v.Drop(a.s, key)
		a.endCompaction(key)
	}
	a.v.ChangeRow(a.s).AuthGen++ // invalidates what was read before
	a.audit(capability.AuditPurge, key)
	return purgeResult{a.changed(), len(touched)}, nil
}

// leftOf returns what the state has of a message beside its value.
func (a *applier) leftOf(message string) (*session.PurgedLeft, *fault.Error) {
	t, err := a.v.Turn(a.s, message)
	if err != nil {
		return nil, err
	}
	keys, err := a.v.KeysWithPrefix(a.s, session.PartPrefix(message))
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	left := &session.PurgedLeft{Turn: t != nil}
	for _, key := range keys {
		o := a.s.Entries[key].Entry.Ord
		left.Parts = append(left.Parts, session.PlacedPart{ID: key[len(session.PartPrefix(message)):], Ord: session.OrdNumbers{o.At, o.Index}})
	}
	return left, nil
}

// payloadEvents returns the events that hold payloads of key: by cursor, each one's payload without
// them, nil where nothing remains.
func (a *applier) payloadEvents(key string) (map[uint64][]byte, *fault.Error) {
	events, err := a.v.PayloadEvents(a.s, key)
	if err != nil {
		return nil, err
	}
	touched := map[uint64][]byte{}
	for _, e := range events {
		if err := a.notePurged(touched, e, key); err != nil {
			return nil, err
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
